/*
 * The text of the rules for nft, see guard_rules.h. A rule carries a numbered comment, by which a listing tells whether
 * all of them are there; sets are constant, the kernel refuses to change them.
 */
#include "vm/guard_rules.h"
#include "base/str.h"
#include "vm/filter.h"
#include "vm/slot.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RULES_MAX (128 * 1024)
#define FRAME_MARK "0xb0e7e21a" /* between the bridge's first hook and the host's first */

const char *const guard_families[GUARD_FAMILIES] = {"inet", "arp", "bridge"};

struct guard {
	struct buf text;
	unsigned rules;
	uint64_t mark;
	int r;
};

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
	line(g, "\t\t%s comment \"" GUARD_MARK_FORMAT "\"", text, 0ull, ++g->rules);
}

/* nft takes no '-' in a name. */
void guard_table_name(const struct hostconf *conf, char *dst, size_t size)
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

/* Made first, so that deleting cannot fail for want of it. */
static void delete_tables(struct guard *g, const char *table)
{
	for (size_t i = 0; i < GUARD_FAMILIES; i++) {
		line(g, "table %s %s {}", guard_families[i], table);
		line(g, "delete table %s %s", guard_families[i], table);
	}
}

/* What the elements of a set are made of. */
enum slot_set { SET_TAP, SET_TAP_ADDRESS, SET_TAP_MAC_ADDRESS };

static void add_set(struct guard *g, const struct hostconf *conf, const char *name, enum slot_set kind)
{
	static const char *const types[] = {[SET_TAP] = "ifname",
		[SET_TAP_ADDRESS] = "ifname . ipv4_addr",
		[SET_TAP_MAC_ADDRESS] = "ifname . ether_addr . ipv4_addr"};
	struct slot s;

	line(g, "\tset %s {\n\t\ttype %s; flags constant;\n\t\telements = {", name, types[kind]);
	for (uint32_t i = 0; i < SLOT_COUNT && g->r == 0; i++) {
		g->r = slot_derive(conf, i, &s, NULL);
		if (kind == SET_TAP)
			line(g, "\t\t\t\"%s\",", s.tap);
		else if (kind == SET_TAP_ADDRESS)
			line(g, "\t\t\t\"%s\" . %s,", s.tap, s.address);
		else
			line(g, "\t\t\t\"%s\" . %s . %s,", s.tap, s.mac, s.address);
	}
	line(g, "\t\t}\n\t}");
}

/* One address and one port of what is otherwise closed. nwfilter's jail would drop it before. */
static bool opens_proxy(const struct hostconf *conf)
{
	return conf->guest_proxy[0] && guard_has_jail(conf);
}

static void add_inet(struct guard *g, const struct hostconf *conf, const struct slot *s, const char *closed)
{
	add_set(g, conf, "taps", SET_TAP);
	line(g, "\tset opened {\n\t\ttype ipv4_addr; size 256; flags dynamic;\n\t}");
	line(g, "\tset tracked {\n\t\ttype ipv4_addr; size 256; flags dynamic;\n\t}");
	line(g, "\tchain prerouting {");
	line(g, "\t\ttype filter hook prerouting priority -310; policy accept;");
	rule(g, "iifname @taps drop");
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
	if (opens_proxy(conf))
		rule(g, "ip daddr %s tcp dport %u goto counted", conf->guest_proxy, conf->guest_proxy_port);
	rule(g, "ip daddr %s drop", closed);
	rule(g, "goto counted");
	line(g, "\t}");
}

static void add_arp(struct guard *g, const struct hostconf *conf, const struct slot *s)
{
	add_set(g, conf, "taps", SET_TAP);
	line(g, "\tchain input {");
	line(g, "\t\ttype filter hook input priority -10; policy accept;");
	rule(g, "iifname @taps drop");
	rule(g, "iifname \"%s\" meta mark != " FRAME_MARK " drop", s->bridge);
	line(g, "\t}");
}

/* From the guest, once its three are right. */
static void add_from_guest(struct guard *g, const struct hostconf *conf, const struct slot *s, const char *closed)
{
	line(g, "\tchain from_guest {");
	if (guard_has_jail(conf)) {
		rule(g, "ether daddr != %s drop", s->gateway_mac);
		rule(g, "ip daddr %s udp dport 53 goto good", s->gateway);
		rule(g, "ip daddr %s tcp dport 53 goto good", s->gateway);
		rule(g, "ip daddr %s tcp sport 22 goto good", s->gateway);
		rule(g, "ip daddr %s.0/24 drop", conf->net_subnet);
		if (opens_proxy(conf))
			rule(g, "ip daddr %s tcp dport %u goto good", conf->guest_proxy, conf->guest_proxy_port);
		rule(g, "ip daddr %s drop", closed);
	}
	rule(g, "goto good");
	line(g, "\t}");
}

