#ifndef BOXERY_MANAGER_LOGS_H
#define BOXERY_MANAGER_LOGS_H
/*
 * The consoles of ended leases, for people: STATE_DIR/logs/LEASE.log, the last megabyte each. A VM's console file is replaced
 * with its next life, so it is copied when the lease ends. What is older than log_keep, or more than the folder may hold, goes.
 */
#include "linux/hostconf.h"
#include "manager/proto.h"
#include "manager/work.h"

#define LOGS_ONE_MAX (1024 * 1024)
#define LOGS_ALL_MAX (256ull * 1024 * 1024)

/* Copies the console, and says what can be told from its last lines. Failures are logged; a lease ends all the same. */
enum hint logs_keep(const struct hostconf *host, const struct work *w);
void logs_prune(const struct hostconf *host, uint64_t wall_us, uint64_t keep_ms); /* wall_us: now */
#endif
