#ifndef BOXERY_VM_NETWORK_H
#define BOXERY_VM_NETWORK_H
/*
 * One NAT network per host: a bridge with a fixed MAC and no spanning tree, and a name server. It hands out no
 * addresses: a guest is told its own by `begin`. So adding a VM changes nothing in it.
 * It is transient: a host's reboot, or libvirt's loss of it, is repaired by the next operation.
 */
#include "vm/host.h"

#define NETWORK_XML_MAX (64 * 1024)

enum uuid_kind { UUID_NETWORK = 1, UUID_FILTER = 2 };
/* Ours are recognised by their uuid, which is made from the network's name. */
void network_uuid(const char *net_name, enum uuid_kind kind, char ret[static VIR_UUID_STRING_BUFLEN]);
int network_render(const struct hostconf *conf, char **ret_xml, struct error *e);
/* Running with the settings of now and its bridge told what not to learn, or -errno: a foreign one of that name, or other
 * settings with guests on it. */
int network_ensure(struct host *h, struct error *e);
/* 1: removed, 0: there was none. -EEXIST: a foreign one of that name; -EBUSY: guests of ours run on it. */
int network_remove(struct host *h, struct error *e);
#endif
