/*
 * The lease and what the keeper says about it. The lease is asked for on the keeper link's main connection, which binds it to
 * that. When the keeper is gone, the link makes it run again: a guest that has its config was left running, and the lease is
 * bound to the new connection; an earlier one is reset by the keeper's start, and this waits to hear of that.
 *
 * A wait for a VM is cut into slices, so that no request to the keeper is open for longer than its link allows.
 */
#include "manager/once.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "boxery-config.h"
#include "linux/log.h"
#include "pool/state.h"

#include <errno.h>
#include <string.h>
#include <sys/utsname.h>

#define WAIT_SLICE_MS 20000
#define UNLISTED "does not list it" /* its end was not seen; a crash would have been told */

void once_ask(struct once *o, struct keeper_request *r, int secret_fd, keeper_cb cb)
{
	struct error e = ERROR_INIT;
	int code = keeper_link_ask(o->keeper, r, secret_fd, cb, o, 0, &e);

	/* Of a keeper that is gone on_down() tells, which also waits for its return; here it may be seen a moment earlier. */
	if (code < 0 && code != -ENOTCONN && code != -EPIPE && code != -ECONNRESET)
		once_fail(o, &e);
}

/* GitHub's word for the architecture. */
static const char *architecture(void)
{
	static struct utsname u;

	if (uname(&u) < 0)
		return "";
	if (str_equal(u.machine, "x86_64"))
		return "x64";
	return str_equal(u.machine, "aarch64") ? "arm64" : str_starts(u.machine, "arm") ? "arm" : u.machine;
}

static void fail_of(struct once *o, const struct keeper_link_answer *a)
{
	struct error e = ERROR_INIT;

	if (a->lost)
		return; /* on_down() follows */
	(void)error_set(&e, a->code < 0 ? -a->code : EIO, "%s", a->text);
	once_fail(o, &e);
}

static void on_greeted(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;

	if (a->code < 0) {
		fail_of(o, a);
		return;
	}
	once_enter(o, ONCE_IDLE);
	once_send(o, LINK_HELLO, json_pack("{s:i,s:i,s:s,s:s,s:s}", "protocol", LINK_PROTOCOL, "oldest", LINK_OLDEST, "version",
			BOXERY_VERSION, "host", a->reply->name, "arch", architecture()));
}

void once_greet(struct once *o)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_HELLO);
	once_ask(o, &r, -1, on_greeted);
}

static void on_planned(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;

	if (o->state != ONCE_PLANNING)
		return;
	if (a->code < 0) {
		fail_of(o, a);
		return;
	}
	once_enter(o, ONCE_LEASED);
	once_send(o, LINK_LEASED, json_pack("{s:s,s:s,s:s}", "vm", o->vm, "lease", o->lease, "runner", o->runner_name));
}

static void on_leased(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;
	struct keeper_request r;

	if (o->state != ONCE_LEASING)
		return;
	if (a->code == -EAGAIN && once_now_ms() < o->wait_until_ms) {
		once_send(o, LINK_PROGRESS, json_pack("{s:s}", "text", a->text));
		once_lease(o);
		return;
	}
	if (a->code < 0) {
		fail_of(o, a);
		return;
	}
	(void)str_copy(o->vm, a->reply->name);
	(void)str_copy(o->lease, a->reply->lease);
	(void)str_copy(o->runner_name, a->reply->runner_name);
	o->generation = a->reply->generation;
	o->expires_ms = once_now_ms() + o->ttl_ms;
	once_enter(o, ONCE_PLANNING);
	once_console_open(o);
	keeper_request_init(&r, KEEPER_REGISTER);
	(void)str_copy(r.lease, o->lease);
	r.registration = REGISTRATION_PLANNED;
	once_ask(o, &r, -1, on_planned);
}

void once_lease(struct once *o)
{
	struct keeper_request r;
	uint64_t now = once_now_ms(), left = o->wait_until_ms > now ? o->wait_until_ms - now : 0;

	keeper_request_init(&r, KEEPER_LEASE);
	(void)str_copy(r.pool, o->pool);
	(void)str_copy(r.holder, HOLDER_ONCE);
	(void)str_copy(r.scope, o->scope);
	r.ttl_ms = o->ttl_ms;
	/* The first request is answered at once, so that the person learns what is waited for. */
	r.wait_ms = o->state == ONCE_IDLE ? 0 : left < WAIT_SLICE_MS ? left : WAIT_SLICE_MS;
	r.flags = KEEPER_FLAG_BIND;
	once_enter(o, ONCE_LEASING);
	once_ask(o, &r, -1, on_leased);
}

