#ifndef BOXERY_VM_CONNECTIONS_H
#define BOXERY_VM_CONNECTIONS_H
/*
 * What the host's connection tracking remembers of a life. An established connection is kept for days after its guest is
 * gone: it counts against the next life's allowance (vm/guard.c), and lets its far end send to that life's guest.
 */
#include "vm/host.h"
#include "vm/slot.h"

/* After the domain is gone. Repeating it changes nothing. */
int connections_forget(const struct slot *s, struct error *e);
#endif
