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

const struct filter_ops *filter_implementation(const struct host *h)
{
	return h->conf.net_isolation ? &filter_nwfilter : NULL;
}

int filter_ensure(struct host *h, struct error *e)
{
	const struct filter_ops *o = filter_implementation(h);
	int r;

	if (!o)
		return guard_remove(h, e);
	r = guard_install(h, e);
	return r < 0 ? r : o->ensure(h, e);
}

int filter_active(struct host *h, const struct slot *s, struct error *e)
{
	const struct filter_ops *o = filter_implementation(h);
	int r;

	if (!o)
		return error_set(e, EPERM,
			"network isolation is switched off on this host (BOXERY_NET_ISOLATION=off in "
			"host.env), so nothing secret is delivered; set it to on");
	r = guard_active(h, e);
	return r < 0 ? r : o->active(h, s, e);
}
