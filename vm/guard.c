/*
 * The wall around the bridge: one nftables table, replaced as a whole in one transaction. Each rule carries a
 * numbered comment, by which a listing tells whether all of them are there. It acts before libvirt's own
 * chains (priority -10) and accepts nothing for them: an accept here only ends this table's word.
 */
#include "base/str.h"
#include "linux/spawn.h"
#include "vm/filter.h"
#include "vm/slot.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RULES_MAX (16 * 1024)
#define LISTING_MAX (256 * 1024)
#define CHILD_TIMEOUT_MS 10000

struct guard {
	struct buf text;
	unsigned rules;
	uint64_t mark; /* of these very rules, so that those of other settings or another version are not
			  taken for them */
	int r;
};

#define MARK_FORMAT "boxery %016llx %u"

static void line(struct guard *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(struct guard *g, const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (g->r == 0)
		g->r = buf_addf(&g->text, "%s\n", text);
}

static void rule(struct guard *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void rule(struct guard *g, const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	line(g, "\t\t%s comment \"" MARK_FORMAT "\"", text, (unsigned long long)g->mark, ++g->rules);
}

/* nft takes no '-' in a name. */
static void table_name(const struct hostconf *conf, char *dst, size_t size)
{
	(void)str_format_n(dst, size, "boxery_%s", conf->net_name);
	for (char *p = dst; *p; p++)
		if (*p == '-')
			*p = '_';
}

static int closed_set(struct buf *b)
{
	int r = buf_addf(b, "{ ");

	for (size_t i = 0; r == 0 && i < filter_closed_ranges_count; i++)
		r = buf_addf(b, "%s%s/%s", i ? ", " : "", filter_closed_ranges[i].address,
			filter_closed_ranges[i].prefix);
	return r < 0 ? r : buf_addf(b, " }");
}

static void add_rules(struct guard *g, const struct hostconf *conf, const struct slot *s, const char *closed)
{
	char table[32];

	table_name(conf, table, sizeof(table));
	line(g, "table inet %s {}", table);
	line(g, "delete table inet %s", table);
	line(g, "table inet %s {", table);
	line(g, "\tchain input {");
	line(g, "\t\ttype filter hook input priority -10; policy accept;");
	rule(g, "iifname != \"%s\" accept", s->bridge);
	rule(g, "meta nfproto ipv6 drop");
	rule(g, "ct state established,related accept");
	rule(g, "udp sport 68 udp dport 67 ip daddr { 255.255.255.255, %s } accept", s->gateway);
	rule(g, "ip daddr %s udp dport 53 accept", s->gateway);
	rule(g, "ip daddr %s tcp dport 53 accept", s->gateway);
	rule(g, "drop");
	line(g, "\t}");
	line(g, "\tchain forward {");
	line(g, "\t\ttype filter hook forward priority -10; policy accept;");
	rule(g, "iifname != \"%s\" oifname != \"%s\" accept", s->bridge, s->bridge);
	rule(g, "iifname \"%s\" oifname \"%s\" drop", s->bridge, s->bridge);
	rule(g, "meta nfproto ipv6 drop");
	rule(g, "oifname \"%s\" ct state established,related accept", s->bridge);
	rule(g, "oifname \"%s\" drop", s->bridge);
	rule(g, "ip saddr != %s.0/24 drop", conf->net_subnet);
	rule(g, "ip daddr %s drop", closed);
	rule(g, "accept");
	line(g, "\t}");
	line(g, "}");
}

static uint64_t fnv1a(const char *s)
{
	uint64_t v = 0xcbf29ce484222325u;

	for (; *s; s++)
		v = (v ^ (unsigned char)*s) * 0x100000001b3u;
	return v;
}

/* Rendered twice: the mark is the hash of the text with a mark of zero. */
static int render(const struct hostconf *conf, struct guard *g, struct error *e)
{
	CLEANUP_BUF struct buf closed = BUF_INIT(1024);
	struct slot s;
	int r;

	r = slot_derive(conf, 0, &s, e);
	if (r < 0)
		return r;
	r = closed_set(&closed);
	for (int pass = 0; r == 0 && pass < 2; pass++) {
		g->mark = pass ? fnv1a(g->text.data) : 0;
		g->rules = 0;
		buf_free(&g->text);
		add_rules(g, conf, &s, closed.data);
		r = g->r;
	}
	return r < 0 ? error_errno(e, -r, "cannot write the rules of the host") : 0;
}

int guard_render(const struct hostconf *conf, char **ret, struct error *e)
{
	struct guard g = {.text = BUF_INIT(RULES_MAX)};
	int r = render(conf, &g, e);

	if (r < 0)
		buf_free(&g.text);
	else
		*ret = g.text.data;
	return r;
}

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
	CLEANUP_FREE char *rules = NULL;
	int r;

	/* Replacing it would be harmless too, but takes the kernel's rule lock in every start. */
	if (guard_active(h, NULL) == 0)
		return 0;
	r = guard_render(&h->conf, &rules, e);
	if (r == 0)
		r = guard_nft_rules(rules, e);
	return r < 0 ? error_wrap(e, "cannot install the rules that protect the host from its guests") : 0;
}

int guard_remove(struct host *h, struct error *e)
{
	char table[32], rules[128];
	int r;

	table_name(&h->conf, table, sizeof(table));
	/* Made first, so that deleting cannot fail for want of it. */
	(void)str_format(rules, "table inet %s {}\ndelete table inet %s\n", table, table);
	r = guard_nft_rules(rules, e);
	return r < 0 ? error_wrap(e, "cannot remove the rules that protect the host from its guests") : 0;
}

int guard_listing_check(const struct hostconf *conf, const char *listing, struct error *e)
{
	struct guard g = {.text = BUF_INIT(RULES_MAX)};
	const char *p = listing;
	char mark[64];
	int r = render(conf, &g, e);

	buf_free(&g.text);
	if (r < 0)
		return r;
	if (!strstr(listing, "hook input") || !strstr(listing, "hook forward"))
		return error_set(
			e, ENOTCONN, "the rules that protect the host from its guests are not hooked in");
	for (unsigned i = 1; i <= g.rules; i++) {
		(void)str_format(mark, "comment \"" MARK_FORMAT "\"\n", (unsigned long long)g.mark, i);
		p = strstr(p, mark);
		if (!p)
			return error_set(e, ENOTCONN,
				"rule %u of the %u that protect the host from its guests is missing", i,
				g.rules);
	}
	return 0;
}

int guard_active(struct host *h, struct error *e)
{
	CLEANUP_FREE char *listing = NULL;
	char table[32];
	const char *argv[] = {"nft", "-s", "list", "table", "inet", table, NULL};
	int r;

	table_name(&h->conf, table, sizeof(table));
	r = nft(argv, NULL, &listing, e);
	if (r < 0)
		return error_wrap(e, "the rules that protect the host from its guests are not there");
	return guard_listing_check(&h->conf, listing, e);
}
