#ifndef BOXERY_SSH_FILTER_H
#define BOXERY_SSH_FILTER_H
/*
 * The system calls boxery-deliver may make once it listens to a guest. Anything else kills the process at once. There is
 * no way to open, connect, execute or signal anything in the list; reading and writing is bound to the fds it was born with.
 *
 * A sanitizer needs calls of its own (it opens /proc/self/maps, starts threads, writes reports). A build with meson's
 * b_sanitize has therefore no filter at all: filter_install() does nothing, filter_enforced() is false, --about says so,
 * and every result carries a sentence. A sanitizer brought in by other means meets the filter and dies by it.
 */
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

bool filter_enforced(void);   /* of this build */
size_t filter_rules(void);    /* how many allow rules, for --about */
/* No new privileges, then the filter, for the calling process; for good. guest_fd is the socket to the guest, result_fd
 * where the result goes. */
int filter_install(int guest_fd, int result_fd, struct error *e);
#endif
