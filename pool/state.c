/*
 * The transition table. One entry per edge; what is not here does not happen. Read a line as: in this state,
 * on this happening, go there, do that, and treat the count of failures so.
 */
#include "pool/state.h"
#include "base/cleanup.h"
#include "base/table.h"
#include <assert.h>

static const char *const state_words[] = {
	[STATE_PLAIN] = "PLAIN",
	[STATE_COLD] = "COLD",
	[STATE_STARTING] = "STARTING",
	[STATE_READY] = "READY",
	[STATE_LEASED] = "LEASED",
	[STATE_DELIVERED] = "DELIVERED",
	[STATE_BUSY] = "BUSY",
	[STATE_RESETTING] = "RESETTING",
	[STATE_BROKEN] = "BROKEN",
	[STATE_MAINTENANCE] = "MAINTENANCE",
	[STATE_ADDING] = "ADDING",
	[STATE_KEPT] = "KEPT",
};
STRING_TABLE(state, enum vm_state, state_words, STATE_COUNT);

static const char *const happening_words[] = {
	[HAPPENING_START] = "START",
	[HAPPENING_STARTED] = "STARTED",
	[HAPPENING_START_FAILED] = "START_FAILED",
	[HAPPENING_LEASE] = "LEASE",
	[HAPPENING_DELIVER] = "DELIVER",
	[HAPPENING_JOB_SEEN] = "JOB_SEEN",
	[HAPPENING_RELEASE] = "RELEASE",
	[HAPPENING_STOPPED] = "STOPPED",
	[HAPPENING_DEADLINE] = "DEADLINE",
	[HAPPENING_EXPIRED] = "EXPIRED",
	[HAPPENING_HOLDER_LOST] = "HOLDER_LOST",
	[HAPPENING_DOUBT] = "DOUBT",
	[HAPPENING_RESET_DONE] = "RESET_DONE",
	[HAPPENING_RESET_FAILED] = "RESET_FAILED",
	[HAPPENING_REPAIR] = "REPAIR",
	[HAPPENING_ADD] = "ADD",
	[HAPPENING_MAINTAIN] = "MAINTAIN",
	[HAPPENING_MAINTAINED] = "MAINTAINED",
	[HAPPENING_MAINTAIN_FAILED] = "MAINTAIN_FAILED",
	[HAPPENING_INTERRUPTED] = "INTERRUPTED",
	[HAPPENING_KEEP] = "KEEP",
	[HAPPENING_INSPECT] = "INSPECT",
	[HAPPENING_SHORT_LIFE] = "SHORT_LIFE",
	[HAPPENING_WAKE_FAILED] = "WAKE_FAILED",
};
STRING_TABLE(happening, enum vm_happening, happening_words, HAPPENING_COUNT);

enum count {
	COUNT_KEEP,
	COUNT_CLEAR,
	COUNT_FAILURE, /* + 1, and on */
	COUNT_VERDICT, /* as it is, but BROKEN instead when it has reached the limit */
	COUNT_FAILURE_VERDICT,
};

struct edge {
	bool exists;
	enum vm_state to;
	enum state_effect effect;
	enum count count;
	bool new_generation, opens_lease, closes_lease;
};

#define GO(to_, effect_, ...)                                                                                \
	{                                                                                                    \
		.exists = true, .to = STATE_##to_, .effect = EFFECT_##effect_, __VA_ARGS__                   \
	}

