/* RENEW and POOL_KEEP: a lease's end put off, and what becomes of its VM when it comes. */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>
#include <inttypes.h>

/* "2 h 5 min", for people. */
static void duration_text(uint64_t ms, char *dst, size_t size)
{
	uint64_t s = (ms + 999) / 1000;

	if (s >= 3600)
		(void)snprintf(dst, size, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
	else if (s >= 60)
		(void)snprintf(dst, size, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else
		(void)snprintf(dst, size, "%" PRIu64 " s", s);
}

int serve_renew(struct request *r, struct error *e)
{
	uint64_t left_ms, ttl_ms = r->in->ttl_ms;
	struct lease_row lease;
	struct keeper_vm *v;
	char text[64], shown[40];
	int code = store_lease_get(r->k->store, r->in->lease, &lease, e);

	if (code < 0)
		return code;
	if (ttl_ms < 1 || ttl_ms > KEEPER_TTL_MAX_MS)
		return error_set(e, EINVAL, "a lease is renewed for more than 0 and at most 7 days from now");
	v = lease.open ? keeper_find(r->k, lease.vm) : NULL;
	if (!v || !lease_runs(v) || !str_equal(v->row.lease, lease.id))
		return error_set(e, EALREADY, "lease %s of %s has ended%s%s", lease.id, lease.vm, lease.end_reason[0] ? ": " : "",
				lease.end_reason);
	if (r->in->flags & KEEPER_FLAG_BIND && (!lease.bound || v->bound_client))
		return error_set(e, EBUSY, "lease %s is bound to another connection, or to none", lease.id);
	left_ms = lease_left_ms(r->k, &lease);
	if (ttl_ms < left_ms && !(r->in->flags & KEEPER_FLAG_FORCE))
		ttl_ms = left_ms;
	code = store_lease_renew(r->k->store, lease.id, ttl_ms, e);
	if (code < 0)
		return code;
	if (r->in->flags & KEEPER_FLAG_BIND) {
		v->bound_client = r->client->id;
		deadline_watch(v);
	}
	v->expiry = sd_event_source_disable_unref(v->expiry);
	lease_watch_expiry(v);
	duration_text(ttl_ms, shown, sizeof(shown));
	(void)str_format(text, "for %s from now", shown);
	keeper_record(v, "renewed", text, 0);
	return 0;
}

static int keep_none(struct keeper_vm *v, struct error *e)
{
	int r;

	if (v->row.state == STATE_KEPT) {
		r = keeper_apply(v, 0, HAPPENING_REPAIR, NULL, e);
		return r < 0 ? r : 0;
	}
	if (!state_has_lease(v->row.state) || !v->keep_ms)
		return error_set(e, EALREADY, "%s is not kept, and nobody has asked for it", v->row.name);
	r = store_lease_keep(v->k->store, v->row.lease, 0, e);
	if (r < 0)
		return r;
	v->keep_ms = 0;
	keeper_record(v, "keep", "not any more: it is reset when its lease ends", 0);
	return 0;
}

int serve_pool_keep(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	uint64_t ms = r->in->ttl_ms, now = clock_boot_us();
	char text[96], shown[40];
	int code;

	if (ms > KEEPER_TTL_MAX_MS)
		return error_set(e, EINVAL, "a VM is kept for at most 7 days");
	if (ms == 0)
		return keep_none(v, e);
	if (v->row.state == STATE_BROKEN)
		return error_set(e, EALREADY, "%s is BROKEN and stays as it is until 'boxery-host pool repair %s'", v->row.name,
				v->row.name);
	if (!state_has_lease(v->row.state) && v->row.state != STATE_KEPT)
		return error_set(e, EINVAL, "%s is %s: only a VM with a lease is kept when that ends", v->row.name,
				state_to_string(v->row.state));
	duration_text(ms, shown, sizeof(shown));
	(void)str_format(text, v->row.state == STATE_KEPT ? "for %s from now" : "for %s when its lease ends", shown);
	/* The row's time counts from when the state began. */
	if (v->row.state == STATE_KEPT && now > v->row.since_boot_us)
		ms += (now - v->row.since_boot_us) / 1000;
	code = store_lease_keep(r->k->store, v->row.lease, ms, e);
	if (code < 0)
		return code;
	v->keep_ms = ms;
	deadline_watch(v);
	keeper_record(v, "keep", text, 0);
	log_vm(LOG_NOTICE, v->row.name, v->row.lease, "is kept %s", text);
	return 0;
}
