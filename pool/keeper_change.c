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

/* Of a kept VM others want to know what ended its lease. */
static void tell(struct keeper_vm *v, enum vm_state from, enum vm_happening what, enum vm_happening cause, const char *lease,
		const char *reason)
{
	struct keeper_event event = {.head = MSG_HEAD(KEEPER_EVENT, struct keeper_event, 0)};
	int level = v->row.state == STATE_BROKEN ? LOG_ALERT : reason[0] ? LOG_NOTICE : LOG_INFO;
	const char *word = happening_to_string(what);
	char text[KEEPER_TEXT_MAX];

	(void)str_copy(event.name, v->row.name);
	(void)str_copy(event.lease, lease);
	event.generation = v->row.generation;
	event.from = (int32_t)from;
	event.to = (int32_t)v->row.state;
	event.what = (int32_t)cause;
	(void)str_copy(event.text, reason);
	log_vm(level, v->row.name, lease, "%s -> %s (%s)%s%s", state_to_string(from), state_to_string(v->row.state),
			word, reason[0] ? ": " : "", reason);
	if (v->row.state == STATE_BROKEN)
		log_vm(LOG_ALERT, v->row.name, lease, "is BROKEN after %d failures in a row, the last in step '%s': %s; it is "
				"kept out of the pool until 'boxery-host pool repair %s'%s%s", v->row.attempts, v->row.step,
				v->row.reason, v->row.name, v->row.evidence[0] ? "; its overlay is " : "",
				v->row.evidence);
	keeper_publish(v, &event);
	if (str_format(text, "%s is %s%s%s", v->row.name, state_to_string(v->row.state), reason[0] ? ": " : "", reason) < 0)
		(void)str_copy(text, state_to_string(v->row.state));
	keeper_progress(v, 0, text);
}

static void tell_cold_only(struct keeper_vm *v)
{
	log_vm(LOG_ALERT, v->row.name, NULL, "is started cold from now on, which takes longer: %d warm starts in a row have failed, the "
			"last in step %s; 'boxery-host pool repair %s' tries it warm again", v->row.warm_failures,
			v->row.warm_reason, v->row.name);
	keeper_record(v, "cold-only", v->row.warm_reason, 0);
}

void keeper_await(struct keeper_vm *v, struct client *c, enum vm_state awaited)
{
	v->awaiter = c->id;
	v->awaiter_seq = c->request.head.seq;
	v->awaited = awaited;
	c->awaits++;
	client_wait(c, CLIENT_VMS);
}

void keeper_await_end(struct keeper_vm *v, const struct error *e)
{
	struct client *c = client_find(v->k, v->awaiter);

	v->awaiter = 0;
	if (!c || c->wait != CLIENT_VMS || c->request.head.seq != v->awaiter_seq)
		return; /* gone, or one of its other VMs has answered it */
	if (e->code)
		client_reply_error(c, e);
	else if (--c->awaits == 0)
		client_reply_ok(c, keeper_find(v->k, c->request.name));
}

/* Answers whoever waited for this VM to come to rest. */
static void answer_awaiter(struct keeper_vm *v, const char *reason)
{
	struct error e = ERROR_INIT;

	if (!v->awaiter)
		return;
	if (v->row.state == STATE_BROKEN)
		(void)error_set(&e, EIO, "%s is BROKEN after %d failures in a row, the last in step '%s': %s", v->row.name,
				v->row.attempts, v->row.step, v->row.reason);
	else if (v->row.state == STATE_PLAIN)
		(void)error_set(&e, EIO, "%s did not join its pool: %s", v->row.name,
				reason[0] ? reason : "the capture came to nothing");
	else if (v->row.state != v->awaited)
		return;
	keeper_await_end(v, &e);
}

/* What was going on with the VM and does not fit its new state. */
static void drop_work(struct keeper_vm *v, const char *reason)
{
	if (v->row.state == STATE_DELIVERED || v->row.state == STATE_BUSY)
		return;
	delivery_end(v, reason);
	grant_end(v, reason);
	v->op = op_cancel(v->op);
	v->stopped = sd_event_source_disable_unref(v->stopped);
	keeper_retry(v, 0);
}

