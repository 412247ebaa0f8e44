#ifndef BOXERY_MANAGER_STEADY_H
#define BOXERY_MANAGER_STEADY_H
/*
 * The wall clock as far as something irrevocable or loud may follow from it: what is deleted because it is old, what is said to
 * end soon. A host's wall clock is set, both ways and by any amount; nothing is older for that. So a step forward counts only
 * after it has lasted for a day of the boot clock, a step back at once: with an earlier clock nothing is too old. What the clock
 * says at the start is believed. Pure: both clocks are given.
 */
#include <stdbool.h>
#include <stdint.h>

#define STEADY_STEP_US (10 * 60 * UINT64_C(1000000)) /* less is how clocks differ */
#define STEADY_DOUBT_US (24 * 3600 * UINT64_C(1000000))

struct steady { /* all zero: to be asked for the first time */
	int64_t ahead_us;  /* wall clock minus boot clock, as it is believed */
	uint64_t since_us; /* boot clock: how long the wall clock has been further ahead; 0: it is not */
	bool started;
};
/* The wall clock in microseconds. To be asked every now and then, or a step is seen late. */
uint64_t steady_wall_us(struct steady *s, uint64_t wall_us, uint64_t boot_us);
#endif
