#ifndef BOXERY_MANAGER_BUDGET_H
#define BOXERY_MANAGER_BUDGET_H
/*
 * What asking GitHub costs: every answer is counted, by verb and over the last hour, and held against what GitHub says is
 * left. Pure but for the time that is handed in (milliseconds of the boot clock).
 */
#include "github/proto.h"
#include <stdbool.h>

#define BUDGET_MINUTES 60
#define BUDGET_LOW_PERCENT 15 /* of the quota: below it, looking for jobs waits, so that registering and tidying up do not */

struct budget {
	uint64_t by_verb[GITHUB_TYPE_COUNT]; /* calls that use up the quota */
	uint64_t calls, calls_free, answers, limits, mints;
	uint32_t minutes[BUDGET_MINUTES];
	uint64_t minute; /* the one that minutes[minute % 60] is for */
	uint64_t began_ms;
	uint32_t remaining, limit; /* limit 0: GitHub has none, or has not said */
	uint64_t reset_ms;	   /* when the quota is whole again */
	uint64_t expires;	   /* epoch seconds: the credential's end; 0: none known */
};

void budget_init(struct budget *b, uint64_t now_ms);
void budget_note(struct budget *b, enum github_type verb, const struct github_reply *reply, uint64_t now_ms);
/* Calls within the last hour. */
uint32_t budget_hour(struct budget *b, uint64_t now_ms);
/* At the pace of the last ten minutes: how many seconds before the quota is whole again it is used up; 0: it is enough. */
uint64_t budget_short_by_s(struct budget *b, uint64_t now_ms);
/* How long to wait until GitHub is asked for jobs again. Longer when little is left. */
uint64_t budget_poll_ms(const struct budget *b, uint64_t interval_ms, uint64_t now_ms);
/*
 * Calls an hour that a configuration can need at most: each poll of a repository in which everything changes, plus what jobs
 * themselves cost. A repository in which nothing changes costs nothing.
 */
uint64_t budget_forecast(uint64_t poll_interval_ms, unsigned repositories, unsigned max_jobs);
#endif
