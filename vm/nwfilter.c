/*
 * The per-guest wall made of libvirt's nwfilter, one filter for all guests with MAC, IP and GATEWAY as
 * variables.
 *
 * It uses layer 2 rules only. They run in the bridge's own PREROUTING and POSTROUTING, see every frame of a
 * tap whether it is bridged or routed afterwards, and do not depend on br_netfilter; nwfilter's layer 3 rules
 * (<all/>, <tcp/>) go through iptables' physdev match, which sees bridged traffic only when br_netfilter is
 * on and then also the routed traffic of the way out, so that one of them changes its meaning with a sysctl.
 * Layer 2 rules know no state: that a packet from port 22 belongs to a connection the host made is checked by
 * the guard.
 */
#include "base/str.h"
#include "linux/spawn.h"
#include "vm/filter.h"
#include "vm/network.h"
#include "vm/virt.h"
#include <errno.h>
#include <libvirt/virterror.h>
#include <string.h>

#define FILTER_NAME "boxery-jail"
#define XML_MAX (64 * 1024)
#define LISTING_MAX (1024 * 1024)
#define CHILD_TIMEOUT_MS 10000

DEFINE_CLEANUP(virNWFilterPtr, virNWFilterFree);
DEFINE_CLEANUP(virNWFilterBindingPtr, virNWFilterBindingFree);

struct rule {
	const char *action, *direction, *match;
};
/* In this order. `out` is from the guest. */
static const struct rule before_ranges[] = {
	{"drop", "out", "<mac match='no' srcmacaddr='$MAC'/>"},
	{"accept", "out", "<arp arpsrcmacaddr='$MAC' arpsrcipaddr='$IP'/>"},
	{"drop", "out", "<ip match='no' srcipaddr='$IP'/>"},
	{"accept", "out", "<ip dstipaddr='$GATEWAY' protocol='udp' dstportstart='53'/>"},
	{"accept", "out", "<ip dstipaddr='$GATEWAY' protocol='tcp' dstportstart='53'/>"},
	{"accept", "out", "<ip dstipaddr='$GATEWAY' protocol='tcp' srcportstart='22'/>"},
	{"drop", "out", "<ip dstipaddr='$GATEWAY' dstipmask='24'/>"},
};
static const struct rule after_ranges[] = {
	{"accept", "out", "<ip dstmacaddr='$GATEWAY_MAC'/>"},
	{"drop", "out", "<mac/>"},
	/* Frames to the guest come from the bridge itself, never from another port. */
	{"drop", "in", "<mac match='no' srcmacaddr='$GATEWAY_MAC'/>"},
	{"accept", "in", "<arp/>"},
	{"drop", "in", "<ip match='no' dstmacaddr='$MAC'/>"},
	{"accept", "in", "<ip srcipaddr='$GATEWAY' protocol='udp' srcportstart='53'/>"},
	{"accept", "in", "<ip srcipaddr='$GATEWAY' protocol='tcp' srcportstart='53'/>"},
	{"accept", "in", "<ip srcipaddr='$GATEWAY' protocol='tcp' dstportstart='22'/>"},
	/* "Fragmentation needed" of connections to elsewhere. */
	{"accept", "in", "<ip srcipaddr='$GATEWAY' protocol='icmp'/>"},
	{"drop", "in", "<ip srcipaddr='$GATEWAY' srcipmask='24'/>"},
	{"accept", "in", "<ip/>"},
	{"drop", "in", "<mac/>"},
};

static int add_rule(struct buf *b, int *priority, const struct rule *r)
{
	*priority += 10;
	return buf_addf(b, "<rule action='%s' direction='%s' priority='%d'>%s</rule>\n", r->action,
		r->direction, *priority, r->match);
}

