/*
 * What follows a committed change: starts, resets, captures, and what their ends mean. Each of these acts may be repeated:
 * after a crash of the keeper the same state leads to the same act.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

static void no_memory(struct keeper_vm *v)
{
	log_vm(LOG_ERR, v->row.name, NULL, "no memory for an operation; it will be tried again");
	keeper_retry(v, KEEPER_COMMIT_RETRY_MS);
}

/* What is known about a failure, for the row and for people. */
static struct store_detail failure(const struct op *op, const struct error *e)
{
	return (struct store_detail){.step = op->step[0] ? op->step : vm_verb_word((enum vm_verb)op->request.head.type),
			.reason = e->text,
			.took_us = op->began_us ? clock_boot_us() - op->began_us : 0};
}

/* The change that an op has led to. */
static void apply(struct keeper_vm *v, struct op *op, enum vm_happening what, struct store_detail *d)
{
	struct error e = ERROR_INIT;

	d->steps = op->rows;
	d->n_steps = op->n_rows;
	/* A failure is logged there and tried again. */
	if (keeper_apply(v, v->row.generation, what, d, &e) == 1)
		op->n_rows = 0;
}

/* The VM an op was for, when it is still the same life of the same VM. */
static struct keeper_vm *subject(const struct op *op)
{
	struct keeper_vm *v = keeper_find(op->k, op->request.name);

	return v && v->row.generation == op->generation ? v : NULL;
}

int life_check(const struct vm_result *res, struct error *e)
{
	struct in_addr a;

	if (host_key_check(res->host_key, e) < 0)
		return error_wrap(e, "the VM's host key");
	if (inet_pton(AF_INET, res->address, &a) != 1)
		return error_set(e, EPROTO, "'%s' is not an IPv4 address", res->address);
	return 0;
}

/* Records key and address, and makes them known to people's ssh. */
static int record_life(struct keeper_vm *v, const struct vm_result *res, bool *ret_published, struct error *e)
{
	struct error publish = ERROR_INIT;
	struct vm_row row;
	int r = life_check(res, e);

	if (r == 0)
		r = store_vm_set_life(v->k->store, v->row.name, v->row.generation, res->host_key, res->address, e);
	if (r == 0)
		r = store_vm_get(v->k->store, v->row.name, &row, e);
	if (r < 0)
		return r;
	v->row = row;
	/* Delivery uses the store's key, so only a person's ssh misses this file. */
	*ret_published = host_key_publish(v->k, &row, &publish) == 0;
	if (!*ret_published)
		log_vm(LOG_WARNING, row.name, NULL, "%s", publish.text);
	KILL_POINT("life-recorded");
	return 0;
}

static void plain_started(struct keeper_vm *v, const struct op *op, const struct error *cause)
{
	struct client *c = client_find(v->k, op->client);
	struct error e = *cause;
	bool published = false;

	if (e.code == 0)
		(void)record_life(v, &op->result, &published, &e);
	if (e.code) {
		client_reply_error(c, &e);
		return;
	}
	v->running = true;
	v->running_us = clock_boot_us();
	if (!published) {
		(void)error_set(&e, EIO, "%s runs, but %s/host-keys/%s could not be written, so that ssh will not know its key",
				v->row.name, v->k->conf.config_dir, v->row.name);
		client_reply_error(c, &e);
		return;
	}
	client_reply_ok(c, v);
}

/* What could only fail is not begun. */
static bool waits_for_libvirt(struct keeper_vm *v)
{
	const uint64_t ms = libvirt_grace_ms(v->k);

	if (ms)
		keeper_retry(v, ms);
	return ms > 0;
}

/* In standby it has no key yet, and the file must not tell the one of an earlier life. */
static int check_standby(struct keeper_vm *v, const struct op *op, struct error *e)
{
	if (!(op->request.flags & VM_FLAG_STANDBY))
		return error_set(e, EPROTO, "it was left paused, and nobody has asked for that");
	if (op->result.host_key[0])
		return error_set(e, EPROTO, "it is in standby and has a host key already");
	host_key_withdraw(v->k, v->row.name);
	return 0;
}

