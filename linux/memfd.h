#ifndef BOXERY_LINUX_MEMFD_H
#define BOXERY_LINUX_MEMFD_H
/* Sealed memfds, under both secrets and documents: what one process checked another cannot change any more. */
#include "base/error.h"
#include <stddef.h>

/* New memfd (CLOEXEC) with these bytes, sealed against write, grow, shrink and further seals. */
int memfd_sealed_new(const char *label, const void *data, size_t len, int *ret_fd, struct error *e);
/* -EBADMSG unless fd is a memfd with all of those seals and a size from min to max. */
int memfd_sealed_check(int fd, size_t min, size_t max, size_t *ret_len, struct error *e);
/* Reads exactly len bytes from offset 0, whatever the fd's own offset is. -EBADMSG when there are fewer. */
int memfd_read(int fd, void *dst, size_t len, struct error *e);
#endif
