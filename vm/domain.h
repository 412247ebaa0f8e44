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

struct domain_spec {
	const char *name, *net_name;
	uint64_t generation;
	const char *arch; /* x86_64 aarch64 */
	bool kvm;
	uint32_t cpus, memory_mib;
	const char *kernel, *initrd, *cmdline; /* the console and the host name are added to cmdline */
	const char *disk;		       /* NULL: none */
	bool disposable;		       /* the disk is an overlay that no crash of the host outlives */
	const char *console;		       /* file, appended to */
	const struct slot *slot;	       /* NULL: no network, no agent */
	/* Adds what the filter wants inside <interface>; NULL: no filter. */
	int (*add_filter)(struct buf *b, const struct slot *s);
};
int domain_render(const struct domain_spec *s, char **ret_xml, struct error *e);
/* Reads our element back. -EINVAL: not ours, or of another network. */
int domain_metadata_parse(
	const char *xml, const char *net_name, char ret_name[static 41], uint64_t *ret_generation);
#endif
