/* An admin's requests about VMs outside the pool, and questions to boxery-vm: NEW, START, STOP, CHECK, FILTER; UNINSTALL. */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static int later(struct op *op, struct keeper_vm *exclusive, struct error *e)
{
	if (!op)
		return error_set(e, ENOMEM, "no memory for this");
	op_queue(op, exclusive);
	return REPLY_LATER;
}

static int check_idle(const struct keeper_vm *v, struct error *e)
{
	if (v->row.removing)
		return error_set(e, EBUSY, "%s is being removed", v->row.name);
	if (v->op)
		return error_set(e, EBUSY, "%s: %s is under way", v->row.name,
				vm_verb_word((enum vm_verb)v->op->request.head.type));
	return 0;
}

static int check_plain(const struct keeper_vm *v, struct error *e)
{
	if (v->row.state == STATE_ADDING)
		return error_set(e, EBUSY, "%s is being captured for its pool", v->row.name);
	if (v->row.state != STATE_PLAIN)
		return error_set(e, EBUSY, "%s is in pool %s (%s), which starts and stops it; take it with 'boxery-host lease' or "
				"remove it with 'boxery-host pool rm'", v->row.name, v->row.pool,
				state_to_string(v->row.state));
	return check_idle(v, e);
}

static int check_disk(const struct keeper *k, uint32_t disk_gib, struct error *e)
{
	uint64_t free_mib, total_mib;
	int r = host_disk_mib(k, &free_mib, &total_mib, e);

	if (r < 0)
		return r;
	if (free_mib < KEEPER_DISK_SPARE_MIB)
		return error_set(e, ENOSPC, "%s has %" PRIu64 " MiB free; no VM is made with less than %d", k->conf.image_dir,
				free_mib, KEEPER_DISK_SPARE_MIB);
	if ((uint64_t)disk_gib * 1024 > total_mib)
		return error_set(e, ENOSPC, "a disk of %u GiB: the file system of %s has %" PRIu64 " GiB in all", disk_gib,
				k->conf.image_dir, total_mib / 1024);
	return 0;
}

static int check_resources(const struct keeper *k, const struct vm_row *row, struct error *e)
{
	uint64_t total = 0;
	int r;

	if (row->cpus < 1 || row->cpus > KEEPER_CPUS_MAX)
		return error_set(e, EINVAL, "%u CPUs: 1 to %d are possible", row->cpus, KEEPER_CPUS_MAX);
	if (row->memory_mib < KEEPER_MEMORY_MIN_MIB)
		return error_set(e, EINVAL, "%u MiB of memory: at least %d are needed", row->memory_mib,
				KEEPER_MEMORY_MIN_MIB);
	if (row->disk_gib < 1 || row->disk_gib > KEEPER_DISK_MAX_GIB)
		return error_set(e, EINVAL, "a disk of %u GiB: 1 to %d are possible", row->disk_gib, KEEPER_DISK_MAX_GIB);
	r = host_memory_total_mib(&total, e);
	if (r < 0)
		return r;
	if (row->memory_mib > total)
		return error_set(e, ENOMEM, "%u MiB of memory: the host has %" PRIu64 " MiB", row->memory_mib, total);
	return check_disk(k, row->disk_gib, e);
}

/* The row of a VM that did not come to be; what was made of it has gone already, or is said. */
static void new_undone(struct op *op, const struct error *e)
{
	struct keeper *k = op->k;
	struct keeper_vm *v = keeper_find(k, op->request.name);
	struct error cause = op->cause, forget = ERROR_INIT;

	if (e->code)
		(void)error_set(&cause, op->cause.code, "%s; what was begun could not be removed (%s): 'boxery-host rm %s'",
				op->cause.text, e->text, op->request.name);
	else if (v && store_vm_delete(k->store, op->request.name, &forget) < 0)
		log_vm(LOG_ERR, op->request.name, NULL, "%s", forget.text);
	else if (v)
		keeper_vm_forget(v);
	client_reply_error(client_find(k, op->client), &cause);
}

static void new_done(struct op *op, const struct error *e)
{
	struct keeper_vm *v = keeper_find(op->k, op->request.name);
	const struct error nothing = ERROR_INIT;
	struct op *undo;

	KILL_POINT("new-made");
	if (e->code == 0) {
		log_vm(LOG_INFO, op->request.name, NULL, "was made from image %s", op->request.image);
		client_reply_ok(client_find(op->k, op->client), NULL);
		return;
	}
	if (!op->making) { /* whatever is there was there before */
		op->cause = *e;
		new_undone(op, &nothing);
		return;
	}
	undo = v ? op_new(op->k, VM_REMOVE, v, op->client, KEEPER_WORK_TIMEOUT_MS, new_undone) : NULL;
	if (!undo) {
		client_reply_error(client_find(op->k, op->client), e);
		return;
	}
	undo->cause = *e;
	op_queue(undo, v);
}