static void start_done(struct op *op, const struct error *cause)
{
	struct keeper_vm *v = subject(op);
	struct error e = *cause;
	bool published;
	int r;

	if (!v)
		return;
	if (v->row.state == STATE_PLAIN) {
		plain_started(v, op, cause);
		return;
	}
	if (e.code == 0) {
		r = op->result.standby ? check_standby(v, op, &e) : record_life(v, &op->result, &published, &e);
		if (r < 0)
			(void)str_copy(op->step, "record");
	}
	/* It says that it works, and libvirt has said before that it does not run any more. */
	if (e.code == 0 && v->stopped && v->stopped_generation == v->row.generation) {
		(void)error_set(&e, EIO, "the domain stopped while it was started");
		(void)str_copy(op->step, "alive");
	}
	if (e.code == 0) {
		struct store_detail d = {.took_us = clock_boot_us() - op->began_us};

		v->running = v->confirmed = true;
		v->running_us = clock_boot_us();
		v->blamed = 0;
		apply(v, op, HAPPENING_STARTED, &d);
	} else {
		const bool blame = cause->code && libvirt_to_blame(v, &e);
		struct store_detail d = failure(op, &e);

		apply(v, op, blame ? HAPPENING_INTERRUPTED : HAPPENING_START_FAILED, &d);
	}
}

bool starts_cold_only(const struct keeper_vm *v)
{
	return v->row.warm_failures >= KEEPER_WARM_FAILURES_MAX;
}

/* After a warm start, or a life out of one, has failed the next attempt is a cold one. */
bool starts_warm(const struct keeper_vm *v)
{
	if (v->row.state == STATE_STARTING)
		return v->row.warm;
	return v->row.state != STATE_PLAIN && v->row.attempts == 0 && !starts_cold_only(v) &&
			pool_settings(v->k, v->row.pool)->start == POOL_START_WARM;
}

uint64_t start_timeout_ms(const struct keeper_vm *v)
{
	return v->k->conf.start_timeout_ms + (starts_warm(v) ? KEEPER_WARM_START_MS : 0);
}

static uint32_t start_flags(const struct keeper_vm *v, const struct pool_settings *set)
{
	if (v->row.state == STATE_PLAIN)
		return VM_FLAG_PLAIN;
	if (!starts_warm(v))
		return 0;
	return VM_FLAG_WARM | (set->standby == POOL_STANDBY_PAUSED ? VM_FLAG_STANDBY : 0u);
}

void effect_start(struct keeper_vm *v)
{
	struct keeper *k = v->k;
	bool plain = v->row.state == STATE_PLAIN;
	const struct pool_settings *set = pool_settings(k, v->row.pool);
	struct op *op = op_new(k, VM_START, v, v->asker, start_timeout_ms(v) + KEEPER_START_GRACE_MS, start_done);

	v->asker = 0;
	v->confirmed = false;
	if (!op) {
		no_memory(v);
		return;
	}
	op->request.timeout_ms = (uint32_t)start_timeout_ms(v);
	op->request.flags = start_flags(v, set);
	(void)str_copy(op->request.key_line, plain ? k->admin_line : k->delivery_line);
	op->request.start_cpus = set->cpus;
	op->request.start_memory_mib = set->memory_mib;
	op->request.disk_mib_per_s = set->disk_mib_per_s;
	op->request.disk_iops = set->disk_iops;
	op->request.net_kib_per_s = set->net_kib_per_s;
	op_queue(op, v);
}

static void reset_done(struct op *op, const struct error *cause)
{
	struct keeper_vm *v = subject(op);
	struct error e = *cause;
	struct store_detail d = failure(op, &e);

	if (!v)
		return;
	if (libvirt_to_blame(v, &e)) {
		op_record(op);
		keeper_record(v, "libvirt", e.text, d.took_us);
		keeper_settle(v);
		return;
	}
	if (e.code == 0) {
		d.step = d.reason = NULL;
		d.evidence = op->request.flags & VM_FLAG_EVIDENCE ? op->result.text : NULL;
		v->running = false;
		v->running_us = clock_boot_us();
	}
	apply(v, op, e.code ? HAPPENING_RESET_FAILED : HAPPENING_RESET_DONE, &d);
}

/*
 * This reset ends in BROKEN, and what the last life left on its overlay may say why. Not when it could hold a secret that
 * still opens something: then the lease of that life got a delivery, and its registration is not known to be gone.
 */
