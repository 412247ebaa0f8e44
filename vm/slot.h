#ifndef BOXERY_VM_SLOT_H
#define BOXERY_VM_SLOT_H
/*
 * A VM's slot (0 to 239) decides everything its filter is keyed by: tap NET-N, address SUBNET.N and MAC
 * 52:54:00:b0:0e:N with N = slot + 10. The bridge has SUBNET.1 and a MAC of its own, so that a guest's ARP
 * cache stays right.
 */
#include "base/error.h"
#include "linux/hostconf.h"
#include <stdint.h>

#ifndef SLOT_COUNT /* a test without a network has more */
#define SLOT_COUNT 240
#endif
#define SLOT_FIRST_HOST 10

struct slot {
	char address[16], gateway[16];
	char mac[18], gateway_mac[18];
	char tap[16], bridge[16];
};
int slot_derive(const struct hostconf *conf, uint32_t slot, struct slot *ret, struct error *e);
#endif
