#ifndef BOXERY_LINUX_SECRET_H
#define BOXERY_LINUX_SECRET_H
/*
 * A secret in memory: locked, guarded, not dumped, wiped on release (libsodium). There is no function that turns one
 * into text; the bytes are reachable only through secret_bytes(), which a reviewer can grep for.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

#define SECRET_MAX (64 * 1024)
struct secret;
int secret_init(struct error *e);     /* once per process: sodium_init, RLIMIT_CORE 0, PR_SET_DUMPABLE 0 */
int secret_new(const void *data, size_t len, struct secret **ret, struct error *e);
int secret_from_fd(int fd, struct secret **ret, struct error *e); /* whole file or memfd from offset 0, <= SECRET_MAX */
const void *secret_bytes(const struct secret *s);
size_t secret_len(const struct secret *s);
struct secret *secret_free(struct secret *s);
DEFINE_CLEANUP(struct secret *, secret_free);
/* Wipes a plain buffer in a way the compiler keeps. */
void secret_wipe(void *p, size_t len);

/* A memfd (CLOEXEC, sealed against write, grow, shrink, further seals) with these bytes. */
int secret_memfd(const char *label, const void *data, size_t len, int *ret_fd, struct error *e);
/* Checks that fd is such a sealed memfd of 1..max bytes, without reading it. */
int secret_memfd_check(int fd, size_t max, size_t *ret_len, struct error *e);
#endif
