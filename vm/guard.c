/*
 * The wall around the bridge: nftables tables of three families, replaced as a whole in one transaction. Each rule
 * carries a numbered comment, by which a listing tells whether all of them are there; sets are constant, the kernel
 * refuses to change them. It acts before libvirt's own chains and accepts nothing for them: an accept here only ends
 * this table's word.
 *
 * bridge  Knows every (tap, MAC, address) there can be, and marks the frames that have the right three. Frames of our
 *         taps that have not are dropped. Nothing is ever bridged from or to a guest: its only peer is the bridge itself.
 * inet    Takes from the bridge's device only what is marked (and takes the mark off before anybody else sees it), so a
 *         tap that nobody knows reaches nothing, whoever put it on the bridge. Without the bridge table nothing passes.
 * arp     The same for ARP, so that such a tap cannot make the host send a guest's packets to it.
 *
 * A mark instead of a rule about bridges, because not every kernel lets a rule ask which bridge a port belongs to.
 */
#include "base/str.h"
#include "linux/spawn.h"
#include "vm/filter.h"
#include "vm/slot.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RULES_MAX (64 * 1024)
#define LISTING_MAX (256 * 1024)
#define CHILD_TIMEOUT_MS 10000
#define FRAME_MARK "0xb0e7e21a" /* between the bridge's first hook and the host's first */

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

static const char *const families[] = {"inet", "arp", "bridge"};

/* Made first, so that deleting cannot fail for want of it. */
static void delete_tables(struct guard *g, const char *table)
{
	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		line(g, "table %s %s {}", families[i], table);
		line(g, "delete table %s %s", families[i], table);
	}
}

static void add_inet(struct guard *g, const struct hostconf *conf, const struct slot *s, const char *closed)
{
	line(g, "\tset opened {\n\t\ttype ipv4_addr; size 256; flags dynamic;\n\t}");
	line(g, "\tset tracked {\n\t\ttype ipv4_addr; size 256; flags dynamic;\n\t}");
	line(g, "\tchain prerouting {");
	line(g, "\t\ttype filter hook prerouting priority -310; policy accept;");
	rule(g, "iifname != \"%s\" accept", s->bridge);
	rule(g, "meta mark != " FRAME_MARK " drop");
	rule(g, "meta mark set 0x00000000");
	line(g, "\t}");
	line(g, "\tchain counted {");
	rule(g, "ct state new add @opened { ip saddr limit rate over %d/second burst %d packets } drop",
		GUARD_NEW_PER_S, GUARD_NEW_BURST);
	rule(g, "ct state new add @tracked { ip saddr ct count over %d } drop", GUARD_CONNECTIONS_MAX);
	rule(g, "accept");
	line(g, "\t}");
	line(g, "\tchain input {");
	line(g, "\t\ttype filter hook input priority -10; policy accept;");
	rule(g, "iifname != \"%s\" accept", s->bridge);
	rule(g, "meta nfproto ipv6 drop");
	rule(g, "ct state established,related accept");
	rule(g, "ip daddr %s udp dport 53 goto counted", s->gateway);
	rule(g, "ip daddr %s tcp dport 53 goto counted", s->gateway);
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
	rule(g, "goto counted");
	line(g, "\t}");
}

static void add_arp(struct guard *g, const struct slot *s)
{
	line(g, "\tchain input {");
	line(g, "\t\ttype filter hook input priority -10; policy accept;");
	rule(g, "iifname \"%s\" meta mark != " FRAME_MARK " drop", s->bridge);
	line(g, "\t}");
}

static void add_slots(
	struct guard *g, const struct hostconf *conf, const char *name, const char *type, bool whole)
{
	struct slot s;

	line(g, "\tset %s {\n\t\ttype %s; flags constant;\n\t\telements = {", name, type);
	for (uint32_t i = 0; i < SLOT_COUNT && g->r == 0; i++) {
		g->r = slot_derive(conf, i, &s, NULL);
		if (whole)
			line(g, "\t\t\t\"%s\" . %s . %s,", s.tap, s.mac, s.address);
		else
			line(g, "\t\t\t\"%s\",", s.tap);
	}
	line(g, "\t\t}\n\t}");
}