/* The lease is over: told once. */
static void lease_over(struct once *o, bool clean, const char *text)
{
	char shown[LINK_TEXT_MAX];

	if (o->state < ONCE_PLANNING || o->state >= ONCE_ENDED)
		return;
	o->jit_fd = fd_close(o->jit_fd);
	str_show_n(shown, sizeof(shown), text, strlen(text));
	once_enter(o, ONCE_ENDED);
	once_send(o, LINK_ENDED, json_pack("{s:b,s:s}", "clean", clean, "text", shown));
}

static void on_delivered(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;

	if (o->state != ONCE_DELIVERING)
		return;
	if (a->lost)
		return;
	if (a->code < 0) {
		/* Before or after the secret left the host: this life is of no use any more. */
		char text[LINK_TEXT_MAX];

		(void)snprintf(text, sizeof(text), "not delivered: %.380s", a->text);
		once_release(o, outcome_to_string(OUTCOME_DELIVERY_FAILED));
		lease_over(o, false, text);
		return;
	}
	once_enter(o, ONCE_DELIVERED);
	once_console_start(o);
	once_send(o, LINK_DELIVERED, NULL);
}

static void on_made(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;
	struct keeper_request r;

	if (o->state != ONCE_DELIVERING)
		return;
	if (a->code < 0) {
		fail_of(o, a);
		return;
	}
	keeper_request_init(&r, KEEPER_DELIVER);
	(void)str_copy(r.lease, o->lease);
	once_ask(o, &r, o->jit_fd, on_delivered);
	o->jit_fd = fd_close(o->jit_fd);
}

void once_deliver(struct once *o)
{
	struct keeper_request r;

	once_enter(o, ONCE_DELIVERING);
	keeper_request_init(&r, KEEPER_REGISTER);
	(void)str_copy(r.lease, o->lease);
	r.registration = REGISTRATION_MADE;
	r.runner_id = o->runner_id;
	once_ask(o, &r, -1, on_made);
}

/* Already over is as good; anything else and the end of this process does it. */
static void on_released(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;

	if (a->code < 0 && a->code != -EALREADY && a->code != -ENOENT && !a->lost)
		fail_of(o, a);
	else
		lease_over(o, false, "released");
}

void once_release(struct once *o, const char *outcome)
{
	struct keeper_request r;

	once_enter(o, ONCE_RELEASING);
	keeper_request_init(&r, KEEPER_RELEASE);
	(void)str_copy(r.lease, o->lease);
	(void)str_copy(r.text, outcome);
	once_ask(o, &r, -1, on_released);
}

static void on_noted(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;

	if (a->code < 0)
		log_vm(LOG_DEBUG, o->vm, o->lease, "%s", a->text);
	if (--o->notes == 0 && o->state == ONCE_LEAVING)
		(void)sd_event_exit(o->ev, 0);
}

static void note(struct once *o, struct keeper_request *r)
{
	if (keeper_link_ask(o->keeper, r, -1, on_noted, o, 0, NULL) == 0)
		o->notes++;
}

void once_note(struct once *o, enum keeper_type type, const char *text)
{
	struct keeper_request r;

	keeper_request_init(&r, type);
	(void)str_copy(r.lease, o->lease);
	(void)str_copy(r.text, text);
	note(o, &r);
}

void once_gone(struct once *o)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_REGISTER);
	(void)str_copy(r.lease, o->lease);
	r.registration = REGISTRATION_GONE;
	r.runner_id = o->runner_id;
	note(o, &r);
}

static void reset_over(struct once *o, bool ok, const char *text)
{
	char shown[LINK_TEXT_MAX];

	if (o->state != ONCE_ENDED)
		return;
	str_show_n(shown, sizeof(shown), text, strlen(text));
	once_enter(o, ONCE_OVER);
	once_send(o, LINK_RESET, json_pack("{s:b,s:s}", "ok", ok, "text", shown));
}

