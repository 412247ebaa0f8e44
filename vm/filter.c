#include "vm/filter.h"
#include <errno.h>

/* RFC 6890 and friends. The three documentation ranges are left out: nothing is there, and tests play the
 * internet in one of them. */
const struct filter_range filter_closed_ranges[] = {
	{"0.0.0.0", "8", "this network"},
	{"10.0.0.0", "8", "private"},
	{"100.64.0.0", "10", "shared by carriers"},
	{"127.0.0.0", "8", "loopback"},
	{"169.254.0.0", "16", "link-local, cloud metadata"},
	{"172.16.0.0", "12", "private"},
	{"192.0.0.0", "24", "protocol assignments"},
	{"192.88.99.0", "24", "6to4 relays"},
	{"192.168.0.0", "16", "private"},
	{"198.18.0.0", "15", "benchmarks"},
	{"224.0.0.0", "4", "multicast"},
	{"240.0.0.0", "4", "reserved, broadcast"},
};
const size_t filter_closed_ranges_count = ARRAY_SIZE(filter_closed_ranges);

int filter_not_active(struct error *e, const struct slot *s, const char *why)
{
	return error_set(
		e, EPERM, "the network filter of %s (%s) is not in force: %s", s->tap, s->address, why);
}

const struct filter_ops *filter_implementation(const struct host *h)
{
	if (!h->conf.net_isolation)
		return NULL;
	return h->conf.net_filter == NET_FILTER_NWFILTER ? &filter_nwfilter : &filter_nft;
}

static int install(struct host *h, struct error *e)
{
	int r = guard_install(h, e);

	return r < 0 ? r : filter_implementation(h)->ensure(h, e);
}

int filter_ensure(struct host *h, struct error *e)
{
	int r;

	if (!h->conf.net_isolation)
		return guard_remove(h, e);
	if (h->conf.net_filter != NET_FILTER_AUTO)
		return install(h, e);
	h->conf.net_filter = NET_FILTER_NFT;
	r = install(h, &h->filter_refused);
	/* Guests that are told of a proxy and do not reach it wait for nothing; nwfilter has no door for one. */
	if (r < 0 && h->conf.guest_proxy[0]) {
		(void)error_set(e, EOPNOTSUPP,
			"BOXERY_GUEST_PROXY in host.env needs the filter nft, which cannot be put in force here (%.300s); mend that, "
			"or take BOXERY_GUEST_PROXY out", h->filter_refused.text);
		r = -EOPNOTSUPP;
	} else if (r < 0) {
		h->conf.net_filter = NET_FILTER_NWFILTER;
		r = install(h, e);
	}
	if (r < 0)
		h->conf.net_filter = NET_FILTER_AUTO;
	return r;
}

int filter_remove(struct host *h, struct error *e)
{
	int r = guard_remove(h, e);

	return r < 0 ? r : nwfilter_remove(h, e);
}

/* What auto was settled to by an earlier filter_ensure(), as its rules in the kernel tell; nft when there are none. */
static enum net_filter_mode settled(const struct host *h)
{
	struct host as = *h;

	if (h->conf.net_filter != NET_FILTER_AUTO)
		return h->conf.net_filter;
	as.conf.net_filter = NET_FILTER_NFT;
	if (guard_active(&as, NULL) == 0)
		return NET_FILTER_NFT;
	as.conf.net_filter = NET_FILTER_NWFILTER;
	return guard_active(&as, NULL) == 0 ? NET_FILTER_NWFILTER : NET_FILTER_NFT;
}

int filter_guarded(struct host *h, struct error *e)
{
	h->conf.net_filter = settled(h);
	return guard_active(h, e);
}

int filter_active(struct host *h, const struct slot *s, struct error *e)
{
	int r;

	if (!h->conf.net_isolation)
		return error_set(e, EPERM,
			"network isolation is switched off on this host (BOXERY_NET_ISOLATION=off in "
			"host.env), so nothing secret is delivered; set it to on");
	r = filter_guarded(h, e);
	return r < 0 ? r : filter_implementation(h)->active(h, s, e);
}
