/*
 * The wall around the bridge: installing, removing and looking at the rules of vm/guard_rules.c.
 *
 * A look is three listings by nft, tens of milliseconds. What was found good is therefore remembered together with the
 * kernel's count of changes (vm/nft_generation.h) in run/guard.seen, and the next look, also of another process, is a
 * comparison. A file that is missing, foreign or about anything else only costs the listings. A change of our own beside the
 * guard (vm/rate.c) moves the count that was remembered on by one, if it was the only change.
 */
#include "vm/guard_rules.h"
#include "base/str.h"
#include "linux/file.h"
#include "linux/spawn.h"
#include "vm/filter.h"
#include "vm/nft_generation.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LISTING_MAX (256 * 1024)
#define CHILD_TIMEOUT_MS 10000
#define SEEN_FILE "run/guard.seen"
#define SEEN_MAX 256

static int nft(const char *const *argv, const char *input, char **ret, struct error *e)
{
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	CLEANUP_FD int fd = -1;
	int r;

	o.program = "nft";
	o.argv = argv;
	o.search_path = true;
	if (input) {
		r = msg_document(input, strlen(input), &fd, e);
		if (r < 0)
			return r;
		(void)lseek(fd, 0, SEEK_SET);
		o.stdin_fd = fd;
	}
	return spawn_capture(&o, CHILD_TIMEOUT_MS, LISTING_MAX, ret, e);
}

int guard_nft_rules(const char *input, struct error *e)
{
	static const char *const argv[] = {"nft", "-f", "-", NULL};

	return nft(argv, input, NULL, e);
}

int guard_install(struct host *h, struct error *e)
{
	CLEANUP(guard_rules_free) struct guard_rules rules = {0};
	int r;

	/* Replacing it would be harmless too, but takes the kernel's rule lock in every start. */
	if (guard_active(h, NULL) == 0)
		return 0;
	r = guard_rules_make(&h->conf, &rules, e);
	if (r == 0)
		r = guard_nft_rules(rules.text, e);
	if (r < 0)
		return error_wrap(e, "cannot install the rules that protect the host from its guests");
	return guard_active(h, e);
}

int guard_remove(struct host *h, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	int r = guard_removal_make(&h->conf, &text, e);

	if (r == 0)
		r = guard_nft_rules(text, e);
	return r < 0 ? error_wrap(e, "cannot remove the rules that protect the host from its guests") : 0;
}

int guard_render(const struct hostconf *conf, char **ret, struct error *e)
{
	struct guard_rules rules;
	int r = guard_rules_make(conf, &rules, e);

	if (r == 0)
		*ret = rules.text;
	return r;
}

static int listing_check(
	const struct hostconf *conf, const struct guard_rules *rules, const char *listing, struct error *e)
{
	/* As listed: of inet, of arp, of bridge, the last one of the jail only. */
	static const char *const hooks[] = {"hook prerouting", "hook input", "hook forward", "hook input",
		"hook prerouting", "hook input", "hook forward", "hook postrouting"};
	const size_t n_hooks = ARRAY_SIZE(hooks) - !guard_has_jail(conf);
	const char *p = listing, *h = listing;
	char mark[64];

	for (size_t i = 0; i < n_hooks; i++) {
		h = strstr(h, hooks[i]);
		if (!h)
			return error_set(e, EPERM,
				"the rules that protect the host from its guests are not hooked in");
		h += strlen(hooks[i]);
	}
	if (strstr(listing, "flags dormant"))
		return error_set(e, EPERM,
			"the rules that protect the host from its guests are switched off (dormant)");
	for (unsigned i = 1; i <= rules->count; i++) {
		(void)str_format(
			mark, "comment \"" GUARD_MARK_FORMAT "\"\n", (unsigned long long)rules->mark, i);
		p = strstr(p, mark);
		if (!p)
			return error_set(e, EPERM,
				"rule %u of the %u that protect the host from its guests is missing", i,
				rules->count);
	}
	return 0;
}

int guard_listing_check(const struct hostconf *conf, const char *listing, struct error *e)
{
	CLEANUP(guard_rules_free) struct guard_rules rules = {0};
	int r = guard_rules_make(conf, &rules, e);

	return r < 0 ? r : listing_check(conf, &rules, listing, e);
}

