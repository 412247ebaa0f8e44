/*
 * Operations: one exec'd boxery-vm each, born with one socket, told one verb, believed only by its result. Most are told to a
 * child that was started ahead (keeper_spare.c); for the rest of its life it is one as any other.
 *
 * An op is queued, runs, and is done; op.done() is called exactly once unless it was cancelled, with e->code 0 only when a
 * result with code 0 arrived. Ends without one (crash, deadline, garbage) are failures with words of our own. After its
 * result a child has a moment to end by itself.
 *
 * Four classes share the machine. Work (starts, captures, patches) and resets count against BOXERY_PARALLEL together, but one reset
 * more may run: starts that hang must not keep a guest alive that has to go. What only asks, and the short things an admin
 * does, have a limit of their own, and so have wake-ups, which come before all others. An op that changes a VM is the VM's
 * only one (keeper_vm.op).
 *
 * One that hangs must not hold the others up until its deadline: when a third of its time is over it still runs, but does not
 * hold its place any more (op.slow). Only so many may do that at once, so that a host where everything hangs is not filled
 * with children.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "linux/spawn.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

const char *vm_verb_word(enum vm_verb verb)
{
	static const char *const words[VM_SETTLE + 1] = {"?", "CHECK", "NEW", "START", "RESET", "STOP", "CAPTURE", "REMOVE",
			"FILTER", "LIST", "WATCH", "GRANT", "WAKE", "UNINSTALL", "PATCH", "SETTLE"};

	return (unsigned)verb < ARRAY_SIZE(words) ? words[verb] : "?";
}

static enum vm_verb op_verb(const struct op *op)
{
	return (enum vm_verb)op->request.head.type;
}

static unsigned *op_class(const struct op *op)
{
	enum vm_verb verb = op_verb(op);

	if (verb == VM_RESET)
		return &op->k->resets_running;
	if (verb == VM_WAKE)
		return &op->k->wakes_running;
	return verb == VM_START || verb == VM_CAPTURE || verb == VM_PATCH ? &op->k->work_running : &op->k->asks_running;
}

static void op_leave(struct op *op)
{
	if (!op->running)
		return;
	if (op->slow)
		op->k->slow_running--;
	else
		--*op_class(op);
	op->running = op->slow = false;
}

static int on_slow(sd_event_source *s, uint64_t us, void *userdata)
{
	struct op *op = userdata;
	struct keeper *k = op->k;

	op->slow_timer = sd_event_source_disable_unref(op->slow_timer);
	if (k->slow_running >= KEEPER_SLOW_MAX)
		return 0;
	log_vm(LOG_NOTICE, op->request.name, NULL, "%s takes long; others go on beside it",
			vm_verb_word((enum vm_verb)op->request.head.type));
	op->slow = true;
	k->slow_running++;
	--*op_class(op);
	keeper_kick(k);
	return 0;
}

static bool op_may_run(const struct op *op)
{
	const struct keeper *k = op->k;
	const unsigned *class = op_class(op);
	unsigned both = k->work_running + k->resets_running;

	if (class == &k->asks_running)
		return k->asks_running < KEEPER_ASKS_MAX;
	if (class == &k->wakes_running)
		return k->wakes_running < KEEPER_WAKES_MAX;
	return both < k->conf.parallel + (class == &k->resets_running ? 1 : 0);
}

bool ops_room(const struct keeper *k)
{
	const struct op *op;
	unsigned waiting = 0;

	TAILQ_FOREACH(op, &k->ops, link)
		waiting += !op->running && op_class(op) != &k->asks_running && op_class(op) != &k->wakes_running;
	return k->work_running + k->resets_running + waiting < k->conf.parallel;
}

struct op *op_new(struct keeper *k, enum vm_verb verb, struct keeper_vm *v, uint64_t client, uint64_t timeout_ms,
		op_done_cb done)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->k = k;
	op->fd = -1;
	op->client = client;
	op->timeout_ms = timeout_ms;
	op->done = done;
	op->request.head = MSG_HEAD((uint16_t)verb, struct vm_request, 1);
	op->request.timeout_ms = timeout_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)timeout_ms;
	if (v) {
		memcpy(op->request.name, v->row.name, sizeof(op->request.name));
		memcpy(op->request.image, v->row.image, sizeof(op->request.image));
		memcpy(op->request.clean_of, v->row.clean_of, sizeof(op->request.clean_of));
		op->generation = op->request.generation = v->row.generation;
		op->request.slot = v->row.slot;
		op->request.cpus = v->row.cpus;
		op->request.memory_mib = v->row.memory_mib;
		op->request.disk_gib = v->row.disk_gib;
	}
	return op;
}

void op_queue(struct op *op, struct keeper_vm *exclusive)
{
	if (exclusive) {
		exclusive->op = op;
		op->exclusive = true;
	}
	/* A guest that has to go comes before one that is wanted. */
	if (op_verb(op) == VM_RESET)
		TAILQ_INSERT_HEAD(&op->k->ops, op, link);
	else
		TAILQ_INSERT_TAIL(&op->k->ops, op, link);
	keeper_kick(op->k);
}

