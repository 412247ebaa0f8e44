#ifndef BOXERY_VM_GUARD_RULES_H
#define BOXERY_VM_GUARD_RULES_H
/*
 * The rules of the host around its guests, as nft takes them: one table of each of three families, replaced as a whole in
 * one transaction. They act before libvirt's own chains and accept nothing for them: an accept here only ends this
 * table's word.
 *
 * bridge  Knows every (tap, MAC, address) there can be, and marks the frames that have the right three. Frames of our
 *         taps that have not are dropped. Nothing is ever bridged from or to a guest: its only peer is the bridge itself.
 *         Unless nwfilter does it, the jail of each guest is here too: what a guest may send to whom, and that to a tap
 *         only what is meant for its guest goes.
 * inet    Takes from the bridge's device only what is marked (and takes the mark off before anybody else sees it), so a
 *         tap that nobody knows reaches nothing, whoever put it on the bridge. Without the bridge table nothing passes.
 *         Then stateful: connections to the host, forwarding, how many at a time.
 * arp     The mark again, so that such a tap cannot make the host send a guest's packets to it.
 *
 * A mark instead of a rule about bridges, because not every kernel lets a rule ask which bridge a port belongs to.
 * Sets make the cost of a frame the same for one slot and for all of them.
 */
#include "linux/hostconf.h"
#include <stddef.h>

#define GUARD_FAMILIES 3
#define GUARD_MARK_FORMAT "boxery %016llx %u" /* in a rule's comment: mark, number from 1 */
extern const char *const guard_families[GUARD_FAMILIES]; /* in the order of the text */

struct guard_rules {
	char *text;
	unsigned count;
	uint64_t mark; /* of these very rules, so that those of other settings or another version are not taken for them */
};

static inline bool guard_has_jail(const struct hostconf *conf)
{
	return conf->net_filter != NET_FILTER_NWFILTER;
}
void guard_table_name(const struct hostconf *conf, char *dst, size_t size);
int guard_rules_make(const struct hostconf *conf, struct guard_rules *ret, struct error *e);
void guard_rules_free(struct guard_rules *r);
int guard_removal_make(const struct hostconf *conf, char **ret, struct error *e);
#endif
