/*
 * How long a state may last. Nearly always something else ends it first: the operation's own deadline, which also says what
 * hung. This one is for what would else have no end: a VM whose operation was lost, a runner's lease that nobody fills, a
 * kept VM that everybody has forgotten, a lease whose holder went down together with the keeper before this one.
 *
 * The timer is armed by every change. What survives a keeper counts from the row (KEPT, LEASED), what a new keeper does over
 * counts from then.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>
#include <inttypes.h>

static bool for_a_runner(const struct keeper_vm *v)
{
	return str_equal(v->holder, HOLDER_SERVICE) || str_equal(v->holder, HOLDER_ONCE);
}

/* Its holder had a connection to the keeper before this one, and none to this one yet. */
bool deadline_is_orphan(const struct keeper_vm *v)
{
	const enum vm_state state = v->row.state;

	if (!v->bound || v->bound_client)
		return false;
	/* Awake: its holder has been answered, and may be at work without anything having been delivered. */
	if (state == STATE_LEASED)
		return !vm_sleeps(&v->row) && !for_a_runner(v);
	return state == STATE_DELIVERED || state == STATE_BUSY || (state == STATE_MAINTENANCE && v->row.lease[0]);
}

/* What the state may last in all, 0: without an end of its own; *ret_since: since when. */
static uint64_t lasts_ms(const struct keeper_vm *v, uint64_t *ret_since)
{
	*ret_since = v->entered_us;
	switch (v->row.state) {
	case STATE_STARTING:
		return start_timeout_ms(v) + KEEPER_START_GRACE_MS + KEEPER_STARTING_GRACE_MS;
	case STATE_RESETTING:
		return KEEPER_RESETTING_MS;
	case STATE_ADDING:
		return KEEPER_CAPTURING_MS;
	case STATE_MAINTENANCE:
		if (v->row.lease[0])
			return deadline_is_orphan(v) ? KEEPER_REJOIN_MS : 0;
		return KEEPER_CAPTURING_MS;
	case STATE_LEASED:
		if (!for_a_runner(v))
			return deadline_is_orphan(v) ? KEEPER_REJOIN_MS : 0;
		*ret_since = v->row.since_boot_us;
		return KEEPER_LEASED_MS;
	case STATE_KEPT:
		*ret_since = v->row.since_boot_us;
		return v->keep_ms;
	case STATE_DELIVERED:
	case STATE_BUSY:
		return deadline_is_orphan(v) ? KEEPER_REJOIN_MS : 0;
	case STATE_PLAIN:
	case STATE_COLD:
	case STATE_READY:
	case STATE_BROKEN:
	case STATE_COUNT:
		break;
	}
	return 0;
}

static uint64_t left_ms(const struct keeper_vm *v, uint64_t ms, uint64_t since_us)
{
	uint64_t now = clock_boot_us(), spent = now > since_us ? (now - since_us) / 1000 : 0;

	/* Of another boot the clock says nothing; then it counts anew. */
	if (!str_equal(v->row.since_boot_id, v->k->boot_id))
		spent = 0;
	return spent < ms ? ms - spent : 0;
}

int64_t deadline_left_ms(const struct keeper_vm *v)
{
	return v->row.state == STATE_KEPT ? (int64_t)left_ms(v, v->keep_ms, v->row.since_boot_us) : 0;
}

static const char *overdue(const struct keeper_vm *v)
{
	if (v->row.state == STATE_KEPT)
		return "the time it was to be kept is over";
	if (deadline_is_orphan(v))
		return "its holder has not come back since the keeper was started";
	if (v->row.state == STATE_LEASED)
		return "nothing was delivered to it";
	return "it takes too long";
}

static int on_deadline(sd_event_source *s, uint64_t us, void *userdata)
{
	struct keeper_vm *v = userdata;
	const enum vm_state state = v->row.state;
	const uint64_t entered_us = v->entered_us;
	uint64_t since, again;
	struct error e = ERROR_INIT;

	v->deadline = sd_event_source_disable_unref(v->deadline);
	again = KEEPER_COMMIT_RETRY_MS;
	if (v->k->stopping)
		return 0;
	if (v->op && !v->op->running)
		again = lasts_ms(v, &since); /* it waits for others */
	else
		keeper_note(v, deadline_is_orphan(v) ? HAPPENING_HOLDER_LOST : HAPPENING_DEADLINE, overdue(v));
	if (v->row.state == state && v->entered_us == entered_us &&
			loop_timer(v->k->event, &v->deadline, again, on_deadline, v, &e) < 0)
		log_vm(LOG_ERR, v->row.name, NULL, "%s", e.text);
	return 0;
}

void deadline_watch(struct keeper_vm *v)
{
	uint64_t since, ms = lasts_ms(v, &since);
	struct error e = ERROR_INIT;

	v->deadline = sd_event_source_disable_unref(v->deadline);
	if (ms && loop_timer(v->k->event, &v->deadline, left_ms(v, ms, since), on_deadline, v, &e) < 0)
		log_vm(LOG_ERR, v->row.name, NULL, "cannot watch the end of its state: %s", e.text);
}