/* Takes it out of every list and ends its child; the struct is left. */
static void op_detach(struct op *op)
{
	struct keeper_vm *v = op->exclusive ? keeper_find(op->k, op->request.name) : NULL;

	TAILQ_REMOVE(&op->k->ops, op, link);
	op_leave(op);
	if (v && v->op == op)
		v->op = NULL;
	loop_child_kill(op->child);
	op->child = NULL;
	op->io = sd_event_source_disable_unref(op->io);
	op->grace = sd_event_source_disable_unref(op->grace);
	op->slow_timer = sd_event_source_disable_unref(op->slow_timer);
	op->record = sd_event_source_disable_unref(op->record);
	op->fd = fd_close(op->fd);
}

static void op_free(struct op *op)
{
	listing_free(&op->listing);
	json_decref(op->document);
	free(op->rows);
	free(op);
}

struct op *op_cancel(struct op *op)
{
	if (op) {
		op_detach(op);
		op_record(op);
		keeper_kick(op->k);
		op_free(op);
	}
	return NULL;
}

static void op_finish(struct op *op, const struct error *e)
{
	struct keeper *k = op->k;
	uint64_t took_us = clock_boot_us() - op->began_us;

	op_detach(op);
	if (e->code)
		log_vm(LOG_WARNING, op->request.name, NULL, "%s failed: %s", vm_verb_word(op_verb(op)), e->text);
	else
		log_vm(LOG_DEBUG, op->request.name, NULL, "%s took %" PRIu64 " ms", vm_verb_word(op_verb(op)),
				took_us / 1000);
	KILL_POINT_OF("result", vm_verb_word(op_verb(op)));
	op->done(op, e);
	op_record(op);
	op_free(op);
	keeper_kick(k);
}

/* The child's result in the keeper's words. */
static void op_judge(const struct op *op, int status, bool timed_out, struct error *e)
{
	const char *verb = vm_verb_word(op_verb(op));
	const struct vm_result *res = &op->result;

	if (op->broken)
		(void)error_set(e, EPROTO, "boxery-vm %s said something that cannot be understood", verb);
	else if (op->has_result && res->code == 0)
		error_clear(e);
	else if (op->has_result)
		(void)error_set(e, res->code < 0 && res->code > -4096 ? -res->code : EIO, "%s",
				res->text[0] ? res->text : "boxery-vm failed and did not say why");
	else if (timed_out)
		(void)error_set(e, ETIMEDOUT, "boxery-vm %s had no result within %" PRIu64 " s and was killed", verb,
				(op->timeout_ms + 999) / 1000);
	else if (WIFSIGNALED(status))
		(void)error_set(e, EIO, "boxery-vm %s died by signal %d without a result", verb, WTERMSIG(status));
	else
		(void)error_set(e, EIO, "boxery-vm %s ended with status %d without a result", verb, WEXITSTATUS(status));
}

