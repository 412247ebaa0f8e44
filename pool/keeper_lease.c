/*
 * Leases: who gets a clean VM, what becomes known about it, when it ends.
 *
 * Waiting clients stand in one queue in the order they came; lessees_serve() gives every clean VM to the first who wants it.
 * Only a VM that libvirt has confirmed to this keeper is given away. A lease ends by release, by its expiry (a timer on the
 * boot clock, armed again at start-up), with the connection it is bound to, or with the VM.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool may_be_leased(const struct keeper_vm *v)
{
	/* While libvirt is away nothing could be delivered, and the reset would fail until the VM is BROKEN. */
	return v->row.state == STATE_READY && v->confirmed && !v->row.removing && !v->trouble && v->k->connected;
}

static unsigned ready_in(const struct keeper *k, const char *pool)
{
	unsigned n = 0;

	for (size_t i = 0; i < k->n_vms; i++)
		n += may_be_leased(k->vms[i]) && str_equal(k->vms[i]->row.pool, pool);
	return n;
}

/* The request names a VM and a pool, and they do not go together. */
static bool in_other_pool(const struct keeper_vm *v, const struct keeper_request *in)
{
	return in->name[0] && in->pool[0] && !str_equal(v->row.pool, in->pool);
}

/* Longest ready first, so that none grows old; nobody takes what is reserved for another. */
static struct keeper_vm *pick(struct keeper *k, const struct keeper_request *in)
{
	struct keeper_vm *best = NULL;
	const char *pool = in->pool[0] ? in->pool : POOL_DEFAULT;

	for (size_t i = 0; i < k->n_vms; i++) {
		struct keeper_vm *v = k->vms[i];

		if (!may_be_leased(v) ||
				!str_equal(in->name[0] ? v->row.name : v->row.pool, in->name[0] ? in->name : pool) ||
				in_other_pool(v, in))
			continue;
		if (!best || v->entered_us < best->entered_us)
			best = v;
	}
	if (best && ready_in(k, best->row.pool) <= pool_reserved(k, best->row.pool, in->holder))
		return NULL;
	return best;
}

/* Why there is none: -ENOENT when there can be none, else -EAGAIN with the pool's states in words. */
static int explain(struct keeper *k, const struct keeper_request *in, struct error *e)
{
	const char *pool = in->pool[0] ? in->pool : POOL_DEFAULT;
	CLEANUP_BUF struct buf text = BUF_INIT(KEEPER_TEXT_MAX / 2);
	unsigned count[STATE_COUNT] = {0}, n = 0;
	const struct keeper_vm *v = in->name[0] ? keeper_find(k, in->name) : NULL, *is_short = NULL;
	unsigned reserved = pool_reserved(k, v ? v->row.pool : pool, in->holder);

	if (in->name[0] && !v)
		return error_set(e, ENOENT, "there is no VM '%s'; 'boxery-host ls' lists them", in->name);
	if (v && (v->row.state == STATE_PLAIN || v->row.state == STATE_ADDING))
		return error_set(e, EBUSY, "%s is in no pool; 'boxery-host pool add %s' adds it", in->name, in->name);
	if (v && in_other_pool(v, in))
		return error_set(e, EINVAL, "%s is in pool %s, not in %s", in->name, v->row.pool, in->pool);
	if (v && may_be_leased(v))
		return error_set(e, EAGAIN, "%s is READY, but %u of the READY VMs of pool %s are reserved for others", in->name,
				reserved, v->row.pool);
	if (v && v->host_short)
		return error_set(e, EAGAIN, "%s is not started: %s", in->name, v->row.reason);
	if (v)
		return error_set(e, EAGAIN, "%s is %s%s", in->name,
				v->row.removing ? "being removed" :
				v->row.state == STATE_READY ? "READY, but libvirt has not confirmed it yet" :
							      state_to_string(v->row.state),
				v->row.state == STATE_BROKEN ? "; 'boxery-host pool repair NAME' tries it again" : "");
	for (size_t i = 0; i < k->n_vms; i++) {
		v = k->vms[i];
		if (v->row.state == STATE_PLAIN || v->row.state == STATE_ADDING || !str_equal(v->row.pool, pool))
			continue;
		count[v->row.state]++;
		n++;
		if (v->host_short)
			is_short = v;
	}
	if (n == 0)
		return error_set(e, ENOENT, "pool %s has no VM; 'boxery-host pool add NAME' adds one", pool);
	for (size_t s = 0; s < STATE_COUNT; s++)
		if (count[s])
			(void)buf_addf(&text, "%s%u %s", text.len ? ", " : "", count[s], state_to_string((enum vm_state)s));
	if (ready_in(k, pool))
		return error_set(e, EAGAIN, "no VM of pool %s is free for %s: %s, and %u are reserved for others", pool, in->holder,
				text.data ? text.data : "", reserved);
	return error_set(e, EAGAIN, "no VM of pool %s is ready: %s%s%s%s", pool, text.data ? text.data : "",
			k->connected ? "" : "; libvirt does not answer", is_short ? "; " : "",
			is_short ? is_short->row.reason : "");
}

