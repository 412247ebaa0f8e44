/*
 * Into the pool, out of it, and out of the world: POOL_ADD, POOL_REPAIR, REMOVE, POOL_REMOVE.
 *
 * A removal is written down first (vm_row.removing), then brings the VM to rest. COLD, BROKEN and PLAIN VMs are removed as they
 * are; anything else is reset first and removed when it arrives in one of these. A keeper that dies in between leaves the wish
 * to the next one, because half of the VM's files may be gone already. One that fails is taken back when somebody is there to be
 * told, and else tried again, after twice the time each time.
 */
#include "base/str.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The origin of a row of VMs that share a clean state. */
static const char *origin_of(const struct keeper_vm *v)
{
	return v->row.clean_of[0] ? v->row.clean_of : v->row.name;
}

/* NAME-2, NAME-3, ... */
static int other_name(const char *name, uint32_t number, char dst[static VM_NAME_MAX], struct error *e)
{
	if (str_format_n(dst, VM_NAME_MAX, "%s-%" PRIu32, name, number) < 0)
		return error_set(e, EINVAL, "%s-%" PRIu32 " is too long for a VM's name; the limit is %d characters", name, number,
				VM_NAME_MAX - 1);
	return name_check(dst, "VM name", e);
}

/* Is that VM one of the row that starts from v's clean state, or may it become one? */
static int check_other(const struct keeper_vm *v, const struct keeper_vm *other, struct error *e)
{
	/* One that was patched has a clean state of its own. */
	if (other->row.state != STATE_PLAIN && v->row.pool[0] && str_equal(other->row.pool, v->row.pool))
		return 0;
	if (!str_equal(other->row.clean_of, origin_of(v)))
		return error_set(e, EEXIST, "there is a VM %s already, with a disk of its own", other->row.name);
	return 0;
}

/* Before anything is made: each of the names is free, or a VM of this row. Returns how many are to be made, or -errno. */
static int check_others(const struct keeper_vm *v, uint32_t count, struct error *e)
{
	struct keeper *k = v->k;
	char name[VM_NAME_MAX];
	unsigned wanted = 0;

	if (count > KEEPER_POOL_COUNT_MAX)
		return error_set(e, EINVAL, "%u VMs at once: 1 to %d are possible", count, KEEPER_POOL_COUNT_MAX);
	for (uint32_t i = 2; i <= count; i++) {
		const struct keeper_vm *other;
		int r = other_name(v->row.name, i, name, e);

		if (r < 0)
			return r;
		other = keeper_find(k, name);
		r = other ? check_other(v, other, e) : 0;
		if (r < 0)
			return r;
		wanted += !other || other->row.state == STATE_PLAIN;
	}
	if (k->n_vms + wanted > STORE_VMS_MAX)
		return error_set(e, ENOSPC, "that would be %zu VMs; %d are possible", k->n_vms + wanted, STORE_VMS_MAX);
	return (int)wanted;
}

/* One more from the same clean state: a row, then ADD, which makes its settings file. */
static int add_other(struct keeper_vm *v, const char *name, struct client *c, enum vm_state awaited, struct error *e)
{
	struct keeper *k = v->k;
	struct store_detail d = {.pool = v->row.pool};
	struct keeper_vm *other = keeper_find(k, name);
	struct vm_row row = {.state = STATE_PLAIN, .cpus = v->row.cpus, .memory_mib = v->row.memory_mib,
			.disk_gib = v->row.disk_gib};
	int r = 0;

	if (!other) {
		(void)str_copy(row.name, name);
		(void)str_copy(row.image, v->row.image);
		(void)str_copy(row.clean_of, origin_of(v));
		r = store_vm_insert(k->store, &row, e);
		if (r == 0)
			r = keeper_vm_track(k, name, &other, e);
		KILL_POINT("other-inserted");
	}
	if (r < 0 || !other)
		return r < 0 ? r : error_errno(e, ENOMEM, "%s", name);
	r = check_other(v, other, e); /* it may have been made while v was captured */
	if (r < 0)
		return r;
	if (other->row.state != STATE_PLAIN)
		return 0; /* a repeated request: it is there */
	if (other->op || other->row.removing)
		return error_set(e, EBUSY, "%s: something else is under way with it", name);
	r = keeper_apply(other, 0, HAPPENING_ADD, &d, e);
	if (r > 0 && c)
		keeper_await(other, c, awaited);
	return r < 0 ? r : 0;
}