static void add_bridge(struct guard *g, const struct hostconf *conf)
{
	add_slots(g, conf, "taps", "ifname", false);
	add_slots(g, conf, "slots", "ifname . ether_addr . ipv4_addr", true);
	/* Before nwfilter, and before what a kernel with br_netfilter does with bridged packets. */
	line(g, "\tchain prerouting {");
	line(g, "\t\ttype filter hook prerouting priority -310; policy accept;");
	rule(g, "iifname != @taps accept");
	/* The type once more, because a VLAN's frame is of the inner protocol, too. */
	rule(g, "ether type ip iifname . ether saddr . ip saddr @slots meta mark set " FRAME_MARK " accept");
	rule(g, "ether type arp iifname . ether saddr . arp saddr ip @slots iifname . arp saddr ether . arp "
		"saddr ip @slots "
		"meta mark set " FRAME_MARK " accept");
	rule(g, "drop");
	line(g, "\t}");
	line(g, "\tchain forward {");
	line(g, "\t\ttype filter hook forward priority -310; policy accept;");
	rule(g, "iifname @taps drop");
	rule(g, "oifname @taps drop");
	line(g, "\t}");
}

static void add_rules(struct guard *g, const struct hostconf *conf, const struct slot *s, const char *closed)
{
	char table[32];

	table_name(conf, table, sizeof(table));
	delete_tables(g, table);
	line(g, "table inet %s {", table);
	add_inet(g, conf, s, closed);
	line(g, "}\ntable arp %s {", table);
	add_arp(g, s);
	line(g, "}\ntable bridge %s {", table);
	add_bridge(g, conf);
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
	struct guard g = {.text = BUF_INIT(RULES_MAX)};
	char table[32];
	int r;

	table_name(&h->conf, table, sizeof(table));
	delete_tables(&g, table);
	r = g.r < 0 ? error_errno(e, -g.r, "cannot write the rules of the host")
		    : guard_nft_rules(g.text.data, e);
	buf_free(&g.text);
	return r < 0 ? error_wrap(e, "cannot remove the rules that protect the host from its guests") : 0;
}

int guard_listing_check(const struct hostconf *conf, const char *listing, struct error *e)
{
	/* As listed: of inet, of arp, of bridge. */
	static const char *const hooks[] = {"hook prerouting", "hook input", "hook forward", "hook input",
		"hook prerouting", "hook forward"};
	struct guard g = {.text = BUF_INIT(RULES_MAX)};
	const char *p = listing, *h = listing;
	char mark[64];
	int r = render(conf, &g, e);

	buf_free(&g.text);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		h = strstr(h, hooks[i]);
		if (!h)
			return error_set(e, EPERM,
				"the rules that protect the host from its guests are not hooked in");
		h += strlen(hooks[i]);
	}
	for (unsigned i = 1; i <= g.rules; i++) {
		(void)str_format(mark, "comment \"" MARK_FORMAT "\"\n", (unsigned long long)g.mark, i);
		p = strstr(p, mark);
		if (!p)
			return error_set(e, EPERM,
				"rule %u of the %u that protect the host from its guests is missing", i,
				g.rules);
	}
	return 0;
}

int guard_active(struct host *h, struct error *e)
{
	CLEANUP_BUF struct buf all = BUF_INIT(ARRAY_SIZE(families) * LISTING_MAX);
	char table[32];
	int r = 0;

	table_name(&h->conf, table, sizeof(table));
	/* One call each: nft finds nothing of the second family when it is asked for two at once. */
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(families); i++) {
		const char *argv[] = {"nft", "-s", "-t", "list", "table", families[i], table, NULL};
		CLEANUP_FREE char *listing = NULL;

		r = nft(argv, NULL, &listing, e);
		if (r == -EIO)
			return error_set(e, EPERM,
				"the rules that protect the host from its guests are not there: no table %s "
				"%s",
				families[i], table);
		if (r == 0 && buf_addf(&all, "%s", listing) < 0)
			r = error_errno(e, ENOMEM, "their listing");
	}
	if (r < 0)
		return error_wrap(e, "cannot ask for the rules that protect the host from its guests");
	return guard_listing_check(&h->conf, all.data, e);
}