void lease_load(struct keeper_vm *v)
{
	struct lease_row lease = {0};
	struct error e = ERROR_INIT;

	if (v->row.lease[0] && store_lease_get(v->k->store, v->row.lease, &lease, &e) < 0)
		log_vm(LOG_ERR, v->row.name, v->row.lease, "cannot read its lease: %s", e.text);
	(void)str_copy(v->holder, lease.holder);
	v->keep_ms = lease.keep_ms;
	v->bound = lease.bound;
}

bool lease_runs(const struct keeper_vm *v)
{
	return state_has_lease(v->row.state) || (v->row.state == STATE_MAINTENANCE && v->row.lease[0]);
}

void lease_reply(struct client *c, struct keeper_vm *v)
{
	struct keeper_reply reply = {.generation = v->row.generation};
	struct lease_row lease;
	struct error e = ERROR_INIT;

	if (store_lease_get(v->k->store, v->row.lease, &lease, &e) < 0) {
		/* Nobody would know that it is leased. */
		keeper_note(v, HAPPENING_DOUBT, "its lease could not be read back");
		client_reply_error(c, &e);
		return;
	}
	(void)str_copy(reply.lease, lease.id);
	(void)str_copy(reply.name, v->row.name);
	(void)str_copy(reply.address, v->row.address);
	(void)str_copy(reply.host_key, v->row.host_key);
	if (v->row.state == STATE_MAINTENANCE)
		(void)str_copy(reply.text, v->row.evidence);
	else
		(void)str_copy(reply.runner_name, lease.runner_name);
	if (c)
		client_reply(c, &reply, -1);
	/* It went away while it waited: nobody knows of this lease. */
	if (!c || c->gone)
		keeper_note(v, HAPPENING_HOLDER_LOST, "its holder was gone before it had it");
}

static int lease_vm(struct client *c, struct keeper_vm *v, struct error *e)
{
	const struct keeper_request *in = &c->request;
	struct store_detail d = {
		.holder = in->holder,
		.scope = in->scope,
		.ttl_ms = in->ttl_ms ? in->ttl_ms : KEEPER_TTL_DEFAULT_MS,
		.bound = in->flags & KEEPER_FLAG_BIND,
	};
	const bool inspect = in->flags & KEEPER_FLAG_BROKEN;
	int r = keeper_apply(v, v->row.generation, inspect ? HAPPENING_INSPECT : HAPPENING_LEASE, &d, e);

	if (r == 0)
		return error_set(e, EAGAIN, "%s has just become %s", v->row.name, state_to_string(v->row.state));
	if (r < 0)
		return r;
	if (d.bound) {
		v->bound_client = c->id;
		deadline_watch(v); /* nobody's until now */
	}
	if (!vm_sleeps(&v->row))
		return lease_hand_over(c, v, e);
	r = wake_begin(c, v, e);
	if (r < 0)
		keeper_note(v, HAPPENING_DOUBT, e->text);
	return r;
}