static void add_to_guest(struct guard *g, const struct hostconf *conf, const struct slot *s)
{
	line(g, "\tchain to_guest {");
	rule(g, "ip saddr %s udp sport 53 accept", s->gateway);
	rule(g, "ip saddr %s tcp sport 53 accept", s->gateway);
	rule(g, "ip saddr %s tcp dport 22 accept", s->gateway);
	/* "Fragmentation needed" of connections to elsewhere. */
	rule(g, "ip saddr %s ip protocol icmp accept", s->gateway);
	rule(g, "ip saddr %s.0/24 drop", conf->net_subnet);
	rule(g, "accept");
	line(g, "\t}");
	/* Where the guest is said to be does not matter: a frame that the bridge floods to all its ports, because it does not
	 * know, leaves through the right one only. */
	line(g, "\tchain postrouting {");
	line(g, "\t\ttype filter hook postrouting priority 310; policy accept;");
	rule(g, "oifname != @taps accept");
	rule(g, "ether saddr != %s drop", s->gateway_mac);
	rule(g, "ether type arp oifname . arp daddr ip @places accept");
	rule(g, "ether type ip oifname . ether daddr . ip daddr @slots goto to_guest");
	rule(g, "drop");
	line(g, "\t}");
}

static void add_bridge(struct guard *g, const struct hostconf *conf, const struct slot *s, const char *closed)
{
	add_set(g, conf, "taps", SET_TAP);
	add_set(g, conf, "slots", SET_TAP_MAC_ADDRESS);
	if (guard_has_jail(conf))
		add_set(g, conf, "places", SET_TAP_ADDRESS);
	line(g, "\tchain good {");
	rule(g, "meta mark set " FRAME_MARK " accept");
	line(g, "\t}");
	add_from_guest(g, conf, s, closed);
	/* Before nwfilter, and before what a kernel with br_netfilter does with bridged packets. */
	line(g, "\tchain prerouting {");
	line(g, "\t\ttype filter hook prerouting priority -310; policy accept;");
	rule(g, "iifname != @taps accept");
	/* The type once more, because a VLAN's frame is of the inner protocol, too. */
	rule(g, "ether type ip iifname . ether saddr . ip saddr @slots goto from_guest");
	rule(g, "ether type arp iifname . ether saddr . arp saddr ip @slots iifname . arp saddr ether . arp "
		"saddr ip @slots goto good");
	rule(g, "drop");
	line(g, "\t}");
	/*
	 * Frames to 01:80:c2:00:00:00 to :0f come here from the tap itself, without the hook above, and would go on to
	 * the host as if the tap were a card of its own; those to :0e go around even this, and are dropped by inet and
	 * arp. The mark does not tell: with br_netfilter it is off again here.
	 */
	line(g, "\tchain input {");
	line(g, "\t\ttype filter hook input priority -310; policy accept;");
	rule(g, "iifname @taps ether daddr != { %s, ff:ff:ff:ff:ff:ff } drop", s->gateway_mac);
	line(g, "\t}");
	line(g, "\tchain forward {");
	line(g, "\t\ttype filter hook forward priority -310; policy accept;");
	rule(g, "iifname @taps drop");
	rule(g, "oifname @taps drop");
	line(g, "\t}");
	if (guard_has_jail(conf))
		add_to_guest(g, conf, s);
}

static void add_rules(struct guard *g, const struct hostconf *conf, const struct slot *s, const char *closed)
{
	char table[32];

	guard_table_name(conf, table, sizeof(table));
	delete_tables(g, table);
	line(g, "table inet %s {", table);
	add_inet(g, conf, s, closed);
	line(g, "}\ntable arp %s {", table);
	add_arp(g, conf, s);
	line(g, "}\ntable bridge %s {", table);
	add_bridge(g, conf, s, closed);
	line(g, "}");
}

static uint64_t fnv1a(const char *s)
{
	uint64_t v = 0xcbf29ce484222325u;

	for (; *s; s++)
		v = (v ^ (unsigned char)*s) * 0x100000001b3u;
	return v;
}

/* The mark is the hash of the text with a mark of zero, and is then put in its place. */
static void put_mark(struct guard *g)
{
	char zero[64], mark[64];
	size_t n;

	g->mark = fnv1a(g->text.data);
	(void)str_format(zero, GUARD_MARK_FORMAT, 0ull, 0u);
	(void)str_format(mark, GUARD_MARK_FORMAT, (unsigned long long)g->mark, 0u);
	n = strlen(zero) - 1; /* without the number */
	zero[n] = '\0';
	for (char *p = g->text.data; (p = strstr(p, zero)); p += n)
		memcpy(p, mark, n);
}

int guard_rules_make(const struct hostconf *conf, struct guard_rules *ret, struct error *e)
{
	CLEANUP_BUF struct buf closed = BUF_INIT(1024);
	struct guard g = {.text = BUF_INIT(RULES_MAX)};
	struct slot s;
	int r;

	r = slot_derive(conf, 0, &s, e);
	if (r < 0)
		return r;
	g.r = closed_set(&closed);
	if (g.r == 0)
		add_rules(&g, conf, &s, closed.data);
	if (g.r < 0 || !g.text.data) {
		buf_free(&g.text);
		return error_errno(e, g.r < 0 ? -g.r : ENOMEM, "cannot write the rules of the host");
	}
	put_mark(&g);
	*ret = (struct guard_rules){.text = g.text.data, .count = g.rules, .mark = g.mark};
	return 0;
}

void guard_rules_free(struct guard_rules *r)
{
	free(r->text);
	r->text = NULL;
}

int guard_removal_make(const struct hostconf *conf, char **ret, struct error *e)
{
	struct guard g = {.text = BUF_INIT(RULES_MAX)};
	char table[32];

	guard_table_name(conf, table, sizeof(table));
	delete_tables(&g, table);
	if (g.r < 0) {
		buf_free(&g.text);
		return error_errno(e, -g.r, "cannot write the rules of the host");
	}
	*ret = g.text.data;
	return 0;
}
