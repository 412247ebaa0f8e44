#ifndef BOXERY_CONTROLLER_CLOCK_H
#define BOXERY_CONTROLLER_CLOCK_H
/* Milliseconds of a clock that nobody sets. A machine that sleeps may not count them: the host's clock decides there. */
#include <stdint.h>

uint64_t clock_now_ms(void);
#endif
