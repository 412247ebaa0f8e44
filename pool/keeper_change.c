/*
 * Changes of state. keeper_apply() is the only caller of store_apply(): the commit first, then memory, then the world is
 * told, then the effect is begun. When the commit fails nothing has happened: the database and this process still agree,
 * and keeper_settle() tries again later from whatever the state is.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

uint64_t keeper_backoff_ms(int32_t attempts)
{
	if (attempts <= 0)
		return 0;
	return attempts == 1 ? KEEPER_BACKOFF_1_MS : KEEPER_BACKOFF_2_MS;
}

static int on_retry(sd_event_source *s, uint64_t us, void *userdata)
{
	struct keeper_vm *v = userdata;

	v->retry = sd_event_source_disable_unref(v->retry);
	keeper_settle(v);
	keeper_kick(v->k);
	return 0;
}

void keeper_retry(struct keeper_vm *v, uint64_t in_ms)
{
	struct error e = ERROR_INIT;

	if (in_ms == 0)
		v->retry = sd_event_source_disable_unref(v->retry);
	else if (loop_timer(v->k->event, &v->retry, in_ms, on_retry, v, &e) < 0)
		log_vm(LOG_ERR, v->row.name, NULL, "%s", e.text);
}

void keeper_record(struct keeper_vm *v, const char *kind, const char *text, uint64_t took_us)
{
	struct error e = ERROR_INIT;

	if (store_event(v->k->store, v->row.name, v->row.lease, v->row.generation, kind, text, took_us, &e) < 0)
		log_vm(LOG_ERR, v->row.name, v->row.lease, "cannot record an event: %s", e.text);
}

/* How long the next start has to wait. */
static uint64_t start_delay_ms(const struct keeper_vm *v)
{
	uint64_t ms = KEEPER_BACKOFF_1_MS;

	if (v->row.attempts > 0)
		return keeper_backoff_ms(v->row.attempts);
	if (v->short_lives == 0)
		return 0;
	for (unsigned i = 1; i < v->short_lives && ms < KEEPER_SHORT_LIFE_BACKOFF_MAX_MS; i++)
		ms *= 4;
	return ms < KEEPER_SHORT_LIFE_BACKOFF_MAX_MS ? ms : KEEPER_SHORT_LIFE_BACKOFF_MAX_MS;
}

/* A clean VM that ends by itself is no failure the table counts, but starting it at once for ever helps nobody. */
static void count_short_life(struct keeper_vm *v, enum vm_state from, enum vm_happening what, uint64_t lived_us)
{
	if (what == HAPPENING_LEASE)
		v->short_lives = 0;
	if (from != STATE_READY || what != HAPPENING_STOPPED)
		return;
	v->short_lives = lived_us < (uint64_t)KEEPER_SHORT_LIFE_MS * 1000 ? v->short_lives + 1 : 0;
	if (v->short_lives > 1)
		log_vm(LOG_WARNING, v->row.name, NULL, "was clean and has stopped by itself %u times in a row; the next start "
				"waits %" PRIu64 " s", v->short_lives, start_delay_ms(v) / 1000);
}

static void tell(struct keeper_vm *v, enum vm_state from, enum vm_happening what, const char *lease, const char *reason)
{
	struct keeper_event event = {.head = MSG_HEAD(KEEPER_EVENT, struct keeper_event, 0)};
	int level = v->row.state == STATE_BROKEN ? LOG_ALERT : reason[0] ? LOG_NOTICE : LOG_INFO;
	char text[KEEPER_TEXT_MAX];

	(void)str_copy(event.name, v->row.name);
	(void)str_copy(event.lease, lease);
	event.generation = v->row.generation;
	event.from = (int32_t)from;
	event.to = (int32_t)v->row.state;
	event.what = (int32_t)what;
	(void)str_copy(event.text, reason);
	log_vm(level, v->row.name, lease, "%s -> %s (%s)%s%s", state_to_string(from), state_to_string(v->row.state),
			happening_to_string(what), reason[0] ? ": " : "", reason);
	if (v->row.state == STATE_BROKEN)
		log_vm(LOG_ALERT, v->row.name, lease, "is BROKEN after %d failures in a row, the last in step '%s': %s; it is "
				"kept out of the pool until 'boxery-host pool repair %s'", v->row.attempts, v->row.step,
				v->row.reason, v->row.name);
	keeper_publish(v, &event);
	if (str_format(text, "%s is %s%s%s", v->row.name, state_to_string(v->row.state), reason[0] ? ": " : "", reason) < 0)
		(void)str_copy(text, state_to_string(v->row.state));
	keeper_progress(v, 0, text);
}

/* Answers whoever waited for this VM to come to rest in this state. */
static void answer_waiters(struct keeper_vm *v, const char *reason)
{
	struct error e = ERROR_INIT;
	struct client *c;

	if (v->row.state == STATE_BROKEN)
		(void)error_set(&e, EIO, "%s is BROKEN after %d failures in a row, the last in step '%s': %s", v->row.name,
				v->row.attempts, v->row.step, v->row.reason);
	else if (v->row.state == STATE_PLAIN)
		(void)error_set(&e, EIO, "%s did not join its pool: %s", v->row.name,
				reason[0] ? reason : "the capture came to nothing");
	TAILQ_FOREACH(c, &v->k->clients, link) {
		if ((c->wait != CLIENT_COLD && c->wait != CLIENT_READY) || !str_equal(c->request.name, v->row.name))
			continue;
		if (e.code)
			client_reply_error(c, &e);
		else if (v->row.state == (c->wait == CLIENT_COLD ? STATE_COLD : STATE_READY))
			client_reply_ok(c, v);
	}
}