void pool_grow(struct keeper_vm *v)
{
	const struct grow grow = v->grow;
	struct client *c = client_find(v->k, grow.client);
	char name[VM_NAME_MAX];
	struct error e = ERROR_INIT;

	for (uint32_t i = 2; i <= grow.count && e.code == 0; i++) {
		if (other_name(v->row.name, i, name, &e) == 0 && add_other(v, name, c, grow.awaited, &e) < 0)
			(void)error_wrap(&e, "%s is in its pool, but from %s on the others are missing", v->row.name, name);
	}
	if (e.code) {
		log_vm(LOG_ERR, v->row.name, NULL, "%s", e.text);
		client_reply_error(c, &e);
	}
}

/* The clean state is there already: only the others are made. */
static int grow_now(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	enum vm_state awaited = r->in->flags & KEEPER_FLAG_WAIT ? STATE_READY : STATE_COLD;
	const struct keeper_vm *origin = keeper_find(r->k, origin_of(v));
	int wanted;

	if (v->row.removing || !origin || origin->row.removing)
		return error_set(e, EBUSY, "%s is being removed, and with it the clean state", origin_of(v));
	if (origin->row.patch[0])
		return error_set(e, EBUSY, "%s is to be patched to %s; more from its clean state can be made after that", origin->row.name,
				origin->row.patch);
	if (r->in->pool[0] && !str_equal(r->in->pool, v->row.pool))
		return error_set(e, EINVAL, "%s is in pool %s, and so are those that share its clean state", v->row.name, v->row.pool);
	wanted = check_others(v, r->in->count, e);
	if (wanted < 0)
		return wanted;
	if (wanted == 0)
		return error_set(e, EALREADY, "%s and the others are in pool %s already", v->row.name, v->row.pool);
	v->grow = (struct grow){.count = r->in->count, .client = r->client->id, .awaited = awaited};
	pool_grow(v);
	v->grow.count = 0;
	return REPLY_LATER;
}

int serve_pool_add(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	struct store_detail d = {.pool = r->in->pool[0] ? r->in->pool : POOL_DEFAULT};
	enum vm_state awaited = r->in->flags & KEEPER_FLAG_WAIT ? STATE_READY : STATE_COLD;
	const struct keeper_vm *origin = keeper_find(r->k, origin_of(v));
	int code;

	if (v->row.state != STATE_PLAIN && v->row.state != STATE_ADDING && r->in->count > 1)
		return grow_now(r, e);
	if (v->row.state != STATE_PLAIN)
		return error_set(e, v->row.state == STATE_ADDING ? EBUSY : EALREADY, "%s is in pool %s already (%s)",
				v->row.name, v->row.pool, state_to_string(v->row.state));
	if (v->op || v->row.removing || (origin && origin->row.removing))
		return error_set(e, EBUSY, "%s: something else is under way with it", v->row.name);
	if (v->running)
		return error_set(e, EBUSY, "%s is running; what joins a pool is its disk, so stop it first: 'boxery-host stop %s'",
				v->row.name, v->row.name);
	if (origin && origin != v)
		d.pool = origin->row.pool;
	code = check_others(v, r->in->count, e);
	if (code < 0)
		return code;
	v->asker = r->client->id;
	code = keeper_apply(v, 0, HAPPENING_ADD, &d, e);
	v->asker = 0;
	if (code < 0)
		return code;
	if (code == 0)
		return error_set(e, EBUSY, "%s cannot join a pool now", v->row.name);
	v->grow = (struct grow){.count = r->in->count, .client = r->client->id, .awaited = awaited};
	keeper_await(v, r->client, awaited);
	return REPLY_LATER;
}

/* Nothing is wrong with it but its memory image, which went with the failures: the next start is warm again. */
static int forgive_warm(struct keeper_vm *v, struct error *e)
{
	int r = store_vm_forgive_warm(v->k->store, v->row.name, e);

	if (r < 0)
		return r;
	v->row.warm_failures = 0;
	v->row.warm_reason[0] = '\0';
	keeper_record(v, "warm-again", "an admin has asked for it", 0);
	return 0;
}

