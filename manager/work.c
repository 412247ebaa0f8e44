#include "manager/work.h"
#include "base/table.h"
#include <assert.h>

static const char *const state_names[] = {
	[WORK_LEASING] = "leasing",
	[WORK_PLANNING] = "planning",
	[WORK_MINTING] = "minting",
	[WORK_RECORDING] = "recording",
	[WORK_DELIVERING] = "delivering",
	[WORK_WAITING] = "waiting",
	[WORK_IDLE] = "idle",
	[WORK_BUSY] = "busy",
	[WORK_DELETING] = "deleting",
	[WORK_RELEASING] = "releasing",
	[WORK_ASKING] = "asking",
	[WORK_NAMING] = "naming",
	[WORK_SPENT] = "spent",
	[WORK_LOOKING] = "looking",
	[WORK_CLEARING] = "clearing",
	[WORK_FORGETTING] = "forgetting",
	[WORK_PAUSED] = "paused",
	[WORK_DONE] = "done",
};
_Static_assert(ARRAY_SIZE(state_names) == WORK_STATE_COUNT, "table and enum differ");

static const char *const event_names[] = {
	[WORK_EV_LEASED] = "leased",
	[WORK_EV_REFUSED] = "refused",
	[WORK_EV_PLANNED] = "planned",
	[WORK_EV_MINTED] = "minted",
	[WORK_EV_MINT_FAILED] = "mint failed",
	[WORK_EV_RECORDED] = "recorded",
	[WORK_EV_DELIVERED] = "delivered",
	[WORK_EV_DELIVER_FAILED] = "delivery failed",
	[WORK_EV_ONLINE] = "online",
	[WORK_EV_BUSY] = "busy",
	[WORK_EV_OVERDUE] = "overdue",
	[WORK_EV_DELETED] = "deleted",
	[WORK_EV_UNKNOWN] = "unknown",
	[WORK_EV_RELEASED] = "released",
	[WORK_EV_ENDED] = "ended",
	[WORK_EV_STOP] = "stop",
	[WORK_EV_KEEPER_ERROR] = "keeper error",
	[WORK_EV_DECIDED] = "decided",
	[WORK_EV_AGAIN] = "again",
	[WORK_EV_NAMED] = "named",
	[WORK_EV_FOUND] = "found",
	[WORK_EV_ABSENT] = "absent",
	[WORK_EV_FORGOTTEN] = "forgotten",
	[WORK_EV_DUE] = "due",
};
_Static_assert(ARRAY_SIZE(event_names) == WORK_EVENT_COUNT, "table and enum differ");

const char *work_state_to_string(enum work_state v)
{
	return (unsigned)v < WORK_STATE_COUNT ? state_names[v] : NULL;
}

const char *work_event_to_string(enum work_event v)
{
	return (unsigned)v < WORK_EVENT_COUNT ? event_names[v] : NULL;
}

/* Stands for work_close() in the table. */
#define CLOSE WORK_STATE_COUNT

