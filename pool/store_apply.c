/* The one way to change a VM's state: everything that belongs to one edge, in one transaction. */
#include "pool/store_internal.h"
#include "base/str.h"
#include <errno.h>
#include <stdio.h>

static const char *given(const char *text)
{
	return text ? text : "";
}

static int check_detail(enum vm_happening what, const struct store_detail *d, struct error *e)
{
	if (what == HAPPENING_ADD)
		return name_check(given(d->pool), "pool name", e);
	if (what != HAPPENING_LEASE && what != HAPPENING_INSPECT)
		return 0;
	if (given(d->holder)[0] == '\0')
		return error_set(e, EINVAL, "a lease needs a holder");
	if (d->ttl_ms < 1 || d->ttl_ms > STORE_TTL_MAX_MS)
		return error_set(e, EINVAL, "a lease lasts at least 1 ms and at most 30 days");
	return 0;
}

/* READY has cleared the count too early. */
static bool counts_from_cleared(enum vm_happening what)
{
	return what == HAPPENING_SHORT_LIFE || what == HAPPENING_WAKE_FAILED;
}

/* "STEP: REASON", of what has failed. */
static void failure_text(char dst[static REASON_MAX], enum vm_happening what, const struct store_detail *d)
{
	char text[STEP_MAX + REASON_MAX];

	(void)snprintf(text, sizeof(text), "%s%s%s", given(d->step), given(d->step)[0] ? ": " : "",
		given(d->reason)[0] ? d->reason : happening_to_string(what));
	store_inform(dst, REASON_MAX, text);
}

/* A life that was started warm has failed, has lived, or somebody has dealt with the VM since. */
static void count_warm(const struct vm_row *before, enum vm_happening what, const struct store_detail *d,
	const struct state_change *c, struct vm_row *v)
{
	int32_t count = counts_from_cleared(what) ? before->cleared : before->attempts;
	bool in_life = before->state == STATE_STARTING || before->state == STATE_READY || before->state == STATE_LEASED;
	bool lived = what == HAPPENING_LEASE && before->warm && !vm_sleeps(before);

	if (what == HAPPENING_START)
		v->warm = d->warm;
	if (lived || what == HAPPENING_REPAIR || what == HAPPENING_ADD || before->state == STATE_MAINTENANCE) {
		v->warm_failures = 0;
		v->warm_reason[0] = '\0';
	} else if (before->warm && in_life && c->attempts > count) {
		if (v->warm_failures < INT32_MAX)
			v->warm_failures++;
		failure_text(v->warm_reason, what, d);
	}
}

/* The patch's share of the edge. An inspection, or what an interrupted operation is done over for, changes nothing about it. */
static void next_patch(const struct vm_row *before, enum vm_happening what, const struct store_detail *d,
	const struct state_change *c, struct vm_row *v)
{
	const bool made = before->state == STATE_MAINTENANCE && !before->lease[0];
	bool fails = what == HAPPENING_MAINTAIN_FAILED || (made && (what == HAPPENING_DEADLINE || what == HAPPENING_DOUBT));

	if (!before->patch[0] || before->state == STATE_ADDING)
		return;
	if (made && what == HAPPENING_MAINTAINED) {
		v->trial = true;
	} else if (before->trial && what == HAPPENING_STARTED) {
		(void)str_copy(v->image, before->patch);
		v->clean_of[0] = v->patch[0] = '\0';
		v->trial = false;
	} else if (fails || (before->trial && c->to == STATE_BROKEN)) {
		failure_text(v->patch_reason, what, d);
		v->patch[0] = '\0';
		v->trial = false;
	}
}

/* What the row will be. */
static void next_row(const struct vm_row *before, enum vm_happening what, const struct store_detail *d,
	const struct state_change *c, const char *boot_id, struct vm_row *v)
{
	bool trouble = c->attempts > before->attempts || what == HAPPENING_DOUBT ||
		       what == HAPPENING_MAINTAIN_FAILED;

	*v = *before;
	v->state = c->to;
	v->attempts = c->attempts;
	/* A life that was ended by anything but itself is no part of a row of failures; one that sleeps has yet to begin. */
	if (what != HAPPENING_LEASE || !vm_sleeps(before))
		v->cleared = what == HAPPENING_STARTED ? before->attempts : 0;
	count_warm(before, what, d, c, v);
	next_patch(before, what, d, c, v);
	if (c->new_generation) {
		v->generation++;
		v->host_key[0] = v->address[0] = '\0';
	}
	if (c->to == STATE_READY) {
		v->step[0] = v->reason[0] = '\0';
	} else if (trouble) {
		inform(v->step, d->step);
		inform(v->reason, given(d->reason)[0] ? d->reason : happening_to_string(what));
	}
	if (c->to == STATE_BROKEN || c->to == STATE_KEPT)
		inform(v->evidence, given(d->evidence)[0] || before->state != c->to ? d->evidence : before->evidence);
	else if (c->to == STATE_COLD)
		v->evidence[0] = '\0';
	if (c->to == STATE_PLAIN)
		v->pool[0] = '\0';
	else if (what == HAPPENING_ADD)
		(void)str_copy(v->pool, d->pool); /* name_check has seen it */
	v->since_boot_us = clock_boot_us();
	v->since_wall_us = clock_wall_us();
	(void)str_copy(v->since_boot_id, boot_id);
}

