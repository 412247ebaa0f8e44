#ifndef BOXERY_VM_FILTER_H
#define BOXERY_VM_FILTER_H
/*
 * The jail of a guest, two walls with one policy. What a guest may do: DNS with the gateway, answer
 * ssh that came from the gateway, and talk IPv4 to addresses that are not in a closed range, with its own MAC
 * and address only. Everything else is dropped: other guests, the host itself under any of its addresses,
 * private, link-local, shared, loopback, multicast and reserved ranges, IPv6, VLANs, anything that is neither
 * IPv4 nor ARP.
 *
 * filter_ops  keyed by tap, MAC and address; in force before the guest's first packet. Two implementations, by
 *             BOXERY_NET_FILTER: nft (for all slots at once, part of the guard's rules) and nwfilter (libvirt's, made for
 *             each start). Both pass the same probes (tests/vm/)
 * guard       keyed by the bridge, for all guests; nftables: which taps, MACs and addresses there are at all (a tap
 *             nobody knows gets nothing), then stateful: connections to the host, forwarding, how many at a time
 *
 * BOXERY_NET_ISOLATION=off removes both, and then filter_active() always fails, so that nothing secret is
 * delivered.
 */
#include "base/str.h"
#include "vm/host.h"
#include "vm/slot.h"

struct filter_ops {
	const char *name;
	int (*ensure)(struct host *h, struct error *e);
	/* What goes into <interface> of a domain. */
	int (*add_xml)(struct buf *b, const struct slot *s);
	/* 0 only when this tap is filtered with this MAC and address, according to libvirt and the kernel,
	 * now. */
	int (*active)(struct host *h, const struct slot *s, struct error *e);
};
extern const struct filter_ops filter_nft, filter_nwfilter;

/* What one guest may have open in the host's connection tracking, and how fast it may open it (connections that have
 * ended linger there for two minutes without being counted). */
#define GUARD_CONNECTIONS_MAX 2048
#define GUARD_NEW_PER_S 200
#define GUARD_NEW_BURST 2000

struct filter_range {
	const char *address, *prefix, *what;
};
extern const struct filter_range filter_closed_ranges[];
extern const size_t filter_closed_ranges_count;

/* NULL: isolation is switched off. With BOXERY_NET_FILTER=auto it is known after filter_ensure(). */
const struct filter_ops *filter_implementation(const struct host *h);
/* 0 when both walls stand, as seen by a look at them: to be called before a tap is made. It settles what auto stands for
 * (h->conf.net_filter), and says in h->filter_refused why that is not nft. -EOPNOTSUPP: not nft, and BOXERY_GUEST_PROXY is set. */
int filter_ensure(struct host *h, struct error *e);
/* Takes both away, of every implementation; no guest runs. 1: a filter is left, because guests of another network use it. */
int filter_remove(struct host *h, struct error *e);
/* The same of libvirt's filter alone. */
int nwfilter_remove(struct host *h, struct error *e);
/* 0 when the guard stands, by whichever implementation auto was settled to. */
int filter_guarded(struct host *h, struct error *e);
/* 0 when both stand for that tap, now: to be called when there is a tap, again before anything secret is delivered. */
int filter_active(struct host *h, const struct slot *s, struct error *e);

/* For implementations: the error of active(). */
int filter_not_active(struct error *e, const struct slot *s, const char *why);

int guard_render(const struct hostconf *conf, char **ret, struct error *e);
int guard_install(struct host *h, struct error *e);
int guard_remove(struct host *h, struct error *e);
int guard_active(struct host *h, struct error *e);
/* One transaction of nft. */
int guard_nft_rules(const char *rules, struct error *e);
/* The same, of rules that have nothing to do with the guard's tables: what was found to be in force is still known to be. */
int guard_beside(struct host *h, const char *rules, struct error *e);
int nwfilter_render(const struct hostconf *conf, char **ret, struct error *e);
/* Is one tap's filter in a listing by `nft -s list table bridge nat`? Is the guard in those of its tables by `nft -s -t`?
 * Pure. */
int nwfilter_listing_check(const char *listing, const struct slot *s, struct error *e);
int guard_listing_check(const struct hostconf *conf, const char *listing, struct error *e);
#endif
