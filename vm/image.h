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
/* The clean layer and its base are the files they were at the capture. */
int clean_check(const struct host *h, const char *vm, const struct clean_image *c, struct error *e);
/* See capture.c. */
int clean_capture(struct host *h, const struct settings *s, struct error *e);
int clean_remove(const struct host *h, const char *vm, struct error *e);

int image_identity(const char *path, char ret[static IDENTITY_MAX], struct error *e);
int image_sha256(const char *path, char ret[static SHA256_TEXT], struct error *e);
/* Replaces folder/NAME.qcow2 by an empty overlay on `backing`; size_gib 0: as large as the backing file. */
int overlay_create(const struct host *h, const char *folder, const char *name, const char *backing,
	uint32_t size_gib, struct error *e);
/* The same as a copy of an empty overlay, without a program. */
int overlay_copy(const struct host *h, const char *folder, const char *name, const char *empty, struct error *e);
int overlay_remove(const struct host *h, const char *folder, const char *name, struct error *e);
#endif