static void on_event(void *userdata, const struct keeper_event *event)
{
	struct once *o = userdata;
	enum vm_state to = (enum vm_state)event->to;
	bool mine = str_equal(event->lease, o->lease) || event->generation == o->generation;
	char text[KEEPER_TEXT_MAX];

	if (!o->lease[0] || !str_equal(event->name, o->vm) || !mine)
		return;
	str_show_n(text, sizeof(text), event->text, strlen(event->text));
	if (!state_has_lease(to))
		lease_over(o, event->what == HAPPENING_STOPPED && (strstr(text, "shutdown") || strstr(text, UNLISTED)), text);
	if (to == STATE_COLD)
		reset_over(o, true, "");
	else if (to == STATE_BROKEN || to == STATE_KEPT)
		reset_over(o, false, to == STATE_BROKEN ? text : "the VM is kept to be looked at");
}

static void on_vms(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;
	json_t *list = a->document ? json_loads(a->document, 0, NULL) : NULL, *vm;
	size_t i;

	json_array_foreach(json_object_get(list, "vms"), i, vm)
	{
		enum vm_state state;

		if (!str_equal(json_string_value(json_object_get(vm, "name")), o->vm) ||
				state_from_string(json_string_value(json_object_get(vm, "state")), &state) < 0)
			continue;
		if (!state_has_lease(state) && state != STATE_RESETTING)
			reset_over(o, state != STATE_BROKEN, state_to_string(state));
		else if (state_has_lease(state) && !str_equal(json_string_value(json_object_get(vm, "lease")), o->lease))
			reset_over(o, true, "");
	}
	json_decref(list);
}

static void look_at_vm(struct once *o)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_LIST);
	(void)keeper_link_ask(o->keeper, &r, -1, on_vms, o, 0, NULL);
}

static void on_rejoined(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;

	if (o->state != ONCE_REJOINING || a->lost)
		return;
	if (a->code == 0) {
		once_enter(o, ONCE_DELIVERED);
		return;
	}
	/* It ended while the keeper was away. */
	lease_over(o, false, a->text);
	look_at_vm(o);
}

static void rejoin(struct once *o)
{
	struct keeper_request r;
	uint64_t now = once_now_ms();

	keeper_request_init(&r, KEEPER_RENEW);
	(void)str_copy(r.lease, o->lease);
	r.ttl_ms = o->expires_ms > now ? o->expires_ms - now : 1;
	r.flags = KEEPER_FLAG_BIND;
	once_ask(o, &r, -1, on_rejoined);
}

static void on_left(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct once *o = userdata;

	if (!a->lost)
		(void)sd_event_exit(o->ev, 0);
}

static void on_up(void *userdata)
{
	struct once *o = userdata;
	struct keeper_request r;

	switch (o->state) {
	case ONCE_REJOINING:
		rejoin(o);
		return;
	case ONCE_RELEASING:
		once_release(o, "");
		return;
	case ONCE_ENDED:
		look_at_vm(o); /* what was missed */
		return;
	case ONCE_LEAVING:
		/* The guest may run on, and nobody waits for it any more. */
		keeper_request_init(&r, KEEPER_RELEASE);
		(void)str_copy(r.lease, o->lease);
		if (!o->lease[0] || keeper_link_ask(o->keeper, &r, -1, on_left, o, 0, NULL) < 0)
			(void)sd_event_exit(o->ev, 0);
		return;
	case ONCE_GREETING:
	case ONCE_IDLE:
	case ONCE_LEASING:
	case ONCE_PLANNING:
	case ONCE_LEASED:
	case ONCE_DELIVERING:
	case ONCE_DELIVERED:
	case ONCE_OVER:
	case ONCE_STATE_COUNT:
		return;
	}
}

static void on_down(void *userdata, const char *why)
{
	struct once *o = userdata;
	struct error e = ERROR_INIT;

	if (o->state == ONCE_DELIVERED) {
		once_enter(o, ONCE_REJOINING);
		once_send(o, LINK_PROGRESS, json_pack("{s:s}", "text", "the keeper of the host has gone away; its return is awaited"));
		return;
	}
	if (o->state == ONCE_REJOINING || o->state == ONCE_RELEASING || o->state >= ONCE_ENDED)
		return;
	if (o->state >= ONCE_PLANNING) {
		/* Nothing has run in this life, or nobody can say: the next keeper resets it. */
		lease_over(o, false, "the keeper has gone away, and the lease with it");
		return;
	}
	(void)error_set(&e, ENOTCONN, "%s", why);
	if (o->state == ONCE_LEASING) {
		/* Perhaps it was given and the answer is lost. */
		once_tell(o, &e);
		once_leave(o, why);
	} else {
		once_fail(o, &e);
	}
}

const struct keeper_link_ops once_keeper_ops = {.up = on_up, .down = on_down, .event = on_event};