int serve_pool_repair(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	int code;

	if (v->row.state == STATE_PLAIN)
		return error_set(e, EINVAL, "%s is not in a pool", v->row.name);
	if (v->row.state == STATE_MAINTENANCE && v->row.lease[0])
		return error_set(e, EBUSY, "%s is being looked at by %s; 'boxery-host release %s' resets it", v->row.name, v->holder,
				v->row.lease);
	if (v->row.state != STATE_BROKEN && v->row.state != STATE_KEPT && v->row.warm_failures)
		return forgive_warm(v, e);
	if (v->row.state != STATE_BROKEN && v->row.state != STATE_KEPT)
		return error_set(e, EALREADY, "%s is %s, not BROKEN; there is nothing to repair", v->row.name,
				state_to_string(v->row.state));
	/* A halt may be under way: the reset takes its place. */
	if (v->row.removing)
		return error_set(e, EBUSY, "%s is being removed", v->row.name);
	code = keeper_apply(v, 0, HAPPENING_REPAIR, NULL, e);
	if (code < 0 || !(r->in->flags & KEEPER_FLAG_WAIT))
		return code < 0 ? code : 0;
	keeper_await(v, r->client, STATE_READY);
	return REPLY_LATER;
}

static int set_removing(struct keeper_vm *v, bool removing, struct error *e)
{
	int r = store_vm_set_removing(v->k->store, v->row.name, removing, e);

	if (r == 0)
		v->row.removing = removing;
	return r;
}

/* Nobody is there to be told: once loudly, then where people look; and ever more rarely, since it may stay so. */
static void remove_later(struct keeper_vm *v, const struct error *e)
{
	const unsigned doublings = v->failed_removals < KEEPER_REMOVE_DOUBLINGS ? v->failed_removals : KEEPER_REMOVE_DOUBLINGS;

	if (v->failed_removals++ == 0) {
		log_vm(LOG_ALERT, v->row.name, NULL, "cannot be removed: %s; it is tried again until that works, and at once by "
				"'boxery-host %srm %s'", e->text, v->row.state == STATE_PLAIN ? "" : "pool ", v->row.name);
		keeper_record(v, "remove", e->text, 0);
	}
	/* In memory only, as what the host is short of. */
	(void)str_copy(v->row.step, "remove");
	(void)str_copy(v->row.reason, e->text);
	keeper_retry(v, (uint64_t)KEEPER_HOST_RETRY_MS << doublings);
}

static void remove_failed(struct keeper_vm *v, const struct error *e)
{
	struct client *c = client_find(v->k, v->remover);
	struct error commit = ERROR_INIT;

	v->remover = 0;
	if (!c || set_removing(v, false, &commit) < 0)
		remove_later(v, e);
	else
		v->failed_removals = 0;
	client_reply_error(c, e);
	keeper_kick(v->k);
}

static void remove_done(struct op *op, const struct error *cause)
{
	struct keeper *k = op->k;
	struct keeper_vm *v = keeper_find(k, op->request.name);
	struct error e = *cause;
	struct client *c;

	if (!v)
		return;
	KILL_POINT("removed");
	if (e.code == 0) {
		host_key_withdraw(k, v->row.name);
		(void)store_vm_delete(k->store, v->row.name, &e);
	}
	if (e.code) {
		remove_failed(v, &e);
		return;
	}
	log_vm(LOG_NOTICE, v->row.name, NULL, "was removed");
	(void)error_set(&e, ENOENT, "%s was removed while it was waited for", v->row.name);
	keeper_await_end(v, &e);
	c = client_find(k, v->remover);
	keeper_vm_forget(v);
	client_reply_ok(c, NULL);
}

void pool_removed_soon(struct keeper_vm *v)
{
	struct op *op;
	struct error e = ERROR_INIT;

	keeper_retry(v, 0);
	v->op = op_cancel(v->op); /* a halt */
	op = op_new(v->k, VM_REMOVE, v, v->remover, KEEPER_WORK_TIMEOUT_MS, remove_done);
	if (op) {
		op->request.flags = VM_FLAG_FORCE;
		op_queue(op, v);
	} else {
		(void)error_set(&e, ENOMEM, "no memory for this");
		remove_failed(v, &e);
	}
}

