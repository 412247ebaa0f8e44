#ifndef BOXERY_VM_RATE_H
#define BOXERY_VM_RATE_H
/*
 * How much a guest's network may carry, each way: two nftables rules per tap that drop what is too much, so that TCP slows
 * down by itself. Not libvirt's <bandwidth>: that needs three queueing disciplines in the kernel, where one that is missing
 * stops the start, and nftables is there already for the guard. A limit of resources, no wall: nothing depends on it.
 */
#include "vm/host.h"
#include "vm/slot.h"

int rate_render(const struct slot *s, uint32_t kib_per_s, char **ret, struct error *e);
/* Before the domain; rules for a tap that is not there yet are good. Replaces what there was. */
int rate_set(struct host *h, const struct slot *s, uint32_t kib_per_s, struct error *e);
int rate_clear(struct host *h, const struct slot *s, struct error *e);
#endif