/* What ends a lease, in each of its three states. */
#define LEASE_ENDS(state_)                                                                                   \
	[STATE_##state_][HAPPENING_RELEASE] = GO(RESETTING, RESET),                                          \
	[STATE_##state_][HAPPENING_STOPPED] = GO(RESETTING, RESET),                                          \
	[STATE_##state_][HAPPENING_DEADLINE] = GO(RESETTING, RESET),                                         \
	[STATE_##state_][HAPPENING_EXPIRED] = GO(RESETTING, RESET),                                          \
	[STATE_##state_][HAPPENING_HOLDER_LOST] = GO(RESETTING, RESET),                                      \
	[STATE_##state_][HAPPENING_DOUBT] = GO(RESETTING, RESET),                                            \
	[STATE_##state_][HAPPENING_KEEP] = GO(KEPT, HALT)

static const struct edge edges[][HAPPENING_COUNT] = {
	[STATE_PLAIN][HAPPENING_START] = GO(PLAIN, START, .new_generation = true),
	[STATE_PLAIN][HAPPENING_ADD] = GO(ADDING, CAPTURE),

	[STATE_ADDING][HAPPENING_MAINTAINED] = GO(RESETTING, RESET, .count = COUNT_CLEAR),
	[STATE_ADDING][HAPPENING_MAINTAIN_FAILED] = GO(PLAIN, NONE),
	[STATE_ADDING][HAPPENING_DEADLINE] = GO(PLAIN, NONE),
	[STATE_ADDING][HAPPENING_DOUBT] = GO(PLAIN, NONE),
	[STATE_ADDING][HAPPENING_INTERRUPTED] = GO(PLAIN, NONE),

	[STATE_COLD][HAPPENING_START] = GO(STARTING, START, .new_generation = true),
	[STATE_COLD][HAPPENING_DOUBT] = GO(RESETTING, RESET), /* a domain where none should be */
	[STATE_COLD][HAPPENING_MAINTAIN] = GO(MAINTENANCE, CAPTURE),

	[STATE_STARTING][HAPPENING_STARTED] = GO(READY, NONE, .count = COUNT_CLEAR),
	[STATE_STARTING][HAPPENING_START_FAILED] = GO(RESETTING, RESET, .count = COUNT_FAILURE),
	[STATE_STARTING][HAPPENING_STOPPED] = GO(RESETTING, RESET, .count = COUNT_FAILURE),
	[STATE_STARTING][HAPPENING_DEADLINE] = GO(RESETTING, RESET, .count = COUNT_FAILURE),
	/* Counted, or a doubt that comes back with every start would go round for ever. */
	[STATE_STARTING][HAPPENING_DOUBT] = GO(RESETTING, RESET, .count = COUNT_FAILURE),
	[STATE_STARTING][HAPPENING_INTERRUPTED] = GO(RESETTING, RESET),
	/* Of a patch that is being tried: the image's failure, not the VM's. */
	[STATE_STARTING][HAPPENING_MAINTAIN_FAILED] = GO(RESETTING, RESET),

	[STATE_READY][HAPPENING_LEASE] = GO(LEASED, WAKE, .opens_lease = true),
	[STATE_READY][HAPPENING_STOPPED] = GO(RESETTING, RESET),
	[STATE_READY][HAPPENING_SHORT_LIFE] = GO(RESETTING, RESET, .count = COUNT_FAILURE),
	[STATE_READY][HAPPENING_DEADLINE] = GO(RESETTING, RESET),
	[STATE_READY][HAPPENING_DOUBT] = GO(RESETTING, RESET),
	[STATE_READY][HAPPENING_MAINTAIN] = GO(MAINTENANCE, CAPTURE),

	[STATE_LEASED][HAPPENING_DELIVER] = GO(DELIVERED, DELIVER),
	[STATE_LEASED][HAPPENING_WAKE_FAILED] = GO(RESETTING, RESET, .count = COUNT_FAILURE),
	[STATE_LEASED][HAPPENING_INTERRUPTED] =
		GO(RESETTING, RESET), /* got nothing; a life under delivery is adopted */
	LEASE_ENDS(LEASED),

	[STATE_DELIVERED][HAPPENING_JOB_SEEN] = GO(BUSY, NONE),
	LEASE_ENDS(DELIVERED),

	LEASE_ENDS(BUSY),

	[STATE_RESETTING][HAPPENING_RESET_DONE] =
		GO(COLD, NONE, .count = COUNT_VERDICT, .closes_lease = true),
	[STATE_RESETTING][HAPPENING_RESET_FAILED] = GO(RESETTING, RESET, .count = COUNT_FAILURE_VERDICT),
	[STATE_RESETTING][HAPPENING_DEADLINE] = GO(RESETTING, RESET, .count = COUNT_FAILURE_VERDICT),
	[STATE_RESETTING][HAPPENING_INTERRUPTED] = GO(RESETTING, RESET),

	[STATE_BROKEN][HAPPENING_REPAIR] = GO(RESETTING, RESET, .count = COUNT_CLEAR),
	/* A generation of its own, because a life has one lease and this VM's last life may have had it. */
	[STATE_BROKEN][HAPPENING_INSPECT] = GO(MAINTENANCE, NONE, .new_generation = true, .opens_lease = true),

	/* STOPPED is absent: capturing stops the domain. */
	[STATE_MAINTENANCE][HAPPENING_MAINTAINED] = GO(RESETTING, RESET),
	[STATE_MAINTENANCE][HAPPENING_MAINTAIN_FAILED] = GO(RESETTING, RESET),
	[STATE_MAINTENANCE][HAPPENING_DEADLINE] = GO(RESETTING, RESET),
	[STATE_MAINTENANCE][HAPPENING_DOUBT] = GO(RESETTING, RESET),
	[STATE_MAINTENANCE][HAPPENING_INTERRUPTED] = GO(RESETTING, RESET),
	/* The ends of an inspection. Somebody has looked: it gets its attempts anew, as by a repair. */
	[STATE_MAINTENANCE][HAPPENING_RELEASE] = GO(RESETTING, RESET, .count = COUNT_CLEAR),
	[STATE_MAINTENANCE][HAPPENING_EXPIRED] = GO(RESETTING, RESET, .count = COUNT_CLEAR),
	[STATE_MAINTENANCE][HAPPENING_HOLDER_LOST] = GO(RESETTING, RESET, .count = COUNT_CLEAR),

	[STATE_KEPT][HAPPENING_REPAIR] = GO(RESETTING, RESET),
	[STATE_KEPT][HAPPENING_RELEASE] = GO(RESETTING, RESET),
	[STATE_KEPT][HAPPENING_DEADLINE] = GO(RESETTING, RESET),
	[STATE_KEPT][HAPPENING_DOUBT] = GO(RESETTING, RESET),
	[STATE_KEPT][HAPPENING_INTERRUPTED] = GO(KEPT, HALT),
	/* It could not be halted: a guest that has to go matters more than what it leaves. */
	[STATE_KEPT][HAPPENING_RESET_FAILED] = GO(RESETTING, RESET, .count = COUNT_FAILURE),
};
/* Whoever adds a state or a happening has to come here and to the expectations in tests/unit/test_state.c. */
_Static_assert(ARRAY_SIZE(edges) == STATE_COUNT, "edges: a state without a row");
_Static_assert(STATE_COUNT == 12 && HAPPENING_COUNT == 24, "edges: go through the table for the new value");

bool state_next(enum vm_state from, enum vm_happening what, int32_t attempts, struct state_change *ret)
{
	assert((unsigned)from < STATE_COUNT && (unsigned)what < HAPPENING_COUNT && attempts >= 0);
	const struct edge *d = &edges[from][what];
	if (!d->exists)
		return false;

	bool fails = d->count == COUNT_FAILURE || d->count == COUNT_FAILURE_VERDICT;
	bool verdict = d->count == COUNT_VERDICT || d->count == COUNT_FAILURE_VERDICT;
	int32_t now = d->count == COUNT_CLEAR ? 0 : attempts;
	if (fails && now < INT32_MAX)
		now++;
	if (verdict && now >= STATE_ATTEMPTS_MAX)
		*ret = (struct state_change){
			.to = STATE_BROKEN, .effect = EFFECT_ALARM, .attempts = now, .closes_lease = true};
	else
		*ret = (struct state_change){.to = d->to,
			.effect = d->effect,
			.attempts = now,
			.new_generation = d->new_generation,
			.opens_lease = d->opens_lease,
			.closes_lease = d->closes_lease};
	return true;
}

bool state_has_lease(enum vm_state s)
{
	return s == STATE_LEASED || s == STATE_DELIVERED || s == STATE_BUSY;
}