static void follow(struct keeper_vm *v, const struct state_change *change, enum vm_happening what, const char *reason)
{
	lease_watch_expiry(v);
	deadline_watch(v);
	if (change->closes_lease || !lease_runs(v))
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
	case EFFECT_HALT:
		effect_halt(v);
		break;
	case EFFECT_CAPTURE:
		effect_capture(v);
		break;
	case EFFECT_NONE:
	case EFFECT_WAKE:    /* so does keeper_lease.c */
	case EFFECT_DELIVER: /* keeper_deliver.c goes on after its own commit */
	case EFFECT_ALARM:   /* told above */
		break;
	}
	if (v->row.state == STATE_COLD)
		keeper_retry(v, keeper_backoff_ms(v->row.attempts));
	if (v->grow.count && what == HAPPENING_MAINTAINED)
		pool_grow(v);
	v->grow.count = 0;
	answer_awaiter(v, reason);
	if (v->row.removing && (v->row.state == STATE_COLD || v->row.state == STATE_BROKEN))
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

/* What ends a lease, when an admin has asked to keep its VM. A doubt is not kept: nobody knows what there would be to see. */
static bool is_kept_end(const struct keeper_vm *v, enum vm_happening what)
{
	return v->keep_ms && state_has_lease(v->row.state) &&
			(what == HAPPENING_RELEASE || what == HAPPENING_STOPPED || what == HAPPENING_DEADLINE ||
					what == HAPPENING_EXPIRED || what == HAPPENING_HOLDER_LOST);
}

/* A life is over: what was known of it is not known of the next. */
static void forget_life(struct keeper_vm *v)
{
	/* That its job runs says more about a delivery than any event. */
	if (v->row.state != STATE_DELIVERED) {
		v->unread = 0;
		v->unadopted = false;
	}
	if (state_has_lease(v->row.state) || v->row.state == STATE_READY)
		return;
	free(v->trouble);
	v->trouble = NULL;
	v->host_short = false;
}

int keeper_apply(struct keeper_vm *v, uint64_t generation, enum vm_happening what, const struct store_detail *detail,
		struct error *e)
{
	const enum vm_state from = v->row.state;
	struct store_detail d = detail ? *detail : (struct store_detail){0};
	char wished[VM_NAME_MAX], lease[LEASE_ID_MAX], overlay[sizeof(v->k->conf.image_dir) + VM_NAME_MAX + sizeof("/run/.qcow2")];
	struct state_change change = {0}, probe;
	struct vm_row row = {0};
	bool cold_only;
	int r;

	what = patch_happening(v, what);
	d.cause = what;
	d.warm = what == HAPPENING_START && starts_warm(v);
	if (is_kept_end(v, what)) {
		what = HAPPENING_KEEP;
		if (str_format(overlay, "%s/run/%s.qcow2", v->k->conf.image_dir, v->row.name) == 0)
			d.evidence = overlay;
	}
	/* Asked first, so that a happening that means nothing costs no transaction; the store asks the same table again. */
	if (!state_next(from, what, v->row.attempts, &probe) || (generation && generation != v->row.generation))
		return 0;
	(void)str_copy(lease, v->row.lease);
	(void)str_copy(wished, v->row.patch);
	KILL_POINT_OF("before", happening_to_string(what));
	/* What has been done before this stands before it. */
	if (v->op)
		op_record(v->op);
	r = what == HAPPENING_START ? catch_up(v, e) : 0;
	if (r == 0)
		r = store_apply(v->k->store, v->row.name, generation ? v->row.generation : 0, what, &d, &change, &row, e);
	if (r < 0) {
		log_vm(LOG_ERR, v->row.name, lease, "%s in state %s could not be recorded and will be tried again: %s",
				happening_to_string(what), state_to_string(from), e ? e->text : "");
		/* What was not written has happened all the same: it is nobody's before libvirt has confirmed this life again. */
		if (from == STATE_READY && what != HAPPENING_LEASE)
			v->confirmed = false;
		if (!v->op)
			keeper_retry(v, KEEPER_COMMIT_RETRY_MS);
		return r;
	}
	if (r == 0)
		return 0;
	KILL_POINT_OF("after", happening_to_string(what));
	cold_only = starts_cold_only(v);
	v->row = row;
	v->entered_us = clock_boot_us();
	drop_work(v, d.reason ? d.reason : happening_to_string(what));
	forget_life(v);
	lease_load(v);
	tell(v, from, what, d.cause, row.lease[0] ? row.lease : lease, d.reason ? d.reason : "");
	if (!cold_only && starts_cold_only(v))
		tell_cold_only(v);
	follow(v, &change, what, d.reason ? d.reason : "");
	patch_ended(v, wished);
	keeper_kick(v->k);
	return 1;
}

