#include "manager/outcome.h"
#include "base/table.h"

static const char *const names[] = {
	[OUTCOME_UNKNOWN] = "unknown",
	[OUTCOME_SUCCEEDED] = "succeeded",
	[OUTCOME_FAILED] = "failed",
	[OUTCOME_CANCELLED] = "cancelled",
	[OUTCOME_NO_JOB] = "no job",
	[OUTCOME_NEVER_CONNECTED] = "never connected",
	[OUTCOME_JOB_DEADLINE] = "job deadline",
	[OUTCOME_GUEST_DIED] = "guest died",
	[OUTCOME_DELIVERY_FAILED] = "delivery failed",
	[OUTCOME_MINT_FAILED] = "mint failed",
	[OUTCOME_MINT_CONFLICT] = "mint conflict",
	[OUTCOME_NOT_DELIVERED] = "not delivered",
};
STRING_TABLE(outcome, enum outcome, names, OUTCOME_COUNT);

/* GitHub's words for how a job ended. One it may add later is a failure until this table knows it. */
static const struct {
	const char *conclusion;
	enum outcome outcome;
} conclusions[] = {
	{"success", OUTCOME_SUCCEEDED},
	{"neutral", OUTCOME_SUCCEEDED},
	{"failure", OUTCOME_FAILED},
	{"timed_out", OUTCOME_FAILED},
	{"stale", OUTCOME_FAILED},
	{"startup_failure", OUTCOME_FAILED},
	{"cancelled", OUTCOME_CANCELLED},
	{"skipped", OUTCOME_CANCELLED},
};

bool outcome_had_job(enum outcome v)
{
	return v == OUTCOME_SUCCEEDED || v == OUTCOME_FAILED || v == OUTCOME_CANCELLED ||
	       v == OUTCOME_JOB_DEADLINE;
}

static enum outcome of_conclusion(const char *conclusion)
{
	for (size_t i = 0; i < sizeof(conclusions) / sizeof(conclusions[0]); i++)
		if (strcmp(conclusions[i].conclusion, conclusion) == 0)
			return conclusions[i].outcome;
	return OUTCOME_FAILED;
}

enum outcome outcome_decide(const struct outcome_facts *f)
{
	if (f->job && f->job->status == JOB_COMPLETED)
		return of_conclusion(f->job->conclusion);
	if (f->cause == HAPPENING_EXPIRED) {
		if (f->job || f->seen_busy)
			return OUTCOME_JOB_DEADLINE;
		return f->seen_online ? OUTCOME_NO_JOB : OUTCOME_NEVER_CONNECTED;
	}
	/* GitHub's lists lag behind its runners; a job that ended with the guest is listed as ended a moment later. */
	if (f->patient)
		return OUTCOME_UNKNOWN;
	if (f->job || f->seen_busy)
		return OUTCOME_GUEST_DIED;
	return f->clean_end ? OUTCOME_NO_JOB : OUTCOME_GUEST_DIED;
}