int lease_hand_over(struct client *c, struct keeper_vm *v, struct error *e)
{
	int r;

	if (!c || !c->request.text[0] || v->row.state != STATE_LEASED) {
		lease_reply(c, v);
		return 0;
	}
	r = grant_begin(c, v, e);
	if (r < 0 && lease_runs(v))
		keeper_note(v, HAPPENING_DOUBT, e->text);
	return r;
}

/* As explain(), and what happened to VMs that it nearly had. */
static int explain_all(const struct client *c, struct error *e)
{
	int r = explain(c->k, &c->request, e);

	return c->failure[0] ? error_set(e, -r, "%s; %s", c->failure, e->text) : r;
}

static int on_waited(sd_event_source *s, uint64_t us, void *userdata)
{
	struct client *c = userdata;
	struct error e = ERROR_INIT;

	(void)explain_all(c, &e);
	client_reply_error(c, &e);
	return 0;
}

/* The time that is left of its wait puts it back into the queue, where it stands before those who asked after it. */
static int wait_in_queue(struct client *c, struct error *e)
{
	const uint64_t now = clock_boot_us();

	client_wait(c, CLIENT_LEASE);
	if (c->until_us <= now)
		return 0;
	return loop_timer(c->k->event, &c->deadline, (c->until_us - now + 999) / 1000, on_waited, c, e);
}

void lease_again(struct client *c, const struct keeper_vm *v, const char *reason)
{
	struct error e = ERROR_INIT;

	c->failed_wakes++;
	if (str_format(c->failure, "%s could not be woken: %s", v->row.name, reason) < 0)
		(void)str_format(c->failure, "%s could not be woken", v->row.name);
	client_progress(c, c->failure);
	if (c->gone)
		return;
	if (c->until_us <= clock_boot_us() && c->failed_wakes >= KEEPER_WAKE_TRIES)
		(void)error_set(&e, EAGAIN, "%s; no more than %d VMs are tried", c->failure, KEEPER_WAKE_TRIES);
	else if (wait_in_queue(c, &e) == 0)
		lessees_serve(c->k);
	/* Without time left there is no timer that would end it. */
	if (!e.code && c->wait == CLIENT_LEASE && !c->deadline)
		(void)explain_all(c, &e);
	if (e.code)
		client_reply_error(c, &e);
}

static int check_times(const struct keeper_request *in, struct error *e)
{
	if (in->ttl_ms > KEEPER_TTL_MAX_MS)
		return error_set(e, EINVAL, "a lease lasts at most 7 days; it can be renewed");
	if (in->wait_ms > KEEPER_WAIT_MAX_MS)
		return error_set(e, EINVAL, "a lease is waited for at most one day");
	return 0;
}

/* LEASE with BROKEN: an admin looks at a VM in quarantine. */
static int inspect(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	int code;

	if (!r->in->name[0])
		return error_set(e, EINVAL, "a broken VM is leased by its name");
	if (!v)
		return error_set(e, ENOENT, "there is no VM '%s'; 'boxery-host ls' lists them", r->in->name);
	if (r->in->text[0])
		return error_set(e, EINVAL, "a broken VM does not run, so no ssh key goes into it");
	if (v->row.state == STATE_MAINTENANCE && v->row.lease[0])
		return error_set(e, EBUSY, "%s is being looked at by %s (lease %s)", v->row.name, v->holder, v->row.lease);
	if (v->row.state != STATE_BROKEN)
		return error_set(e, EALREADY, "%s is %s, not BROKEN", v->row.name, state_to_string(v->row.state));
	if (v->row.removing)
		return error_set(e, EBUSY, "%s is being removed", v->row.name);
	if (v->op)
		return error_set(e, EBUSY, "%s is just being shut off; try again", v->row.name);
	code = lease_vm(r->client, v, e);
	return code < 0 ? code : REPLY_LATER;
}

/* One more connection that does nothing but wait? Who releases, looks or ends the keeper has to get one as well. */
static int check_queue(const struct keeper *k, const struct error *why, struct error *e)
{
	const struct client *c;
	unsigned n = 0;

	TAILQ_FOREACH(c, &k->lessees, queue)
		n++;
	return n < KEEPER_LESSEES_MAX ? 0 : error_set(e, EBUSY, "%s; %u wait for a VM already, more may not: try again later", why->text, n);
}

