#ifndef BOXERY_VM_IMAGE_H
#define BOXERY_VM_IMAGE_H
/*
 * Base images, the clean layer of a VM, and overlays.
 *
 *   overlay run/NAME.qcow2  ->  clean layer images/NAME@boxery-clean/disk.qcow2  ->  base/IMAGE/disk.qcow2
 *
 * libvirt and QEMU put an overlay on any backing file without a word. So each layer records which file it was
 * made on: inode, size and modification time, checked at every start, and SHA-256, made at the capture and
 * checked by a scrub.
 */
#include "vm/settings.h"

#define SHA256_TEXT 65
#define HASH_TIMEOUT_MS (10 * 60 * 1000)

struct base_image {
	char name[VM_NAME_MAX], arch[16];
	char disk[VM_PATH_MAX], kernel[VM_PATH_MAX], initrd[VM_PATH_MAX];
	char cmdline[1024], sha256[SHA256_TEXT];
	char disk_identity[IDENTITY_MAX];
};
/* -ENOENT: no such base image. */
int base_load(const struct host *h, const char *name, struct base_image *ret, struct error *e);
/* Any of them, for the probe. */
int base_load_any(const struct host *h, struct base_image *ret, struct error *e);

struct clean_image {
	char disk[VM_PATH_MAX];
	char image[VM_NAME_MAX];
	char disk_identity[IDENTITY_MAX], base_identity[IDENTITY_MAX];
	char disk_sha256[SHA256_TEXT], base_sha256[SHA256_TEXT];
};
/* -ENOENT: the VM has no clean image. */
int clean_load(const struct host *h, const char *vm, struct clean_image *ret, struct error *e);
bool clean_exists(const struct host *h, const char *vm);
/* The VM whose clean image the lives of this one start from: its own if it has one, else that of CLEAN_OF. */
const char *clean_name(const struct host *h, const struct settings *s);
/* 1 and the name of a VM that lives from the clean image of `name`, 0: there is none. */
int clean_clone_find(const struct host *h, const char *name, char ret[static VM_NAME_MAX], struct error *e);
/* The clean layer and its base are the files they were at the capture. */
int clean_check(const struct host *h, const char *vm, const struct clean_image *c, struct error *e);
/* See capture.c. */
int clean_capture(struct host *h, const struct settings *s, struct error *e);
int clean_remove(const struct host *h, const char *vm, struct error *e);

/*
 * See patch.c, in this order, with the VM's lock held: clean_patch_check(), the VM is off, clean_patch(). Until clean_settle() the
 * old clean state is kept beside the new one. -ENOENT: no such base image; -EBADMSG: it is damaged; -ENOTEMPTY: the VM has changes of
 * its own, which would be lost.
 */
#define BEFORE_LABEL "boxery-before"
int clean_patch_check(struct host *h, const struct settings *s, const char *image, struct base_image *ret, struct error *e);
int clean_patch(struct host *h, const struct settings *s, const struct base_image *base, struct error *e);
/* The VM is off, or runs on what stays. image, clean_of: what it is to be on; the other one goes. Nothing to decide: a success. */
int clean_settle(struct host *h, const struct settings *s, const char *image, const char *clean_of, struct error *e);
/* What a patch or a capture that was killed has begun to write. */
int clean_sweep(const struct host *h, const char *vm, struct error *e);
/* For patch.c. folder: below the image folder. */
int clean_load_from(const struct host *h, const char *folder, const char *vm, struct clean_image *ret, struct error *e);
int clean_write_manifest(const struct host *h, const char *folder, const struct base_image *base, const char *disk,
	const char *base_sha256, struct error *e);
/* -EBADMSG: its checksum is not that of its manifest. */
int base_intact(const struct base_image *base, char ret_sha256[static SHA256_TEXT], struct error *e);

int image_identity(const char *path, char ret[static IDENTITY_MAX], struct error *e);
int image_sha256(const char *path, char ret[static SHA256_TEXT], struct error *e);
/* Replaces folder/NAME.qcow2 by an empty overlay on `backing`; size_gib 0: as large as the backing file. */
int overlay_create(const struct host *h, const char *folder, const char *name, const char *backing,
	uint32_t size_gib, struct error *e);
/* The same as a copy of an empty overlay, without a program. */
int overlay_copy(const struct host *h, const char *folder, const char *name, const char *empty, struct error *e);
int overlay_remove(const struct host *h, const char *folder, const char *name, struct error *e);
#endif
