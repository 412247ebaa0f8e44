#include "manager/steady.h"

uint64_t steady_wall_us(struct steady *s, uint64_t wall_us, uint64_t boot_us)
{
	int64_t ahead = (int64_t)wall_us - (int64_t)boot_us;
	bool further = s->started && ahead > s->ahead_us + (int64_t)STEADY_STEP_US;

	if (further && !s->since_us)
		s->since_us = boot_us;
	if (!further || boot_us - s->since_us >= STEADY_DOUBT_US) {
		s->ahead_us = ahead;
		s->since_us = 0;
		s->started = true;
	}
	return boot_us + (uint64_t)s->ahead_us;
}