int serve_lease(struct request *r, struct error *e)
{
	struct error timer = ERROR_INIT;
	struct keeper_vm *v;
	int code;

	code = check_times(r->in, e);
	if (code == 0 && r->in->text[0])
		code = grant_check(r->in, e);
	if (code < 0)
		return code;
	if (r->in->flags & KEEPER_FLAG_BROKEN)
		return inspect(r, e);
	r->client->asked = ++r->k->next_ask;
	r->client->until_us = clock_boot_us() + r->in->wait_ms * 1000;
	r->client->failed_wakes = 0;
	r->client->failure[0] = '\0';
	/* Those who wait already come first. */
	lessees_serve(r->k);
	v = pick(r->k, r->in);
	if (v) {
		code = lease_vm(r->client, v, e);
		return code < 0 ? code : REPLY_LATER;
	}
	code = explain(r->k, r->in, e);
	if (code != -EAGAIN || r->in->wait_ms == 0)
		return code;
	if (check_queue(r->k, e, &timer) < 0 || wait_in_queue(r->client, &timer) < 0) {
		*e = timer;
		return -e->code;
	}
	client_progress(r->client, e->text);
	return REPLY_LATER;
}

void lessees_serve(struct keeper *k)
{
	struct client *c = TAILQ_FIRST(&k->lessees);

	while (c) {
		struct client *next = TAILQ_NEXT(c, queue);
		struct keeper_vm *v = pick(k, &c->request);
		struct error e = ERROR_INIT;

		if (k->stopping)
			(void)error_set(&e, ECANCELED, "the keeper is ending");
		else if (v)
			(void)lease_vm(c, v, &e);
		else if (explain(k, &c->request, &e) == -EAGAIN)
			error_clear(&e);
		/* Serving one can drop another (a subscriber that is slow), so the list is only trusted from its head on. */
		if (e.code)
			client_reply_error(c, &e);
		if (v || e.code)
			next = TAILQ_FIRST(&k->lessees);
		c = next;
	}
}

static int on_expired(sd_event_source *s, uint64_t us, void *userdata)
{
	struct keeper_vm *v = userdata;
	struct error e = ERROR_INIT;

	v->expiry = sd_event_source_disable_unref(v->expiry);
	keeper_note(v, HAPPENING_EXPIRED, "its lease has expired");
	/* It could not be recorded, and with an operation under way nobody else tries that again. */
	if (lease_runs(v) && !v->expiry && loop_timer(v->k->event, &v->expiry, KEEPER_COMMIT_RETRY_MS, on_expired, v, &e) < 0)
		log_vm(LOG_ERR, v->row.name, v->row.lease, "cannot watch the lease's end: %s", e.text);
	return 0;
}

uint64_t lease_left_ms(const struct keeper *k, const struct lease_row *lease)
{
	const uint64_t now = clock_boot_us();

	if (!str_equal(lease->boot_id, k->boot_id) || lease->expires_boot_us <= now)
		return 0;
	return (lease->expires_boot_us - now + 999) / 1000;
}

void lease_watch_expiry(struct keeper_vm *v)
{
	struct lease_row lease;
	struct error e = ERROR_INIT;

	if (!lease_runs(v)) {
		v->expiry = sd_event_source_disable_unref(v->expiry);
		return;
	}
	if (v->expiry)
		return;
	if (store_lease_get(v->k->store, v->row.lease, &lease, &e) < 0) {
		keeper_unread(v, "its lease", &e);
		return;
	}
	if (!v->unadopted)
		v->unread = 0;
	if (loop_timer(v->k->event, &v->expiry, lease_left_ms(v->k, &lease), on_expired, v, &e) < 0) {
		log_vm(LOG_ERR, v->row.name, v->row.lease, "cannot watch the lease's end: %s", e.text);
		keeper_retry(v, KEEPER_COMMIT_RETRY_MS);
	}
}