int nwfilter_render(const struct hostconf *conf, char **ret, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(XML_MAX);
	char uuid[VIR_UUID_STRING_BUFLEN];
	int r, priority = -900;

	/* One filter for all networks of this host, so its uuid is not made from a network's name. */
	(void)conf;
	network_uuid("", UUID_FILTER, uuid);
	r = buf_addf(&b, "<filter name='" FILTER_NAME "' chain='root'>\n<uuid>%s</uuid>\n", uuid);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(before_ranges); i++)
		r = add_rule(&b, &priority, &before_ranges[i]);
	for (size_t i = 0; r == 0 && i < filter_closed_ranges_count; i++) {
		const struct filter_range *f = &filter_closed_ranges[i];

		priority += 10;
		r = buf_addf(&b,
			"<rule action='drop' direction='out' priority='%d'><ip dstipaddr='%s' "
			"dstipmask='%s'/></rule>\n",
			priority, f->address, f->prefix);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(after_ranges); i++)
		r = add_rule(&b, &priority, &after_ranges[i]);
	if (r == 0)
		r = buf_addf(&b, "</filter>\n");
	if (r < 0)
		return error_errno(e, -r, "cannot write the network filter");
	*ret = TAKE_PTR(b.data);
	return 0;
}

static int ensure(struct host *h, struct error *e)
{
	CLEANUP(virNWFilterFreep) virNWFilterPtr f = NULL;
	CLEANUP_FREE char *xml = NULL;
	int r = nwfilter_render(&h->conf, &xml, e);

	if (r < 0)
		return r;
	/* libvirt compares: an equal definition changes nothing, another one is applied to running guests. */
	f = virNWFilterDefineXML(h->conn, xml);
	return f ? 0 : virt_error(e, "cannot define the network filter " FILTER_NAME);
}

int nwfilter_remove(struct host *h, struct error *e)
{
	CLEANUP(virNWFilterFreep) virNWFilterPtr f = virNWFilterLookupByName(h->conn, FILTER_NAME);
	char uuid[VIR_UUID_STRING_BUFLEN], want[VIR_UUID_STRING_BUFLEN];
	const virError *v = f ? NULL : virGetLastError();

	network_uuid("", UUID_FILTER, want);
	if (!f)
		return v && v->code == VIR_ERR_NO_NWFILTER
			       ? 0
			       : virt_error(e, "cannot look for the network filter " FILTER_NAME);
	if (virNWFilterGetUUIDString(f, uuid) < 0)
		return virt_error(e, "cannot look at the network filter " FILTER_NAME);
	if (!str_equal(uuid, want))
		return 0; /* a stranger's */
	if (virNWFilterUndefine(f) == 0)
		return 0;
	v = virGetLastError();
	return v && v->code == VIR_ERR_OPERATION_INVALID
		       ? 1
		       : virt_error(e, "cannot remove the network filter " FILTER_NAME);
}

static int add_xml(struct buf *b, const struct slot *s)
{
	return buf_addf(b,
		"<port isolated='yes'/>\n<filterref filter='" FILTER_NAME
		"'>\n<parameter name='IP' value='%s'/>\n"
		"<parameter name='GATEWAY' value='%s'/>\n<parameter name='GATEWAY_MAC' "
		"value='%s'/>\n</filterref>\n",
		s->address, s->gateway, s->gateway_mac);
}

static int not_active(struct error *e, const struct slot *s, const char *why)
{
	char text[200];

	(void)str_format(text, "%s; reset the VM, or restart libvirtd to have it made again", why);
	return filter_not_active(e, s, text);
}

/* The next line of a listing without the blanks around it; false at the end. */
static bool line_at(const char **p, char *dst, size_t size)
{
	const char *line = *p + strspn(*p, " \t");
	size_t n = strcspn(line, "\n");

	if (!**p)
		return false;
	*p = line + n + (line[n] == '\n');
	while (n > 0 && line[n - 1] == ' ')
		n--;
	str_show_n(dst, size, line, n);
	return true;
}

struct chain_seen {
	size_t rules;
	bool mac, address, last_drops;
};

static void see_rule(struct chain_seen *c, const struct slot *s, const char *line)
{
	/* The chain's own policy, which ebtables keeps as a rule behind the last one. */
	if (str_equal(line, "counter accept") && c->last_drops)
		return;
	c->rules++;
	c->mac |= strstr(line, s->mac) != NULL;
	c->address |= strstr(line, s->address) != NULL;
	c->last_drops = str_equal(line, "counter drop");
}