static int update_row(struct store *s, const struct vm_row *v, uint64_t event, struct error *e)
{
	static const char sql[] =
		"UPDATE vms SET state = ?2, generation = ?3, attempts = ?4, step = ?5, reason = ?6,"
		" host_key = ?7, address = ?8, pool = ?9, since_event = ?10, since_boot_us = ?11,"
		" since_wall_us = ?12, since_boot_id = ?13, cleared = ?14, evidence = ?15, warm = ?16,"
		" warm_failures = ?17, warm_reason = ?18, image = ?19, clean_of = ?20, patch = ?21, trial = ?22,"
		" patch_reason = ?23 WHERE name = ?1";
	CLEANUP_QUERY struct query q = {0};

	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, v->name);
	query_text(&q, state_to_string(v->state));
	query_u64(&q, v->generation);
	query_u64(&q, (uint64_t)v->attempts);
	query_text(&q, v->step);
	query_text(&q, v->reason);
	query_text(&q, v->host_key);
	query_text(&q, v->address);
	query_text(&q, v->pool);
	query_u64(&q, event);
	query_u64(&q, v->since_boot_us);
	query_u64(&q, v->since_wall_us);
	query_text(&q, v->since_boot_id);
	query_u64(&q, (uint64_t)v->cleared);
	query_text(&q, v->evidence);
	query_u64(&q, v->warm);
	query_u64(&q, (uint64_t)v->warm_failures);
	query_text(&q, v->warm_reason);
	query_text(&q, v->image);
	query_text(&q, v->clean_of);
	query_text(&q, v->patch);
	query_u64(&q, v->trial);
	query_text(&q, v->patch_reason);
	r = query_run(&q, e);
	return r < 0 ? r : 0;
}

static int add_event(struct store *s, const struct vm_row *before, const struct vm_row *after,
	enum vm_happening what, const struct store_detail *d, uint64_t *ret_id, struct error *e)
{
	char text[2 * REASON_MAX], who[HOLDER_MAX + RUNNER_NAME_MAX + SCOPE_MAX + 32] = "";
	struct lease_row lease;

	/* A timeline begins with who it is about. */
	if (what == HAPPENING_LEASE || what == HAPPENING_INSPECT) {
		int r = store_lease_get(s, after->lease, &lease, e);

		if (r < 0)
			return r;
		(void)snprintf(who, sizeof(who), ": %s%s%s%s%s", lease.holder, lease.scope[0] ? " for " : "", lease.scope,
			what == HAPPENING_LEASE ? ", runner " : "",
			what == HAPPENING_LEASE ? lease.runner_name : "");
	}
	(void)snprintf(text, sizeof(text), "%s -> %s%s%s%s%s%s", state_to_string(before->state),
		state_to_string(after->state), who, given(d->step)[0] ? ": " : "", given(d->step),
		given(d->reason)[0] ? ": " : "", given(d->reason));
	return store_event_add(s, after->name, after->lease, after->generation, happening_to_string(what),
		text, d->took_us, ret_id, e);
}

/* The lease's share of the edge. after->lease becomes the new one; a lease that closes stays named for the
 * event. */
static int apply_lease(struct store *s, const struct vm_row *before, struct vm_row *after,
	enum vm_happening what, const struct store_detail *d, const struct state_change *c, struct error *e)
{
	int r = 0;
	if (c->opens_lease)
		r = store_lease_open(s, after, d, after->lease, e);
	if (r == 0 && what == HAPPENING_DELIVER)
		r = store_lease_delivered(s, after, e);
	if (r == 0 && before->lease[0] && before->state != STATE_RESETTING && !state_has_lease(c->to))
		r = store_lease_ends(s, after, what == HAPPENING_KEEP ? d->cause : what, d, e);
	if (r == 0 && c->closes_lease)
		r = store_lease_close(s, after, e);
	return r;
}

int store_apply(struct store *s, const char *name, uint64_t generation, enum vm_happening what,
	const struct store_detail *d, struct state_change *ret_change, struct vm_row *ret_row,
	struct error *e)
{
	static const struct store_detail none = {0};
	CLEANUP_TRANSACTION struct transaction t = {0};
	struct vm_row before = {0}, after = {0};
	struct state_change c;
	uint64_t event = 0;

	if (!d)
		d = &none;
	int r = transaction_start(&t, s, e);
	if (r == 0)
		r = store_vm_get(s, name, &before, e);
	if (r < 0)
		return r;
	if ((generation != 0 && generation != before.generation) ||
		!state_next(before.state, what,
			counts_from_cleared(what) ? before.cleared : before.attempts, &c))
		return 0;
	r = check_detail(what, d, e);
	if (r < 0)
		return r;

	next_row(&before, what, d, &c, s->boot_id, &after);
	r = apply_lease(s, &before, &after, what, d, &c, e);
	if (r == 0)
		r = store_events_add(s, d->steps, d->n_steps, e);
	if (r == 0)
		r = add_event(s, &before, &after, what, d, &event, e);
	if (r == 0)
		r = update_row(s, &after, event, e);
	if (r == 0)
		r = store_vm_get(s, name, &after, e);
	if (r == 0)
		r = transaction_commit(&t, e);
	if (r < 0)
		return r;
	if (ret_change)
		*ret_change = c;
	if (ret_row)
		*ret_row = after;
	return 1;
}
