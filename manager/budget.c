#include "manager/budget.h"
#include <string.h>

#define MINUTE_MS UINT64_C(60000)
#define PACE_MINUTES 10
#define POLL_LISTS 3	   /* queued and running runs, runners */
#define JOB_CALLS 2	   /* mint, outcome; the list of runners says that its registration is gone */
#define JOBS_PER_HOUR 6	   /* of one runner: ten minutes a job, the reset included */
#define POLL_SLOWEST_MS (5 * MINUTE_MS)

void budget_init(struct budget *b, uint64_t now_ms)
{
	*b = (struct budget){.minute = now_ms / MINUTE_MS, .began_ms = now_ms};
}

/* Empties what the time has passed over. */
static void advance(struct budget *b, uint64_t now_ms)
{
	uint64_t minute = now_ms / MINUTE_MS;

	if (minute <= b->minute)
		return;
	if (minute - b->minute >= BUDGET_MINUTES)
		memset(b->minutes, 0, sizeof(b->minutes));
	else
		for (uint64_t m = b->minute + 1; m <= minute; m++)
			b->minutes[m % BUDGET_MINUTES] = 0;
	b->minute = minute;
}

void budget_note(struct budget *b, enum github_type verb, const struct github_reply *reply, uint64_t now_ms)
{
	advance(b, now_ms);
	b->answers++;
	b->calls += reply->calls;
	b->calls_free += reply->calls_free;
	b->minutes[b->minute % BUDGET_MINUTES] += reply->calls;
	if ((unsigned)verb < GITHUB_TYPE_COUNT)
		b->by_verb[verb] += reply->calls;
	b->limits += reply->fault == GITHUB_FAULT_LIMIT && reply->calls > 0;
	b->mints += verb == GITHUB_MINT && reply->code == 0;
	if (reply->rate_limit) {
		b->remaining = reply->rate_remaining;
		b->limit = reply->rate_limit;
		b->reset_ms = now_ms + reply->rate_reset_s * UINT64_C(1000);
	}
	if (reply->credential_expires)
		b->expires = reply->credential_expires;
}

static uint32_t last_minutes(struct budget *b, unsigned n, uint64_t now_ms)
{
	uint32_t sum = 0;

	advance(b, now_ms);
	for (unsigned i = 0; i < n && i <= b->minute; i++)
		sum += b->minutes[(b->minute - i) % BUDGET_MINUTES];
	return sum;
}

uint32_t budget_hour(struct budget *b, uint64_t now_ms)
{
	return last_minutes(b, BUDGET_MINUTES, now_ms);
}

uint64_t budget_short_by_s(struct budget *b, uint64_t now_ms)
{
	uint64_t pace = last_minutes(b, PACE_MINUTES, now_ms); /* in ten minutes */
	uint64_t left_s = b->reset_ms > now_ms ? (b->reset_ms - now_ms) / 1000 : 0, lasts_s;

	if (!b->limit || !pace || !left_s)
		return 0;
	lasts_s = (uint64_t)b->remaining * PACE_MINUTES * 60 / pace;
	return lasts_s < left_s ? left_s - lasts_s : 0;
}

uint64_t budget_poll_ms(const struct budget *b, uint64_t interval_ms, uint64_t now_ms)
{
	uint64_t slow = 4 * interval_ms;

	if (!b->limit || now_ms >= b->reset_ms || (uint64_t)b->remaining * 100 >= (uint64_t)b->limit * BUDGET_LOW_PERCENT)
		return interval_ms;
	slow = slow > POLL_SLOWEST_MS ? POLL_SLOWEST_MS : slow;
	return slow > interval_ms ? slow : interval_ms;
}

uint64_t budget_forecast(uint64_t poll_interval_ms, unsigned repositories, unsigned max_jobs)
{
	uint64_t polls = poll_interval_ms ? 60 * MINUTE_MS / poll_interval_ms : 0;

	/* In the worst hour every poll finds both lists changed, and the jobs of as many runs as runners. */
	return polls * (repositories * POLL_LISTS + max_jobs) + (uint64_t)max_jobs * JOBS_PER_HOUR * JOB_CALLS;
}
