#ifndef BOXERY_VM_BRIDGE_H
#define BOXERY_VM_BRIDGE_H
#include "base/error.h"

/*
 * The bridge learns no sender from a frame to 01:80:c2:00:00:0x. One to :0e (LLDP) passes no hook of nftables on its way
 * to being learnt, so no rule can keep a guest from naming others' MACs there, or a million of its own (kernel 6.1,
 * net/bridge/br_input.c). To be called before there is a tap; again costs one message to the kernel.
 */
int bridge_learn_nothing_beside(const char *bridge, struct error *e);
#endif