int serve_new(struct request *r, struct error *e)
{
	const struct keeper_request *in = r->in;
	struct vm_row row = {
		.state = STATE_PLAIN,
		.cpus = in->cpus ? in->cpus : 2,
		.memory_mib = in->memory_mib ? in->memory_mib : 2048,
		.disk_gib = in->disk_gib ? in->disk_gib : 20,
	};
	struct keeper_vm *v;
	struct op *op;
	int code;

	if (r->vm)
		return error_set(e, EEXIST, "there is a VM '%s' already", in->name);
	if (!in->image[0])
		return error_set(e, EINVAL, "a VM is made from a base image; name one");
	(void)str_copy(row.name, in->name);
	(void)str_copy(row.image, in->image);
	code = check_resources(r->k, &row, e);
	if (code == 0)
		code = store_vm_insert(r->k->store, &row, e);
	if (code < 0)
		return code;
	KILL_POINT("new-inserted");
	code = keeper_vm_track(r->k, in->name, &v, e);
	if (code < 0)
		return code;
	op = op_new(r->k, VM_NEW, v, r->client->id, KEEPER_WORK_TIMEOUT_MS, new_done);
	if (op)
		op->request.flags = VM_FLAG_FRESH;
	return later(op, v, e);
}

int serve_start(struct request *r, struct error *e)
{
	struct keeper_vm *v = r->vm;
	int code = check_plain(v, e);

	if (code < 0)
		return code;
	if (v->row.clean_of[0])
		return error_set(e, EINVAL, "%s has no disk of its own: it was to start from the clean state of %s; 'boxery-host pool "
				"add %s' goes on with that", v->row.name, v->row.clean_of, v->row.name);
	if (v->running)
		return error_set(e, EALREADY, "%s runs already%s%s", v->row.name, v->row.address[0] ? ", at " : "",
				v->row.address);
	code = host_room(v, e);
	if (code < 0)
		return code;
	v->asker = r->client->id;
	code = keeper_apply(v, 0, HAPPENING_START, NULL, e);
	v->asker = 0;
	if (code < 0)
		return code;
	return v->op ? REPLY_LATER : error_set(e, ENOMEM, "no memory for this");
}

static void stop_done(struct op *op, const struct error *e)
{
	struct keeper_vm *v = keeper_find(op->k, op->request.name);

	if (e->code) {
		client_reply_error(client_find(op->k, op->client), e);
		return;
	}
	if (v) {
		v->running = false;
		v->running_us = clock_boot_us();
	}
	client_reply_ok(client_find(op->k, op->client), NULL);
}

int serve_stop(struct request *r, struct error *e)
{
	int code = check_plain(r->vm, e);
	struct op *op;

	if (code < 0)
		return code;
	op = op_new(r->k, VM_STOP, r->vm, r->client->id, KEEPER_STOP_TIMEOUT_MS + KEEPER_STOP_GRACE_MS, stop_done);
	if (op)
		op->request.timeout_ms = KEEPER_STOP_TIMEOUT_MS;
	return later(op, r->vm, e);
}

/* Also of failed checks there is a document: that is what was asked for. Only a child without a result has none. */
static void check_done(struct op *op, const struct error *e)
{
	struct client *c = client_find(op->k, op->client);
	struct keeper_reply reply = {0};
	struct error failed = ERROR_INIT;
	int document;

	if (!op->has_result) {
		client_reply_error(c, e);
		return;
	}
	if (!op->document)
		op->document = json_array();
	if (e->code)
		(void)json_array_append_new(op->document,
				json_pack("{s:s,s:b,s:s}", "name", op->step[0] ? op->step : "vm", "ok", 0, "text", e->text));
	if (list_document(json_pack("{s:O}", "checks", op->document), &document, &failed) < 0)
		client_reply_error(c, &failed);
	else
		client_reply(c, &reply, document);
}

int serve_check(struct request *r, struct error *e)
{
	return later(op_new(r->k, VM_CHECK, NULL, r->client->id, KEEPER_CHECK_TIMEOUT_MS, check_done), NULL, e);
}

static void plainly_done(struct op *op, const struct error *e)
{
	struct client *c = client_find(op->k, op->client);

	if (e->code)
		client_reply_error(c, e);
	else
		client_reply_ok(c, NULL);
}

int serve_filter(struct request *r, struct error *e)
{
	return later(op_new(r->k, VM_FILTER, r->vm, r->client->id, KEEPER_ASK_TIMEOUT_MS, plainly_done), NULL, e);
}

int serve_uninstall(struct request *r, struct error *e)
{
	struct op *op;

	if (r->k->n_vms)
		return error_set(e, EBUSY, "there are %zu VMs, %s is one of them; VMs are removed first", r->k->n_vms,
				r->k->vms[0]->row.name);
	op = op_new(r->k, VM_UNINSTALL, NULL, r->client->id, KEEPER_WORK_TIMEOUT_MS, plainly_done);
	if (op && r->in->flags & KEEPER_FLAG_FORCE)
		op->request.flags = VM_FLAG_FORCE;
	return later(op, NULL, e);
}
