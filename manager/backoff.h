#ifndef BOXERY_MANAGER_BACKOFF_H
#define BOXERY_MANAGER_BACKOFF_H
/*
 * Growing waits. The n-th wait is between half and the whole of min * 2^n, capped: the spread keeps many
 * hosts that failed together from coming back together.
 */
#include <stdint.h>

struct backoff {
	uint64_t min_ms, max_ms;
	unsigned n; /* failures in a row */
};

/* Counts a failure and returns how long to wait. `random`: any number, all 64 bits. */
uint64_t backoff_next_with(struct backoff *b, uint64_t random);
uint64_t backoff_next(struct backoff *b);
void backoff_reset(struct backoff *b);
#endif
