#ifndef BOXERY_GUEST_QUIET_H
#define BOXERY_GUEST_QUIET_H
/* Waiting for a guest to come to rest before it is captured, with an end. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

struct quiet_times {
	unsigned interval_ms; /* between two looks */
	unsigned looks;	      /* so many in a row without anything new */
};

uint64_t quiet_now_ms(void);
/*
 * No program has been started and none has used the CPU, `looks` times in a row. Not a share of CPU time: on a busy host the
 * timer alone takes much of a guest's; and not this process and the agent, which the host keeps asking whether we have ended.
 * *ret_quiet: false when it was not so before until_ms (of quiet_now_ms()). proc: "/proc".
 */
int quiet_wait(const char *proc, const struct quiet_times *t, uint64_t until_ms, bool *ret_quiet, struct error *e);
/* What take() lists, once it has listed the same twice in a row; -EBUSY when it did not before until_ms. At least two looks.
 * ret is empty before. */
int quiet_listing(int (*take)(struct buf *ret, struct error *e), size_t max, const struct quiet_times *t, uint64_t until_ms,
	struct buf *ret, struct error *e);
#endif
