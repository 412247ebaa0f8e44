#include "vm/listing.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 200

static const struct {
	const char *kind, *words;
	bool loose; /* may be more after a boot */
} kinds[] = {{"process", "a process", false}, {"port", "a listening port", false}, {"mount", "a mount", false},
	{"user", "a user", false}, {"taint", "kernel taint", false}, {"module", "a kernel module", true}};

struct line {
	const char *text;
	size_t len;
};

static struct line first_line(const char *text)
{
	return (struct line){text, strcspn(text, "\n")};
}

static struct line next_line(struct line l)
{
	const char *p = l.text + l.len;

	return first_line(*p ? p + 1 : p);
}

static int line_compare(struct line a, struct line b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int c = memcmp(a.text, b.text, n);

	return c ? c : (a.len > b.len) - (a.len < b.len);
}

static size_t kind_of(struct line l)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (l.len > strlen(kinds[i].kind) && str_starts(l.text, kinds[i].kind) && l.text[strlen(kinds[i].kind)] == ' ')
			return i;
	return ARRAY_SIZE(kinds);
}

static bool is_space(struct line l)
{
	return str_starts(l.text, "space ");
}

static int differ(struct line l, const char *how, struct error *e)
{
	size_t k = kind_of(l), skip = k < ARRAY_SIZE(kinds) ? strlen(kinds[k].kind) + 1 : 0;
	char shown[SHOWN_MAX];

	str_show_n(shown, sizeof(shown), l.text + skip, l.len - skip);
	return error_set(e, EBADMSG, "not as it was captured: %s, '%s', %s", k < ARRAY_SIZE(kinds) ? kinds[k].words : "something",
		shown, how);
}

/* "space KIB INODES" of each. */
static int compare_space(struct line captured, struct line now, struct error *e)
{
	unsigned long long then_kib, then_inodes, now_kib, now_inodes;
	char *end;

	then_kib = strtoull(captured.text + strlen("space "), &end, 10);
	then_inodes = strtoull(end, NULL, 10);
	now_kib = strtoull(now.text + strlen("space "), &end, 10);
	now_inodes = strtoull(end, NULL, 10);
	if (now_kib + LISTING_SPACE_KIB >= then_kib && now_kib <= then_kib + LISTING_SPACE_KIB &&
		now_inodes + LISTING_INODES >= then_inodes && now_inodes <= then_inodes + LISTING_INODES)
		return 0;
	return error_set(e, EBADMSG,
		"not as it was captured: %llu MiB and %llu inodes are free on its disk, %llu MiB and %llu were", now_kib / 1024,
		now_inodes, then_kib / 1024, then_inodes);
}

int listing_compare(const char *captured, const char *now, enum listing_rule rule, struct error *e)
{
	struct line c = first_line(captured), n = first_line(now);
	int r = 0;

	while (r == 0 && (*c.text || *n.text)) {
		bool both = is_space(c) && is_space(n);
		int order = both ? 0 : !*c.text ? 1 : !*n.text ? -1 : line_compare(c, n);

		if (both)
			r = compare_space(c, n, e);
		else if (order < 0 && rule == LISTING_SAME)
			r = differ(c, "is missing", e);
		else if (order > 0 && (rule == LISTING_SAME || kind_of(n) == ARRAY_SIZE(kinds) || !kinds[kind_of(n)].loose))
			r = differ(n, "was not there", e);
		if (order <= 0)
			c = next_line(c);
		if (order >= 0)
			n = next_line(n);
	}
	return r;
}