int nwfilter_listing_check(const char *listing, const struct slot *s, struct error *e)
{
	char line[256], in_chain[64], out_chain[64], in_jump[96], out_jump[96];
	struct chain_seen in = {0}, out = {0}, *chain = NULL;
	bool in_jumps = false, out_jumps = false;
	const char *p = listing;
	size_t out_want = ARRAY_SIZE(before_ranges) + filter_closed_ranges_count, in_want = 0;

	for (size_t i = 0; i < ARRAY_SIZE(after_ranges); i++)
		*(str_equal(after_ranges[i].direction, "in") ? &in_want : &out_want) += 1;
	/* libvirt names them as seen by the host: I is what comes in from the guest. */
	(void)str_format(in_chain, "chain libvirt-I-%s {", s->tap);
	(void)str_format(out_chain, "chain libvirt-O-%s {", s->tap);
	(void)str_format(in_jump, "iifname \"%s\" counter jump libvirt-I-%s", s->tap, s->tap);
	(void)str_format(out_jump, "oifname \"%s\" counter jump libvirt-O-%s", s->tap, s->tap);
	while (line_at(&p, line, sizeof(line))) {
		if (str_starts(line, "chain ") || str_equal(line, "}"))
			chain = str_equal(line, in_chain) ? &in : str_equal(line, out_chain) ? &out : NULL;
		else if (chain && line[0])
			see_rule(chain, s, line);
		in_jumps |= str_equal(line, in_jump);
		out_jumps |= str_equal(line, out_jump);
	}
	if (!in_jumps || !out_jumps)
		return not_active(e, s, "the kernel does not send the tap's frames through its chains");
	if (in.rules != out_want || out.rules != in_want || !in.last_drops || !out.last_drops)
		return not_active(e, s, "the tap's chains in the kernel have other rules than the filter");
	if (!in.mac || !in.address || !out.mac)
		return not_active(e, s, "the tap's chains in the kernel are for another MAC or address");
	return 0;
}

static int binding_check(struct host *h, const struct slot *s, struct error *e)
{
	CLEANUP(virNWFilterBindingFreep)
	virNWFilterBindingPtr b = virNWFilterBindingLookupByPortDev(h->conn, s->tap);
	CLEANUP_FREE char *xml = NULL;
	char mac[64], ip[64];
	const virError *v;

	if (!b) {
		v = virGetLastError();
		if (v && v->code == VIR_ERR_NO_NWFILTER_BINDING)
			return not_active(e, s, "libvirt has no binding for the tap");
		return virt_error(e, "cannot ask for the network filter of %s", s->tap);
	}
	xml = virNWFilterBindingGetXMLDesc(b, 0);
	if (!xml)
		return virt_error(e, "cannot ask for the network filter of %s", s->tap);
	(void)str_format(mac, "<mac address='%s'/>", s->mac);
	(void)str_format(ip, "<parameter name='IP' value='%s'/>", s->address);
	if (!str_equal(virNWFilterBindingGetFilterName(b), FILTER_NAME) || !strstr(xml, mac) ||
		!strstr(xml, ip))
		return not_active(e, s, "libvirt's binding for the tap is another one");
	return 0;
}

/*
 * Read by nft, although the rules are made by ebtables (its nft variant; with the legacy one nothing is found
 * here and the filter counts as not in force). ebtables -L is no mere reading: it takes a chain's policy out
 * and puts it back, and that makes libvirt's own calls for another guest fail at that moment.
 */
static int active(struct host *h, const struct slot *s, struct error *e)
{
	static const char *const argv[] = {"nft", "-s", "list", "table", "bridge", "nat", NULL};
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	CLEANUP_FREE char *listing = NULL;
	int r;

	r = binding_check(h, s, e);
	if (r < 0)
		return r;
	o.program = argv[0];
	o.argv = argv;
	o.search_path = true;
	r = spawn_capture(&o, CHILD_TIMEOUT_MS, LISTING_MAX, &listing, e);
	if (r == -EIO)
		return not_active(e, s, "the kernel has none of libvirt's rules for bridges");
	if (r < 0)
		return error_wrap(e, "cannot ask the kernel for the filter of %s", s->tap);
	return nwfilter_listing_check(listing, s, e);
}

const struct filter_ops filter_nwfilter = {
	.name = "nwfilter",
	.ensure = ensure,
	.add_xml = add_xml,
	.active = active,
};
