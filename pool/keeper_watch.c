/*
 * What libvirt says by itself. One child of boxery-vm (VM_WATCH) lives as long as the keeper; it reports the end of every
 * domain at once, and lists all of them every few seconds, so that an end that was missed is seen in the next listing.
 *
 * A listing is older than its arrival. What began after the listing may have begun cannot be judged by it: `floor` is the
 * arrival of whatever the child said before the listing (its birth, the last snapshot, the loss of libvirt), and only what
 * was already so before the floor is compared.
 *
 * At start-up a VM_LIST is asked as well, again and again until libvirt answers; whichever listing comes first adopts.
 * While libvirt does not answer the keeper goes on serving, but starts nothing.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "linux/spawn.h"
#include "pool/keeper.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>

struct watch {
	struct keeper *k;
	int fd;
	struct loop_child *child;
	sd_event_source *io, *respawn, *relist;
	struct listing listing;
	uint64_t floor_us;
	uint64_t delay_ms, list_delay_ms;
};

static uint64_t next_delay(uint64_t ms)
{
	return ms * 2 < KEEPER_RECONNECT_MAX_MS ? ms * 2 : KEEPER_RECONNECT_MAX_MS;
}

static bool is_coming_up(const struct keeper_vm *v)
{
	return v->row.state == STATE_STARTING || (v->row.state == STATE_LEASED && vm_sleeps(&v->row));
}

static int on_stopped_grace(sd_event_source *source, uint64_t us, void *userdata)
{
	struct keeper_vm *v = userdata;

	v->stopped = sd_event_source_disable_unref(v->stopped);
	if (is_coming_up(v) && v->row.generation == v->stopped_generation)
		keeper_life_ended(v, v->stopped_generation, HAPPENING_STOPPED, NULL, "the domain stopped while it was started");
	return 0;
}

/*
 * A start or a wake-up that fails ends its domain itself, and libvirt's word of that may come before its own, which has the
 * step and the reason. So that is heard first, for a while.
 */
static bool start_will_say(struct keeper_vm *v, uint64_t generation)
{
	if (!is_coming_up(v) || !v->op)
		return false;
	v->stopped_generation = generation;
	return v->stopped || loop_timer(v->k->event, &v->stopped, KEEPER_STOPPED_GRACE_MS, on_stopped_grace, v, NULL) == 0;
}

static void on_stopped(struct keeper *k, const struct vm_event_msg *event)
{
	struct keeper_vm *v = keeper_find(k, event->name);
	char reason[KEEPER_TEXT_MAX];

	if (!v)
		return;
	/* 0 would mean "whatever the current life is" to the store: a domain without a generation is none of our lives. */
	if (event->generation == 0 || event->generation != v->row.generation) {
		log_vm(LOG_DEBUG, v->row.name, NULL, "generation %" PRIu64 " has stopped, %" PRIu64 " is current",
				event->generation, v->row.generation);
		return;
	}
	v->running = false;
	v->running_us = clock_boot_us();
	if (str_format(reason, "the domain has stopped%s%s", event->text[0] ? ": " : "", event->text) < 0)
		(void)str_copy(reason, "the domain has stopped");
	if (v->row.state == STATE_PLAIN)
		keeper_record(v, "stopped", event->text, 0);
	if (!start_will_say(v, event->generation))
		keeper_life_ended(v, event->generation, HAPPENING_STOPPED, NULL, reason);
}

static void on_console_cut(struct keeper *k, const struct vm_event_msg *event)
{
	struct keeper_vm *v = keeper_find(k, event->name);

	/* Once per life: the guest can cause it as often as it likes. */
	if (v && event->generation == v->row.generation && v->console_cut != event->generation) {
		v->console_cut = event->generation;
		keeper_record(v, "console", "its console reached the cap; the rest is dropped", 0);
	}
}

static int on_event(struct watch *w, const struct vm_event_msg *event, struct error *e)
{
	uint64_t now = clock_boot_us();

	switch (event->kind) {
	case VM_EVENT_SNAPSHOT:
		keeper_reconcile(w->k, &w->listing, w->floor_us);
		w->listing.n = 0;
		w->floor_us = now;
		w->delay_ms = KEEPER_RECONNECT_MS;
		return 0;
	case VM_EVENT_STOPPED:
		on_stopped(w->k, event);
		return 0;
	case VM_EVENT_DISCONNECTED:
		w->listing.n = 0;
		w->floor_us = now;
		libvirt_is(w->k, false, event->text);
		return 0;
	case VM_EVENT_CONSOLE_CUT:
		on_console_cut(w->k, event);
		return 0;
	case VM_EVENT_UNGUARDED:
		log_full(LOG_ALERT, NULL, "%s", event->text);
		return 0;
	default:
		return error_set(e, EBADMSG, "boxery-vm WATCH sent an event of kind %d", event->kind);
	}
}

static int watch_spawn(struct watch *w, struct error *e);

