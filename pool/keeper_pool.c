/*
 * Into the pool, out of it, and out of the world: POOL_ADD, POOL_REPAIR, REMOVE, POOL_REMOVE.
 *
 * A removal first brings the VM to rest. COLD, BROKEN and PLAIN VMs are removed as they are; anything else is reset first and
 * removed when it arrives in one of these (keeper_vm.removing, which also keeps the policy from starting it again). A
 * keeper that dies in between forgets the wish, and the VM is an ordinary pool VM again: the admin repeats the command.
 */
#include "base/str.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <errno.h>
#include <string.h>

int serve_pool_add(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	struct store_detail d = {.pool = r->in->pool[0] ? r->in->pool : POOL_DEFAULT};
	int code;

	if (v->row.state != STATE_PLAIN)
		return error_set(e, v->row.state == STATE_ADDING ? EBUSY : EALREADY, "%s is in pool %s already (%s)",
				v->row.name, v->row.pool, state_to_string(v->row.state));
	if (v->op || v->removing)
		return error_set(e, EBUSY, "%s: something else is under way with it", v->row.name);
	if (v->running)
		return error_set(e, EBUSY, "%s is running; what joins a pool is its disk, so stop it first: 'boxery-host stop %s'",
				v->row.name, v->row.name);
	v->asker = r->client->id;
	code = keeper_apply(v, 0, HAPPENING_ADD, &d, e);
	v->asker = 0;
	if (code < 0)
		return code;
	if (code == 0)
		return error_set(e, EBUSY, "%s cannot join a pool now", v->row.name);
	client_wait(r->client, r->in->flags & KEEPER_FLAG_WAIT ? CLIENT_READY : CLIENT_COLD);
	return REPLY_LATER;
}

int serve_pool_repair(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	int code;

	if (v->row.state == STATE_PLAIN)
		return error_set(e, EINVAL, "%s is not in a pool", v->row.name);
	if (v->row.state != STATE_BROKEN)
		return error_set(e, EALREADY, "%s is %s, not BROKEN; there is nothing to repair", v->row.name,
				state_to_string(v->row.state));
	if (v->op || v->removing)
		return error_set(e, EBUSY, "%s is being removed", v->row.name);
	v->short_lives = 0;
	code = keeper_apply(v, 0, HAPPENING_REPAIR, NULL, e);
	if (code < 0 || !(r->in->flags & KEEPER_FLAG_WAIT))
		return code < 0 ? code : 0;
	client_wait(r->client, CLIENT_READY);
	return REPLY_LATER;
}

static void remove_failed(struct keeper_vm *v, const struct error *e)
{
	client_reply_error(client_find(v->k, v->remover), e);
	v->removing = false;
	v->remover = 0;
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
	if (e.code == 0)
		(void)store_vm_delete(k->store, v->row.name, &e);
	if (e.code) {
		remove_failed(v, &e);
		return;
	}
	log_vm(LOG_NOTICE, v->row.name, NULL, "was removed");
	host_key_withdraw(k, v->row.name);
	c = client_find(k, v->remover);
	keeper_vm_forget(v);
	client_reply_ok(c, NULL);
}

void pool_removed_soon(struct keeper_vm *v)
{
	struct op *op = op_new(v->k, VM_REMOVE, v, v->remover, KEEPER_WORK_TIMEOUT_MS, remove_done);
	struct error e = ERROR_INIT;

	if (op) {
		op->request.flags = VM_FLAG_FORCE;
		op_queue(op, v);
	} else {
		(void)error_set(&e, ENOMEM, "no memory for this");
		remove_failed(v, &e);
	}
}

static int begin_removal(struct request *r)
{
	struct keeper_vm *v = r->vm;

	v->removing = true;
	v->remover = r->client->id;
	return REPLY_LATER;
}

int serve_remove(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;

	if (v->row.state != STATE_PLAIN)
		return error_set(e, EBUSY, "%s is in pool %s (%s); 'boxery-host pool rm %s' removes it", v->row.name,
				v->row.pool, state_to_string(v->row.state), v->row.name);
	if (v->op || v->removing)
		return error_set(e, EBUSY, "%s: something else is under way with it", v->row.name);
	if (v->running && !(r->in->flags & KEEPER_FLAG_FORCE))
		return error_set(e, EBUSY, "%s is running; stop it first, or say --force", v->row.name);
	(void)begin_removal(r);
	pool_removed_soon(v);
	return REPLY_LATER;
}

int serve_pool_remove(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	struct store_detail d = {.reason = "it is removed from its pool", .outcome = "removed"};
	enum vm_state state = v->row.state;
	int code;

	if (state == STATE_PLAIN)
		return error_set(e, EINVAL, "%s is not in a pool; 'boxery-host rm %s' removes it", v->row.name, v->row.name);
	if (v->removing)
		return error_set(e, EBUSY, "%s is being removed already", v->row.name);
	if (state == STATE_ADDING || state == STATE_MAINTENANCE)
		return error_set(e, EBUSY, "%s is being captured", v->row.name);
	if (state_has_lease(state) && !(r->in->flags & KEEPER_FLAG_FORCE))
		return error_set(e, EBUSY, "%s is leased (lease %s, %s); release it first, or say --force", v->row.name,
				v->row.lease, state_to_string(state));
	(void)begin_removal(r);
	if (state == STATE_RESETTING) /* there already; a reset that waits for its next attempt still has it */
		return REPLY_LATER;
	if (state == STATE_COLD || state == STATE_BROKEN) {
		keeper_retry(v, 0);
		pool_removed_soon(v);
		return REPLY_LATER;
	}
	code = keeper_apply(v, 0, HAPPENING_DOUBT, &d, e);
	if (code < 0) {
		v->removing = false;
		v->remover = 0;
		return code;
	}
	return REPLY_LATER;
}
