#include "vm/rate.h"
#include "base/str.h"
#include "vm/filter.h"
#include <errno.h>
#include <string.h>

#define RULES_MAX 4096
/* Less than a quarter of a second's worth makes TCP crawl, and one frame of a guest may have 64 KiB. */
#define BURST_MIN_KIB 256

/* A tap's name with '_' for '-', which nft does not take in names. */
static void table_name(const struct slot *s, char *dst, size_t size)
{
	(void)str_format_n(dst, size, "boxery_rate_%s", s->tap);
	for (char *p = dst; (p = strchr(p, '-'));)
		*p = '_';
}

int rate_render(const struct slot *s, uint32_t kib_per_s, char **ret, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(RULES_MAX);
	const unsigned burst = kib_per_s / 4 > BURST_MIN_KIB ? kib_per_s / 4 : BURST_MIN_KIB;
	char table[48];
	int r;

	table_name(s, table, sizeof(table));
	/* Made first, so that deleting cannot fail for want of it. */
	r = buf_addf(&b,
		"table bridge %s {}\ndelete table bridge %s\ntable bridge %s {\n"
		"\tchain from_guest {\n\t\ttype filter hook prerouting priority -290; policy accept;\n"
		"\t\tiifname \"%s\" limit rate over %u kbytes/second burst %u kbytes drop\n\t}\n"
		"\tchain to_guest {\n\t\ttype filter hook postrouting priority 290; policy accept;\n"
		"\t\toifname \"%s\" limit rate over %u kbytes/second burst %u kbytes drop\n\t}\n}\n",
		table, table, table, s->tap, kib_per_s, burst, s->tap, kib_per_s, burst);
	if (r < 0)
		return error_errno(e, -r, "cannot write the rules of %s", s->tap);
	*ret = TAKE_PTR(b.data);
	return 0;
}

int rate_set(struct host *h, const struct slot *s, uint32_t kib_per_s, struct error *e)
{
	CLEANUP_FREE char *rules = NULL;
	int r = rate_render(s, kib_per_s, &rules, e);

	if (r == 0)
		r = guard_beside(h, rules, e);
	return r < 0 ? error_wrap(e, "cannot limit the network of %s", s->tap) : 0;
}

int rate_clear(struct host *h, const struct slot *s, struct error *e)
{
	char table[48], rules[128];
	int r;

	table_name(s, table, sizeof(table));
	(void)str_format(rules, "table bridge %s {}\ndelete table bridge %s\n", table, table);
	r = guard_beside(h, rules, e);
	return r < 0 ? error_wrap(e, "cannot remove the network limit of %s", s->tap) : 0;
}