static const struct edge {
	enum work_state from;
	enum work_event event;
	enum work_state to;
} edges[] = {
	{WORK_LEASING, WORK_EV_LEASED, WORK_PLANNING},
	{WORK_LEASING, WORK_EV_REFUSED, WORK_DONE},
	/* If the keeper took the lease all the same, LEASES will show one that nobody here knows. */
	{WORK_LEASING, WORK_EV_KEEPER_ERROR, WORK_DONE},

	{WORK_PLANNING, WORK_EV_PLANNED, WORK_MINTING},
	{WORK_PLANNING, WORK_EV_KEEPER_ERROR, WORK_RELEASING},
	{WORK_PLANNING, WORK_EV_STOP, WORK_RELEASING},
	{WORK_PLANNING, WORK_EV_ENDED, CLOSE},

	{WORK_MINTING, WORK_EV_MINTED, WORK_RECORDING},
	{WORK_MINTING, WORK_EV_MINT_FAILED, WORK_RELEASING},
	{WORK_MINTING, WORK_EV_STOP, WORK_RELEASING},
	{WORK_MINTING, WORK_EV_ENDED, CLOSE},

	{WORK_RECORDING, WORK_EV_RECORDED, WORK_DELIVERING},
	{WORK_RECORDING, WORK_EV_KEEPER_ERROR, WORK_RELEASING},
	{WORK_RECORDING, WORK_EV_STOP, WORK_RELEASING},
	{WORK_RECORDING, WORK_EV_ENDED, CLOSE},

	{WORK_DELIVERING, WORK_EV_DELIVERED, WORK_WAITING},
	{WORK_DELIVERING, WORK_EV_DELIVER_FAILED, WORK_RELEASING},
	{WORK_DELIVERING, WORK_EV_ENDED, CLOSE},

	{WORK_WAITING, WORK_EV_ONLINE, WORK_IDLE},
	{WORK_WAITING, WORK_EV_BUSY, WORK_BUSY},
	{WORK_WAITING, WORK_EV_OVERDUE, WORK_DELETING},
	{WORK_WAITING, WORK_EV_ENDED, CLOSE},

	{WORK_IDLE, WORK_EV_BUSY, WORK_BUSY},
	{WORK_IDLE, WORK_EV_OVERDUE, WORK_DELETING},
	{WORK_IDLE, WORK_EV_ENDED, CLOSE},

	{WORK_BUSY, WORK_EV_ONLINE, WORK_IDLE},
	{WORK_BUSY, WORK_EV_OVERDUE, WORK_DELETING},
	{WORK_BUSY, WORK_EV_ENDED, CLOSE},

	{WORK_DELETING, WORK_EV_DELETED, WORK_RELEASING},
	{WORK_DELETING, WORK_EV_BUSY, WORK_BUSY},
	{WORK_DELETING, WORK_EV_DUE, WORK_DELETING},
	{WORK_DELETING, WORK_EV_ENDED, CLOSE},

	{WORK_RELEASING, WORK_EV_RELEASED, CLOSE},
	{WORK_RELEASING, WORK_EV_ENDED, CLOSE},
	{WORK_RELEASING, WORK_EV_DUE, WORK_RELEASING},

	{WORK_ASKING, WORK_EV_DECIDED, CLOSE},
	{WORK_ASKING, WORK_EV_AGAIN, WORK_PAUSED},
	{WORK_ASKING, WORK_EV_UNKNOWN, WORK_PAUSED},

	{WORK_NAMING, WORK_EV_NAMED, CLOSE},
	{WORK_NAMING, WORK_EV_KEEPER_ERROR, WORK_PAUSED},

	{WORK_SPENT, WORK_EV_ABSENT, WORK_FORGETTING},
	{WORK_SPENT, WORK_EV_DUE, CLOSE},

	{WORK_LOOKING, WORK_EV_FOUND, WORK_CLEARING},
	{WORK_LOOKING, WORK_EV_ABSENT, WORK_FORGETTING},
	{WORK_LOOKING, WORK_EV_AGAIN, WORK_PAUSED},
	{WORK_LOOKING, WORK_EV_UNKNOWN, WORK_PAUSED},

	{WORK_CLEARING, WORK_EV_DELETED, WORK_FORGETTING},
	{WORK_CLEARING, WORK_EV_BUSY, WORK_PAUSED},
	{WORK_CLEARING, WORK_EV_UNKNOWN, WORK_PAUSED},

	{WORK_FORGETTING, WORK_EV_FORGOTTEN, WORK_DONE},
	{WORK_FORGETTING, WORK_EV_KEEPER_ERROR, WORK_PAUSED},

	{WORK_PAUSED, WORK_EV_DUE, CLOSE},
};

enum work_state work_close(struct work *w)
{
	if (w->outcome == OUTCOME_UNKNOWN) {
		if (w->delivered)
			return WORK_ASKING;
		w->outcome = OUTCOME_START_FAILED;
	}
	if (!w->outcome_stored)
		return WORK_NAMING;
	if (w->registration == REGISTRATION_NONE || w->registration == REGISTRATION_GONE)
		return WORK_DONE;
	if (w->deleted)
		return WORK_FORGETTING;
	if (!w->runner_id)
		return WORK_LOOKING;
	return w->spent ? WORK_SPENT : WORK_CLEARING;
}

bool work_step(struct work *w, enum work_event event, uint64_t now_ms)
{
	for (size_t i = 0; i < ARRAY_SIZE(edges); i++) {
		if (edges[i].from != w->state || edges[i].event != event)
			continue;
		w->spent &= w->state != WORK_SPENT; /* waited for once */
		w->state = edges[i].to == CLOSE ? work_close(w) : edges[i].to;
		w->since_ms = now_ms;
		if (!w->first_ms[w->state])
			w->first_ms[w->state] = now_ms;
		w->due_ms = 0;
		return true;
	}
	return false;
}

bool work_is_open(enum work_state s)
{
	return s <= WORK_RELEASING;
}

bool work_is_watched(enum work_state s)
{
	return s == WORK_WAITING || s == WORK_IDLE || s == WORK_BUSY;
}

bool work_is_unfilled(const struct work *w)
{
	return w->state <= WORK_IDLE && !w->took_job;
}

bool work_overdue(const struct work *w, const struct runners_entry *conf, uint64_t now_ms)
{
	assert(work_is_watched(w->state));
	if (w->gone_ms)
		return now_ms - w->gone_ms >= WORK_GONE_GRACE_MS;
	if (w->offline_ms && now_ms - w->offline_ms >= WORK_OFFLINE_GRACE_MS)
		return true;
	if (w->state == WORK_WAITING)
		return now_ms - w->since_ms >= conf->start_timeout_ms;
	return w->state == WORK_IDLE && now_ms - w->since_ms >= conf->idle_timeout_ms;
}

enum outcome work_overdue_outcome(const struct work *w)
{
	if (w->took_job)
		return OUTCOME_UNKNOWN; /* GitHub knows how it ended */
	return w->seen_online ? OUTCOME_NO_JOB : OUTCOME_NEVER_CONNECTED;
}
