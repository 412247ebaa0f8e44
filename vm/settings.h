#ifndef BOXERY_VM_SETTINGS_H
#define BOXERY_VM_SETTINGS_H
/*
 * Two small files per VM. vms/NAME.env is written by VM_NEW, and again when a patch was proven; it is what makes NAME a VM of this host.
 * run/NAME.gen holds the highest generation that was started or reset here, so that a late request of an
 * earlier life is refused; and, once that life has passed its check, what its start returned, so that a
 * repeated start can say it again.
 */
#include "base/parse.h"
#include "vm/host.h"

#define IDENTITY_MAX 80 /* INODE:SIZE:MTIME_NS */

struct settings {
	char name[VM_NAME_MAX];
	uint32_t slot, cpus, memory_mib, disk_gib;
	char image[VM_NAME_MAX];	  /* base image */
	char base_identity[IDENTITY_MAX]; /* of the base disk its overlay was made on */
	char clean_of[VM_NAME_MAX];	  /* "" or the VM whose clean image it lives from; then it has no disk of its own */
};
/* -ENOENT: no VM of that name. */
int settings_load(const struct host *h, const char *name, struct settings *ret, struct error *e);
int settings_save(const struct host *h, const struct settings *s, struct error *e);
int settings_parse(const char *name, const char *shown, const char *data, size_t len, struct settings *ret,
	struct error *e);
/* Calls cb for every settings file that can be read, in the order of names; bad ones are left out. */
int settings_each(const struct host *h, int (*cb)(void *userdata, const struct settings *s, struct error *e),
	void *userdata, struct error *e);

struct generation {
	uint64_t generation;
	bool begun; /* the life passed its check; the next three are set */
	char host_key[VM_HOST_KEY_MAX];
	bool kvm;
	uint64_t domain_id; /* libvirt's number of the domain that was checked; 0: not known */
	/* What the domain was made with, for whoever looks later whether it is still so. "" and 0: it was not. */
	bool plain, rated; /* rated: its network has a limit, which goes with the life */
	uint64_t overlay_inode;
	char clean_identity[IDENTITY_MAX], base_identity[IDENTITY_MAX];
	char warm_identity[IDENTITY_MAX]; /* of the warm layer; "": it was booted */
	bool standby;			  /* restored, checked from outside and paused: VM_WAKE does the rest, and sets begun */
};
/* No file: all zero. */
int generation_load(const struct host *h, const char *name, struct generation *ret, struct error *e);
int generation_save(const struct host *h, const char *name, const struct generation *g, struct error *e);
#endif