static int on_grace(sd_event_source *s, uint64_t us, void *userdata)
{
	struct op *op = userdata;
	struct error e = ERROR_INIT;

	op_judge(op, 0, false, &e);
	op_finish(op, &e);
	return 0;
}

/* The steps are for people: a failure to write them fails nothing. */
void op_record(struct op *op)
{
	struct error e = ERROR_INIT;

	op->record = sd_event_source_disable_unref(op->record);
	if (op->n_rows && store_events(op->k->store, op->rows, op->n_rows, &e) < 0)
		log_vm(LOG_ERR, op->request.name, NULL, "cannot record events: %s", e.text);
	op->n_rows = 0;
}

static int on_record(sd_event_source *s, uint64_t us, void *userdata)
{
	op_record(userdata);
	return 0;
}

/*
 * Kept for the commit that follows the operation, since somebody waits for its end and each commit waits for a disk; but what
 * takes long is told meanwhile. Without memory the row is lost.
 */
static void keep_step(struct op *op, const struct keeper_vm *v, const struct vm_step *step)
{
	struct event_row *rows = reallocarray(op->rows, op->n_rows + 1, sizeof(*rows));

	if (!rows)
		return;
	op->rows = rows;
	rows[op->n_rows] = (struct event_row){.wall_us = clock_wall_us(), .boot_us = clock_boot_us(),
			.generation = v->row.generation, .took_us = step->took_us};
	(void)str_copy(rows[op->n_rows].vm, v->row.name);
	(void)str_copy(rows[op->n_rows].lease, v->row.lease);
	(void)str_copy(rows[op->n_rows].kind, step->step);
	(void)str_copy(rows[op->n_rows].text, step->text);
	op->n_rows++;
	if (!op->record && op_verb(op) != VM_WAKE)
		(void)loop_timer(op->k->event, &op->record, KEEPER_STEPS_MS, on_record, op, NULL);
}

static void op_step(struct op *op, const struct vm_step *step)
{
	struct keeper_vm *v = op->request.name[0] ? keeper_find(op->k, op->request.name) : NULL;
	char text[KEEPER_TEXT_MAX];

	if (++op->steps > KEEPER_STEPS_MAX) {
		op->broken = true;
		return;
	}
	if (op_verb(op) == VM_NEW && str_equal(step->step, VM_STEP_MAKING)) {
		op->making = true; /* for us, not for people */
		return;
	}
	if (str_format(text, "%s%s%s", step->step, step->text[0] ? ": " : "", step->text) < 0)
		(void)str_copy(text, step->step);
	if (op_verb(op) == VM_CHECK) {
		/* Kept for the document; the verdict on the last one is in the result. */
		json_t *check = json_pack("{s:s,s:b,s:s}", "name", step->step, "ok", 1, "text", step->text);

		if (!op->document)
			op->document = json_array();
		(void)json_array_append_new(op->document, check);
	}
	if (v)
		keep_step(op, v, step);
	if (v && op->exclusive)
		keeper_progress(v, op->client, text);
	else
		client_progress(client_find(op->k, op->client), text);
}

static void op_message(struct op *op, const union vm_answer *a)
{
	if (op->has_result) {
		op->broken = true; /* nothing comes after a result */
	} else if (a->head.type == VM_STEP) {
		op_step(op, &a->step);
	} else if (a->head.type == VM_ENTRY) {
		if (op_verb(op) != VM_LIST || listing_add(&op->listing, &a->entry) < 0)
			op->broken = true;
	} else {
		op->has_result = true;
		op->result = a->result;
		(void)str_copy(op->step, a->result.step);
		if (loop_timer(op->k->event, &op->grace, KEEPER_RESULT_GRACE_MS, on_grace, op, NULL) < 0)
			op->broken = true; /* out of memory: without the timer it could hang for long */
	}
}