static int list_and_check(struct host *h, const struct guard_rules *rules, struct error *e)
{
	CLEANUP_BUF struct buf all = BUF_INIT(GUARD_FAMILIES * LISTING_MAX);
	char table[32];
	int r = 0;

	guard_table_name(&h->conf, table, sizeof(table));
	/* One call each: nft finds nothing of the second family when it is asked for two at once. */
	for (size_t i = 0; r == 0 && i < GUARD_FAMILIES; i++) {
		const char *argv[] = {"nft", "-s", "-t", "list", "table", guard_families[i], table, NULL};
		CLEANUP_FREE char *listing = NULL;

		r = nft(argv, NULL, &listing, e);
		if (r == -EIO)
			return error_set(e, EPERM,
				"the rules that protect the host from its guests are not there: no table %s "
				"%s",
				guard_families[i], table);
		if (r == 0 && buf_addf(&all, "%s", listing) < 0)
			r = error_errno(e, ENOMEM, "their listing");
	}
	if (r < 0)
		return error_wrap(e, "cannot ask for the rules that protect the host from its guests");
	return listing_check(&h->conf, rules, all.data, e);
}

/* Its first part says which rules, the second what they are. */
static void seen_start(char dst[static SEEN_MAX], const struct nft_generation *g)
{
	(void)str_format_n(dst, SEEN_MAX, "%s %llu %lu ", g->boot_id, (unsigned long long)g->netns, (unsigned long)g->number);
}

static void seen_line(char dst[static SEEN_MAX], const struct nft_generation *g, const struct guard_rules *rules)
{
	char start[SEEN_MAX];

	seen_start(start, g);
	(void)str_format_n(dst, SEEN_MAX, "%s%016llx\n", start, (unsigned long long)rules->mark);
}

static bool seen_before(const struct host *h, const char *line)
{
	CLEANUP_FREE char *text = NULL;
	size_t len;

	return file_read_private(h->image_fd, SEEN_FILE, SEEN_MAX, &text, &len, NULL) == 0 &&
	       str_equal(text, line);
}

int guard_active(struct host *h, struct error *e)
{
	CLEANUP(guard_rules_free) struct guard_rules rules = {0};
	struct nft_generation before, after;
	char line[SEEN_MAX];
	bool counted;
	int r;

	r = guard_rules_make(&h->conf, &rules, e);
	if (r < 0)
		return r;
	/* A kernel that does not count costs the listings each time. */
	counted = nft_generation_get(&before, NULL) == 0;
	if (counted) {
		seen_line(line, &before, &rules);
		if (seen_before(h, line))
			return 0;
	}
	r = list_and_check(h, &rules, e);
	/* Only when nothing was changed while it was looked at, and to save time only. */
	if (r == 0 && counted && nft_generation_get(&after, NULL) == 0 && nft_generation_equal(&before, &after))
		(void)file_write_atomic(h->image_fd, SEEN_FILE, line, strlen(line), 0600, NULL);
	return r;
}

int guard_beside(struct host *h, const char *input, struct error *e)
{
	struct nft_generation before, after;
	CLEANUP_FREE char *text = NULL;
	char start[SEEN_MAX], line[SEEN_MAX];
	bool good;
	size_t len;
	int r;

	good = nft_generation_get(&before, NULL) == 0 &&
	       file_read_private(h->image_fd, SEEN_FILE, SEEN_MAX, &text, &len, NULL) == 0;
	if (good) {
		seen_start(start, &before);
		good = str_starts(text, start);
	}
	r = guard_nft_rules(input, e);
	if (r < 0 || !good || nft_generation_get(&after, NULL) < 0)
		return r;
	before.number++;
	if (!nft_generation_equal(&before, &after))
		return 0;
	seen_start(line, &after);
	if (str_format_n(line + strlen(line), sizeof(line) - strlen(line), "%s", text + strlen(start)) == 0)
		(void)file_write_atomic(h->image_fd, SEEN_FILE, line, strlen(line), 0600, NULL);
	return 0;
}
