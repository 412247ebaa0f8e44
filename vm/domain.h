#ifndef BOXERY_VM_DOMAIN_H
#define BOXERY_VM_DOMAIN_H
/*
 * The XML of a domain, from our own values only. Domains are transient: what is destroyed leaves nothing in
 * libvirt. Poweroff, reboot and crash all destroy. No graphics, no USB, no shared folder, no balloon, no
 * firmware variables.
 */
#include "base/error.h"
#include "base/str.h"
#include "vm/slot.h"
#include <stdbool.h>
#include <stdint.h>

#define DOMAIN_METADATA_URI "urn:boxery:vm:1"
#define DOMAIN_XML_MAX (64 * 1024)
#define DOMAIN_LAYERS_MAX 4 /* overlay, warm, clean, base */
#define DOMAIN_UUID_SIZE 37

struct domain_limits { /* 0: none */
	uint32_t disk_mib_per_s, disk_iops; /* reads and writes together */
};

struct domain_spec {
	const char *name, *net_name;
	uint64_t generation;
	const char *type; /* libvirt's: kvm qemu */
	const char *arch; /* x86_64 aarch64 */
	bool kvm;
	uint32_t cpus, memory_mib;
	const char *kernel, *initrd, *cmdline; /* the console and the host name are added to cmdline */
	/* Top first; all qcow2. Written out as a chain, so that what a file says of its backing file is not asked. */
	const char *layers[DOMAIN_LAYERS_MAX];
	size_t n_layers; /* 0: no disk */
	struct domain_limits limits;
	bool disposable;		       /* the disk is an overlay that no crash of the host outlives */
	const char *console;		       /* file, appended to */
	const struct slot *slot;	       /* NULL: no network, no agent */
	/* Adds what the filter wants inside <interface>; NULL: no filter. */
	int (*add_filter)(struct buf *b, const struct slot *s);
};
int domain_render(const struct domain_spec *s, char **ret_xml, struct error *e);
/* Of a VM, the same for all its lives: a memory image can be restored only into a domain of the uuid it was saved with. */
void domain_uuid(const char *net_name, const char *name, char ret[static DOMAIN_UUID_SIZE]);

/* What matters of a domain as libvirt has it. */
struct domain_seen {
	unsigned disks, interfaces;
	char layers[DOMAIN_LAYERS_MAX][512]; /* every source file of every disk, top first */
	unsigned n_layers;		     /* may be more than fit */
	char mac[18], tap[16];
	char extra[32]; /* a device that none of ours has, or "" */
	char machine[64], emulator[256]; /* as libvirt has worked them out; "" when it does not say */
};
/* -EBADMSG: not a domain's XML. */
int domain_seen_parse(const char *xml, struct domain_seen *ret, struct error *e);
/* -ESTALE and a sentence when the disk chain, the network card or the devices are not what we rendered. */
int domain_seen_check(const struct domain_seen *seen, const char *const *layers, size_t n_layers,
	const struct slot *slot, struct error *e);
/* Reads our element back. -EINVAL: not ours, or of another network. */
int domain_metadata_parse(
	const char *xml, const char *net_name, char ret_name[static 41], uint64_t *ret_generation);
#endif