/* Reads at most `batch`; true when there is nothing more. */
static bool op_read(struct op *op, unsigned batch)
{
	struct error e = ERROR_INIT;
	union vm_answer a;

	for (unsigned i = 0; i < batch && !op->broken; i++) {
		int r = vm_answer_receive(op->fd, false, &a, &e);

		if (r == -EAGAIN)
			return false;
		if (r == 0 || r == -ECONNRESET)
			return true;
		if (r < 0) {
			log_vm(LOG_WARNING, op->request.name, NULL, "%s", e.text);
			op->broken = true;
		} else {
			op_message(op, &a);
		}
	}
	return op->broken;
}

static int on_op_io(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	struct op *op = userdata;
	struct error e = ERROR_INIT;
	bool ended = op_read(op, KEEPER_READ_BATCH);

	if (op->broken) {
		op_judge(op, 0, false, &e);
		op_finish(op, &e);
	} else if (ended) {
		op->io = sd_event_source_disable_unref(op->io); /* the child's end says the rest */
	}
	return 0;
}

static void on_op_child(void *userdata, int status, bool timed_out)
{
	struct op *op = userdata;
	struct error e = ERROR_INIT;

	op->child = NULL; /* the loop frees it */
	if (op->io)
		(void)op_read(op, KEEPER_STEPS_MAX + KEEPER_ENTRIES_MAX + 2);
	op_judge(op, status, timed_out, &e);
	op_finish(op, &e);
}

int vm_child(int *ret_fd, struct child *ret, struct error *e)
{
	const char *const argv[] = {"boxery-vm", NULL};
	CLEANUP_FD int ours = -1, theirs = -1;
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	char path[PATH_MAX];
	int pair[2] = {-1, -1}, r = program_path("boxery-vm", path, sizeof(path), e);

	if (r == 0)
		r = msg_pair(pair, e);
	if (r < 0)
		return r;
	ours = pair[0];
	theirs = pair[1];
	if (fcntl(ours, F_SETFL, fcntl(ours, F_GETFL) | O_NONBLOCK) < 0)
		return error_errno(e, errno, "cannot prepare a socket");
	o.program = path;
	o.argv = argv;
	o.fds = &theirs;
	o.n_fds = 1;
	r = spawn(&o, &c, e);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(ours);
	*ret = c;
	c = CHILD_INIT;
	return 0;
}

static int op_spawn(struct op *op, struct error *e)
{
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	int r = vm_child(&op->fd, &c, e);

	if (r == 0)
		r = msg_send(op->fd, &op->request, NULL, 0, e);
	return r < 0 ? r : loop_child_add(op->k->event, &c, op->timeout_ms, on_op_child, op, &op->child, e);
}

static int op_start(struct op *op, struct error *e)
{
	int r;

	if (spare_take(op->k, &op->request, &op->fd, &op->child))
		r = loop_child_pass(op->child, op->timeout_ms, on_op_child, op, e);
	else
		r = op_spawn(op, e);
	if (r == 0) {
		r = sd_event_add_io(op->k->event, &op->io, op->fd, EPOLLIN, on_op_io, op);
		if (r < 0)
			(void)error_errno(e, -r, "cannot watch boxery-vm");
	}
	if (r >= 0)
		(void)loop_timer(op->k->event, &op->slow_timer, op->timeout_ms / KEEPER_SLOW_PART, on_slow, op, NULL);
	if (r >= 0)
		KILL_POINT_OF("spawned", vm_verb_word(op_verb(op)));
	return r < 0 ? r : 0;
}

/* The first that may run, a wake-up before all others; starting one can end another, so the list is walked anew each time. */
static struct op *next_op(struct keeper *k)
{
	struct op *op, *first = NULL;

	TAILQ_FOREACH(op, &k->ops, link) {
		if (op->running || !op_may_run(op))
			continue;
		if (op_verb(op) == VM_WAKE)
			return op;
		if (!first)
			first = op;
	}
	return first;
}

void ops_run(struct keeper *k)
{
	struct op *op;

	while (!k->stopping && (op = next_op(k))) {
		struct error e = ERROR_INIT;

		op->running = true;
		++*op_class(op);
		op->began_us = clock_boot_us();
		if (op_start(op, &e) < 0)
			op_finish(op, &e);
	}
}
