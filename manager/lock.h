#ifndef BOXERY_MANAGER_LOCK_H
#define BOXERY_MANAGER_LOCK_H
/* One runner service per runtime folder: runners.lock is locked while it runs and holds its process id. */
#include "base/error.h"

#define LOCK_NAME "runners.lock"
/* -EALREADY with the other one's process id. The lock ends when *ret_fd is closed. */
int lock_take(const char *runtime_dir, int *ret_fd, struct error *e);
#endif
