#ifndef BOXERY_LINUX_FILE_H
#define BOXERY_LINUX_FILE_H
/* Files that survive a crash: written beside, flushed, synced, renamed, folder synced. Everything is *at() and CLOEXEC. */
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Replaces dirfd/name as a whole with the given bytes. The old content stays on any failure. mode is exact (no umask). */
int file_write_atomic(int dirfd, const char *name, const void *data, size_t len, mode_t mode, struct error *e);
/* The same without waiting for the disk: for what is worth nothing once the host has crashed. */
int file_write_unsynced(int dirfd, const char *name, const void *data, size_t len, mode_t mode, struct error *e);
/* Reads a whole regular file of at most max bytes; *ret is malloc'd and NUL-terminated. -EFBIG when larger. */
int file_read(int dirfd, const char *name, size_t max, char **ret, size_t *ret_len, struct error *e);
/* As file_read, and refuses (-EACCES, with the mode in words) a file that is not ours or that group or others can access. */
int file_read_private(int dirfd, const char *name, size_t max, char **ret, size_t *ret_len, struct error *e);
int dir_make(const char *path, mode_t mode, struct error *e);              /* mkdir -p; the last part gets mode */
int dir_open(int dirfd, const char *path, int *ret_fd, struct error *e);   /* O_DIRECTORY|O_NOFOLLOW */
int dir_sync(int dirfd, struct error *e);
int file_remove(int dirfd, const char *name, bool missing_ok, struct error *e);

/*
 * KEY=VALUE files (host.env, runners.env, a VM's own settings): '#' comments, blank lines, no quoting, no expansion.
 * cb is called once per line; it returns 0 or fills e (the caller's e gets "FILE:LINE: " in front).
 * A repeated key and a line without '=' are errors (-EBADMSG, as is a cb's -EINVAL: the file is at fault, not the
 * command line). Blanks around key and value are cut. The text of a line never gets into an error: it may be a secret.
 */
typedef int (*envfile_cb)(void *userdata, const char *key, const char *value, struct error *e);
int envfile_parse(const char *shown_name, const char *data, size_t len, envfile_cb cb, void *userdata, struct error *e);
#define ENVFILE_MAX (64 * 1024)
#endif