/* What was going on with the VM and does not fit its new state. */
static void drop_work(struct keeper_vm *v, const char *reason)
{
	if (v->row.state == STATE_DELIVERED || v->row.state == STATE_BUSY)
		return;
	delivery_end(v, reason);
	v->op = op_cancel(v->op);
	keeper_retry(v, 0);
}

static void follow(struct keeper_vm *v, const struct state_change *change, enum vm_happening what, const char *reason)
{
	lease_watch_expiry(v);
	if (change->closes_lease || !state_has_lease(v->row.state))
		v->bound_client = 0;
	switch (change->effect) {
	case EFFECT_START:
		effect_start(v);
		break;
	case EFFECT_RESET:
		/* The first reset is at once, whatever failed before; one that failed itself waits. */
		if (what == HAPPENING_RESET_FAILED || what == HAPPENING_DEADLINE)
			keeper_retry(v, keeper_backoff_ms(v->row.attempts));
		if (!v->retry)
			effect_reset(v);
		break;
	case EFFECT_CAPTURE:
		effect_capture(v);
		break;
	case EFFECT_NONE:
	case EFFECT_DELIVER: /* keeper_deliver.c goes on after its own commit */
	case EFFECT_ALARM:   /* told above */
		break;
	}
	if (v->row.state == STATE_COLD)
		keeper_retry(v, start_delay_ms(v));
	answer_waiters(v, reason);
	if (v->removing && (v->row.state == STATE_COLD || v->row.state == STATE_BROKEN))
		pool_removed_soon(v);
}

/*
 * A life newer than the database knows was listed: an older copy of it was put back. Its number must not be given out again,
 * and boxery-vm would refuse it.
 */
static int catch_up(struct keeper_vm *v, struct error *e)
{
	struct vm_row row;
	int r;

	if (v->seen_generation <= v->row.generation)
		return 0;
	log_vm(LOG_WARNING, v->row.name, NULL, "libvirt knows generation %" PRIu64 ", the database only %" PRIu64
			"; was an older copy of it put back?", v->seen_generation, v->row.generation);
	r = store_vm_raise_generation(v->k->store, v->row.name, v->seen_generation, e);
	if (r == 0)
		r = store_vm_get(v->k->store, v->row.name, &row, e);
	if (r == 0)
		v->row = row;
	return r;
}

int keeper_apply(struct keeper_vm *v, uint64_t generation, enum vm_happening what, const struct store_detail *d,
		struct error *e)
{
	static const struct store_detail nothing;
	const enum vm_state from = v->row.state;
	char lease[LEASE_ID_MAX];
	struct state_change change, probe;
	struct vm_row row;
	uint64_t lived_us = clock_boot_us() - v->entered_us;
	int r;

	d = d ? d : &nothing;
	/* Asked first, so that a happening that means nothing costs no transaction; the store asks the same table again. */
	if (!state_next(from, what, v->row.attempts, &probe) || (generation && generation != v->row.generation))
		return 0;
	(void)str_copy(lease, v->row.lease);
	KILL_POINT_OF("before", happening_to_string(what));
	r = what == HAPPENING_START ? catch_up(v, e) : 0;
	if (r == 0)
		r = store_apply(v->k->store, v->row.name, generation ? v->row.generation : 0, what, d, &change, &row, e);
	if (r < 0) {
		log_vm(LOG_ERR, v->row.name, lease, "%s in state %s could not be recorded and will be tried again: %s",
				happening_to_string(what), state_to_string(from), e ? e->text : "");
		if (!v->op)
			keeper_retry(v, KEEPER_COMMIT_RETRY_MS);
		return r;
	}
	if (r == 0)
		return 0;
	KILL_POINT_OF("after", happening_to_string(what));
	v->row = row;
	v->entered_us = clock_boot_us();
	drop_work(v, d->reason ? d->reason : happening_to_string(what));
	count_short_life(v, from, what, lived_us);
	tell(v, from, what, row.lease[0] ? row.lease : lease, d->reason ? d->reason : "");
	follow(v, &change, what, d->reason ? d->reason : "");
	keeper_kick(v->k);
	return 1;
}

void keeper_note(struct keeper_vm *v, enum vm_happening what, const char *reason)
{
	struct store_detail d = {.reason = reason};
	struct error e = ERROR_INIT;

	(void)keeper_apply(v, v->row.generation, what, &d, &e); /* a failure is logged and tried again there */
}

void keeper_settle(struct keeper_vm *v)
{
	if (v->op || v->retry || v->k->stopping)
		return;
	switch (v->row.state) {
	case STATE_STARTING:
	case STATE_ADDING:
	case STATE_MAINTENANCE:
		keeper_note(v, HAPPENING_INTERRUPTED, "its operation got lost");
		break;
	case STATE_RESETTING:
		effect_reset(v);
		break;
	case STATE_LEASED:
	case STATE_DELIVERED:
	case STATE_BUSY:
		if (v->bound_client && !client_find(v->k, v->bound_client))
			keeper_note(v, HAPPENING_HOLDER_LOST, "its holder's connection ended");
		else
			lease_watch_expiry(v);
		break;
	case STATE_PLAIN:
	case STATE_COLD: /* the kick starts it */
	case STATE_READY:
	case STATE_BROKEN:
	case STATE_COUNT:
		break;
	}
}