static int on_respawn(sd_event_source *s, uint64_t us, void *userdata)
{
	struct watch *w = userdata;
	struct error e = ERROR_INIT;

	w->respawn = sd_event_source_disable_unref(w->respawn);
	if (watch_spawn(w, &e) < 0)
		log_error("%s", e.text);
	return 0;
}

/* Ends what is left of the child and starts another after a while. */
static void watch_again(struct watch *w, const char *why)
{
	struct error e = ERROR_INIT;

	loop_child_kill(w->child);
	w->child = NULL;
	w->io = sd_event_source_disable_unref(w->io);
	w->fd = fd_close(w->fd);
	w->listing.n = 0;
	log_warning("boxery-vm WATCH %s; again in %" PRIu64 " ms", why, w->delay_ms);
	if (loop_timer(w->k->event, &w->respawn, w->delay_ms, on_respawn, w, &e) < 0)
		log_error("%s", e.text);
	w->delay_ms = next_delay(w->delay_ms);
}

static int on_watch_io(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	struct watch *w = userdata;
	struct error e = ERROR_INIT;
	union vm_answer a;

	for (unsigned i = 0; i < KEEPER_READ_BATCH; i++) {
		int r = vm_answer_receive(w->fd, true, &a, &e);

		if (r == -EAGAIN)
			return 0;
		if (r == 1 && a.head.type == VM_ENTRY)
			r = listing_add(&w->listing, &a.entry) < 0 ? error_set(&e, E2BIG, "a listing without an end") : 1;
		else if (r == 1 && a.head.type == VM_EVENT)
			r = on_event(w, &a.event, &e) < 0 ? -e.code : 1;
		else if (r == 1 && a.head.type == VM_RESULT)
			r = error_set(&e, EIO, "has ended: %s", a.result.text[0] ? a.result.text : "it did not say why");
		if (r <= 0) {
			watch_again(w, r == 0 ? "has ended" : e.text);
			return 0;
		}
	}
	return 0;
}

static void on_watch_child(void *userdata, int status, bool timed_out)
{
	struct watch *w = userdata;

	w->child = NULL;
	/* What it said last is still in the socket; then it is over, even if something it started still holds its end. */
	if (w->io)
		(void)on_watch_io(w->io, w->fd, EPOLLIN, w);
	if (w->io)
		watch_again(w, "has ended");
}

static int watch_spawn(struct watch *w, struct error *e)
{
	const struct vm_request request = {.head = MSG_HEAD(VM_WATCH, struct vm_request, 1)};
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	int r = vm_child(&w->fd, &c, e);

	if (r == 0)
		r = msg_send(w->fd, &request, NULL, 0, e);
	w->floor_us = clock_boot_us();
	if (r == 0) {
		r = sd_event_add_io(w->k->event, &w->io, w->fd, EPOLLIN, on_watch_io, w);
		if (r < 0)
			(void)error_errno(e, -r, "cannot watch boxery-vm WATCH");
	}
	if (r >= 0)
		r = loop_child_add(w->k->event, &c, 0, on_watch_child, w, &w->child, e);
	if (r < 0)
		watch_again(w, "could not be started");
	return r < 0 ? r : 0;
}

static void relist(struct watch *w);

static int on_relist(sd_event_source *s, uint64_t us, void *userdata)
{
	struct watch *w = userdata;

	w->relist = sd_event_source_disable_unref(w->relist);
	relist(w);
	return 0;
}

static void list_done(struct op *op, const struct error *cause)
{
	struct keeper *k = op->k;
	struct error e = ERROR_INIT;

	if (cause->code == 0) {
		keeper_reconcile(k, &op->listing, op->began_us);
		return;
	}
	if (!k->watch || k->listed || k->stopping)
		return;
	libvirt_is(k, false, cause->text);
	if (loop_timer(k->event, &k->watch->relist, k->watch->list_delay_ms, on_relist, k->watch, &e) < 0)
		log_error("%s", e.text);
	k->watch->list_delay_ms = next_delay(k->watch->list_delay_ms);
}

static void relist(struct watch *w)
{
	struct op *op = w->k->listed ? NULL : op_new(w->k, VM_LIST, NULL, 0, KEEPER_ASK_TIMEOUT_MS, list_done);

	if (op)
		op_queue(op, NULL);
}

int watch_start(struct keeper *k, struct error *e)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (!w)
		return error_errno(e, ENOMEM, "cannot watch libvirt");
	w->k = k;
	w->fd = -1;
	w->delay_ms = w->list_delay_ms = KEEPER_RECONNECT_MS;
	k->watch = w;
	(void)watch_spawn(w, e); /* a failure is tried again by itself */
	error_clear(e);
	relist(w);
	return 0;
}

struct watch *watch_free(struct watch *w)
{
	if (w) {
		loop_child_kill(w->child);
		(void)sd_event_source_disable_unref(w->io);
		(void)sd_event_source_disable_unref(w->respawn);
		(void)sd_event_source_disable_unref(w->relist);
		w->fd = fd_close(w->fd);
		listing_free(&w->listing);
		free(w);
	}
	return NULL;
}