void keeper_note(struct keeper_vm *v, enum vm_happening what, const char *reason)
{
	struct store_detail d = {.reason = reason};
	struct error e = ERROR_INIT;

	(void)keeper_apply(v, v->row.generation, what, &d, &e); /* a failure is logged and tried again there */
}

void keeper_life_ended(struct keeper_vm *v, uint64_t generation, enum vm_happening what, const char *step, const char *reason)
{
	struct store_detail d = {.step = step, .reason = reason};
	const bool this_boot = str_equal(v->row.since_boot_id, v->k->boot_id);
	const uint64_t now = clock_boot_us(), ms = now > v->row.since_boot_us ? (now - v->row.since_boot_us) / 1000 : 0;
	char text[KEEPER_TEXT_MAX];
	struct error e = ERROR_INIT;

	if (v->row.state == STATE_LEASED && vm_sleeps(&v->row)) {
		if (generation == v->row.generation) {
			d.step = step ? step : "alive";
			wake_failed(v, v->op ? v->op->client : 0, HAPPENING_WAKE_FAILED, &d);
		}
		return;
	}
	if (v->row.state == STATE_STARTING && !step)
		d.step = "start";
	if (what == HAPPENING_STOPPED && v->row.state == STATE_READY && vm_sleeps(&v->row)) {
		/* Paused is not lived, however long: it ended before it began. */
		what = HAPPENING_SHORT_LIFE;
		d.step = step ? step : "standby";
	} else if (v->row.state == STATE_READY && this_boot && ms < KEEPER_SHORT_LIFE_MS) {
		what = HAPPENING_SHORT_LIFE;
		d.step = step ? step : "alive";
		if (str_format(text, "it was ready for only %" PRIu64 ".%" PRIu64 " s: %s", ms / 1000, ms % 1000 / 100,
				    reason) == 0)
			d.reason = text;
	}
	(void)keeper_apply(v, generation, what, &d, &e);
}

void keeper_unread(struct keeper_vm *v, const char *what, const struct error *why)
{
	log_vm(LOG_ERR, v->row.name, v->row.lease, "%s cannot be read: %s", what, why->text);
	v->unread++;
	keeper_retry(v, KEEPER_COMMIT_RETRY_MS);
}

static void settle_lease(struct keeper_vm *v)
{
	char reason[128];

	if (v->bound_client && !client_find(v->k, v->bound_client)) {
		keeper_note(v, HAPPENING_HOLDER_LOST, "its holder's connection ended");
	} else if (v->unread >= KEEPER_UNREAD_MAX) {
		(void)str_format(reason, "what the database has of its lease could not be read %u times in a row; keeper.log says why",
				v->unread);
		keeper_note(v, HAPPENING_DOUBT, reason);
	} else {
		if (v->unadopted)
			adopt_delivered(v);
		lease_watch_expiry(v);
	}
}

void keeper_settle(struct keeper_vm *v)
{
	if (v->op || v->retry || v->k->stopping)
		return;
	if (v->row.removing && v->row.state != STATE_RESETTING) {
		pool_remove_again(v);
		return;
	}
	switch (v->row.state) {
	case STATE_MAINTENANCE:
		if (!v->row.lease[0])
			keeper_note(v, HAPPENING_INTERRUPTED, "its operation got lost");
		else
			settle_lease(v);
		break;
	case STATE_STARTING:
	case STATE_ADDING:
		keeper_note(v, HAPPENING_INTERRUPTED, "its operation got lost");
		break;
	case STATE_RESETTING:
		effect_reset(v);
		break;
	case STATE_KEPT:
		effect_halt(v);
		break;
	case STATE_LEASED:
		if (vm_sleeps(&v->row))
			wake_failed(v, 0, HAPPENING_INTERRUPTED,
					&(const struct store_detail){.reason = "its operation got lost"});
		else
			settle_lease(v);
		break;
	case STATE_DELIVERED:
	case STATE_BUSY:
		settle_lease(v);
		break;
	case STATE_PLAIN:
	case STATE_COLD: /* the kick starts it */
	case STATE_READY:
	case STATE_BROKEN:
	case STATE_COUNT:
		break;
	}
}