static bool keeps_evidence(const struct keeper_vm *v)
{
	struct lease_row lease;

	if (v->row.attempts < STATE_ATTEMPTS_MAX || v->row.removing || v->seen_generation > v->row.generation)
		return false;
	if (!v->row.lease[0])
		return true;
	return store_lease_get(v->k->store, v->row.lease, &lease, NULL) == 0 &&
			(lease.delivered_wall_us == 0 || lease.registration == REGISTRATION_GONE);
}

/* What a life out of a memory image has failed of may be in the image: the next warm start makes another. */
static bool drops_memory(const struct keeper_vm *v)
{
	return v->row.warm && v->row.warm_failures > 0;
}

static void begin_reset(struct keeper_vm *v, uint32_t flags, op_done_cb done)
{
	struct op *op;

	if (waits_for_libvirt(v))
		return;
	op = op_new(v->k, VM_RESET, v, 0, KEEPER_RESET_TIMEOUT_MS, done);
	if (!op) {
		no_memory(v);
		return;
	}
	/* A domain of a life that only libvirt knows (an older database came back) has to go as well. */
	if (v->seen_generation > op->request.generation)
		op->request.generation = v->seen_generation;
	op->request.flags = flags | (v->row.trial ? VM_FLAG_TRIAL : 0u);
	op_queue(op, v);
}

void effect_reset(struct keeper_vm *v)
{
	/* Not both: the kept overlay stands on a layer of the image. */
	begin_reset(v, keeps_evidence(v) ? VM_FLAG_EVIDENCE : drops_memory(v) ? VM_FLAG_DROP_MEMORY : 0, reset_done);
}

static void halt_done(struct op *op, const struct error *cause)
{
	struct keeper_vm *v = subject(op);
	struct error e = *cause;
	struct store_detail d = failure(op, &e);

	if (!v)
		return;
	if (libvirt_to_blame(v, &e)) {
		keeper_settle(v);
		return;
	}
	if (e.code) {
		/* Of a BROKEN VM nothing changes: whichever listing still shows its guest has it tried again. */
		apply(v, op, HAPPENING_RESET_FAILED, &d);
		return;
	}
	op_record(op);
	KILL_POINT("halted");
	v->running = false;
	v->running_us = clock_boot_us();
	keeper_record(v, "halted", op->result.text, d.took_us);
}

void effect_halt(struct keeper_vm *v)
{
	begin_reset(v, VM_FLAG_HALT, halt_done);
}

static void capture_done(struct op *op, const struct error *e)
{
	struct keeper_vm *v = subject(op);
	struct error cause = *e;
	struct store_detail d = failure(op, &cause);
	bool blame;

	if (!v)
		return;
	/* A patch ends a life, for which libvirt is needed. */
	blame = op->request.head.type == VM_PATCH && libvirt_to_blame(v, &cause);
	if (cause.code == 0)
		d.step = d.reason = NULL;
	/* Whoever asked is answered by the change: PLAIN again is the failure, COLD or READY the success. */
	apply(v, op, blame ? HAPPENING_INTERRUPTED : cause.code ? HAPPENING_MAINTAIN_FAILED : HAPPENING_MAINTAINED, &d);
}

static void begin_patch(struct keeper_vm *v)
{
	struct op *op = op_new(v->k, VM_PATCH, v, 0, KEEPER_CAPTURE_TIMEOUT_MS, capture_done);

	if (!op) {
		no_memory(v);
		return;
	}
	(void)str_copy(op->request.image, v->row.patch);
	op_queue(op, v);
}

/* A VM that starts from another's clean state has nothing to be captured; it only gets its settings file. */
void effect_capture(struct keeper_vm *v)
{
	bool shares = v->row.clean_of[0];
	struct op *op;

	if (v->row.state == STATE_MAINTENANCE) {
		begin_patch(v);
		return;
	}
	op = op_new(v->k, shares ? VM_NEW : VM_CAPTURE, v, v->asker,
			shares ? KEEPER_WORK_TIMEOUT_MS : KEEPER_CAPTURE_TIMEOUT_MS, capture_done);

	v->asker = 0;
	if (op)
		op_queue(op, v);
	else
		no_memory(v);
}