static int begin_removal(struct request *r, struct error *e)
{
	int code = set_removing(r->vm, true, e);

	if (code < 0)
		return code;
	KILL_POINT("removing");
	r->vm->remover = r->client->id;
	return REPLY_LATER;
}

/* Brings it to rest, or removes it when it is. */
static int go_on_removing(struct keeper_vm *v, struct error *e)
{
	struct store_detail d = {.reason = "it is removed from its pool", .outcome = "removed"};
	int code = 0;

	if (v->row.state == STATE_COLD || v->row.state == STATE_BROKEN || v->row.state == STATE_PLAIN)
		pool_removed_soon(v);
	else if (v->row.state != STATE_RESETTING) /* else it is on its way; a reset that waits for its next attempt still has it */
		code = keeper_apply(v, 0, HAPPENING_DOUBT, &d, e);
	return code < 0 ? code : 0;
}

void pool_remove_again(struct keeper_vm *v)
{
	struct error e = ERROR_INIT;

	(void)go_on_removing(v, &e);
}

/* Another keeper's, or one whose client has gone. */
static int join_removal(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	int code = 0;

	if (client_find(v->k, v->remover))
		return error_set(e, EBUSY, "%s is being removed already", v->row.name);
	v->remover = r->client->id;
	if (!v->op)
		code = go_on_removing(v, e);
	return code < 0 ? code : REPLY_LATER;
}

/* Those that start from its clean state would have nothing left to start from. */
static int check_shared(const struct keeper_vm *v, struct error *e)
{
	CLEANUP_BUF struct buf names = BUF_INIT(KEEPER_TEXT_MAX / 2);
	unsigned n = 0;

	for (size_t i = 0; i < v->k->n_vms; i++)
		if (str_equal(v->k->vms[i]->row.clean_of, v->row.name) &&
				buf_addf(&names, "%s%s", n++ ? ", " : "", v->k->vms[i]->row.name) < 0)
			break;
	return n ? error_set(e, EBUSY, "%s cannot be removed while others start from its clean state: remove %s first", v->row.name,
				   names.data)
		 : 0;
}

int serve_remove(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	int code = check_shared(v, e);

	if (code < 0)
		return code;
	if (v->row.state != STATE_PLAIN)
		return error_set(e, EBUSY, "%s is in pool %s (%s); 'boxery-host pool rm %s' removes it", v->row.name,
				v->row.pool, state_to_string(v->row.state), v->row.name);
	if (v->row.removing)
		return join_removal(r, e);
	if (v->op)
		return error_set(e, EBUSY, "%s: something else is under way with it", v->row.name);
	if (v->running && !(r->in->flags & KEEPER_FLAG_FORCE))
		return error_set(e, EBUSY, "%s is running; stop it first, or say --force", v->row.name);
	code = begin_removal(r, e);
	if (code >= 0)
		pool_removed_soon(v);
	return code;
}

int serve_pool_remove(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	enum vm_state state = v->row.state;
	struct error commit = ERROR_INIT;
	int code;

	if (state == STATE_PLAIN)
		return error_set(e, EINVAL, "%s is not in a pool; 'boxery-host rm %s' removes it", v->row.name, v->row.name);
	if (v->row.removing)
		return join_removal(r, e);
	code = check_shared(v, e);
	if (code < 0)
		return code;
	if (state == STATE_ADDING || (state == STATE_MAINTENANCE && !v->row.lease[0]))
		return error_set(e, EBUSY, "%s is being captured", v->row.name);
	if (lease_runs(v) && !(r->in->flags & KEEPER_FLAG_FORCE))
		return error_set(e, EBUSY, "%s is leased (lease %s, %s); release it first, or say --force", v->row.name,
				v->row.lease, state_to_string(state));
	if (state == STATE_KEPT && !(r->in->flags & KEEPER_FLAG_FORCE))
		return error_set(e, EBUSY, "%s is kept to be looked at; say --force to remove it all the same", v->row.name);
	code = begin_removal(r, e);
	if (code < 0 || go_on_removing(v, e) == 0)
		return code;
	(void)set_removing(v, false, &commit);
	v->remover = 0;
	return -e->code;
}
