#ifndef BOXERY_VM_DISK_H
#define BOXERY_VM_DISK_H
/* What qemu-img does to the disks of guests. Paths are ours, absolute. */
#include "base/error.h"
#include <stdint.h>

int disk_virtual_size(const char *path, uint64_t *ret, struct error *e);
/* An empty overlay on `backing`; size_gib 0: as large as that. `path` does not exist yet. */
int disk_create(const char *path, const char *backing, uint32_t size_gib, struct error *e);
/* The same on a file that is not there under that name yet; as large as `like`. */
int disk_create_ahead(const char *path, const char *backing, const char *like, struct error *e);
/* What `from` has on top of `backing`, as one file on `backing`. Fails while a guest writes to `from`. */
int disk_layer(const char *from, const char *backing, const char *path, struct error *e);
#endif
