/*
 * Out of standby: a VM that waits paused is resumed for the lease that has just been committed, and made a life of its own.
 *
 * The order is that of any act: READY -> LEASED with its lease is committed, then boxery-vm wakes it (VM_WAKE), then one
 * more commit records its host key and address, and only then is LEASE answered. A person waits for this, so it has places
 * of its own (keeper_op.c), its steps are kept in memory until that one commit, and nothing else is written on the way.
 *
 * A wake-up that fails has cost nobody anything but time: the lease was never told to anyone. It is closed with the reset
 * (WAKE_FAILED, counted as the VM's failure), and whoever asked stands in the queue again, where the time of asking puts him.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <errno.h>

void wake_failed(struct keeper_vm *v, uint64_t client, enum vm_happening what, const struct store_detail *d)
{
	const struct store_detail ends = {
		.step = d->step, .reason = d->reason, .took_us = d->took_us, .outcome = "wake-failed"};
	struct error e = ERROR_INIT;
	struct client *c;

	v->op = op_cancel(v->op);
	(void)keeper_apply(v, v->row.generation, what, &ends, &e); /* tried again by keeper_settle() */
	c = client_find(v->k, client);
	if (c)
		lease_again(c, v, d->reason);
}

static int record(struct keeper_vm *v, struct op *op, struct error *e)
{
	const struct vm_result *res = &op->result;
	struct error publish = ERROR_INIT;
	struct vm_row row;
	int r = life_check(res, e);

	if (r == 0)
		r = store_vm_woken(v->k->store, v->row.name, v->row.generation, res->host_key, res->address, op->rows,
				op->n_rows, e);
	if (r == 0)
		r = store_vm_get(v->k->store, v->row.name, &row, e);
	if (r < 0)
		return r;
	v->row = row;
	op->n_rows = 0;
	KILL_POINT("wake-recorded");
	if (host_key_publish(v->k, &row, &publish) < 0)
		log_vm(LOG_WARNING, row.name, row.lease, "%s", publish.text);
	return 0;
}

static void woken(struct op *op, const struct error *cause)
{
	struct keeper_vm *v = keeper_find(op->k, op->request.name);
	struct store_detail d = {.step = op->step, .took_us = clock_boot_us() - op->began_us};
	struct error e = *cause;
	struct client *c;
	bool blame;

	if (!v || v->row.generation != op->generation || v->row.state != STATE_LEASED)
		return;
	/* It says that all is well, and libvirt has said before that it does not run any more. */
	if (e.code == 0 && v->stopped && v->stopped_generation == v->row.generation) {
		(void)error_set(&e, EIO, "the domain stopped while it was woken");
		d.step = "alive";
	}
	if (e.code == 0 && record(v, op, &e) < 0)
		d.step = "record";
	if (e.code) {
		if (!d.step[0])
			d.step = "wake";
		blame = cause->code && libvirt_to_blame(v, &e);
		d.reason = e.text;
		op_record(op);
		wake_failed(v, op->client, blame ? HAPPENING_INTERRUPTED : HAPPENING_WAKE_FAILED, &d);
		return;
	}
	c = client_find(v->k, op->client);
	v->running_us = clock_boot_us();
	v->blamed = 0;
	log_vm(LOG_INFO, v->row.name, v->row.lease, "is awake");
	if (lease_hand_over(c, v, &e) < 0)
		client_reply_error(c, &e);
}

int wake_begin(struct client *c, struct keeper_vm *v, struct error *e)
{
	struct op *op = op_new(v->k, VM_WAKE, v, c->id, KEEPER_WAKE_TIMEOUT_MS + KEEPER_WAKE_GRACE_MS, woken);

	if (!op)
		return error_set(e, ENOMEM, "no memory for an operation");
	op->request.timeout_ms = KEEPER_WAKE_TIMEOUT_MS;
	(void)str_copy(op->request.key_line, v->k->delivery_line);
	client_wait(c, CLIENT_WORK);
	op_queue(op, v);
	return 0;
}
