#include "manager/backoff.h"
#include <stddef.h>
#include <sys/random.h>

uint64_t backoff_next_with(struct backoff *b, uint64_t random)
{
	uint64_t whole = b->min_ms;

	for (unsigned i = 0; i < b->n && whole < b->max_ms; i++)
		whole *= 2;
	if (whole > b->max_ms)
		whole = b->max_ms;
	if (b->n < UINT32_MAX)
		b->n++;
	return whole - random % (whole / 2 + 1);
}

uint64_t backoff_next(struct backoff *b)
{
	uint64_t random = 0;

	/* Without randomness (never seen on a running system) only the spread is lost. */
	(void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
	return backoff_next_with(b, random);
}

void backoff_reset(struct backoff *b)
{
	b->n = 0;
}
