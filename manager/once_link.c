/*
 * What the controller says, and when it may say it: a table of types and states. A message at a time that is not its own is
 * a broken peer (or somebody who tries), and the end.
 */
#include "manager/once.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "jit/jit.h"
#include "linux/secret.h"

#include <errno.h>
#include <string.h>

#define PEER "boxery on the other machine"

/* 1: go on; else the connection is over. */
typedef int (*message_fn)(struct once *o, json_t *m, struct error *e);

static int on_hello(struct once *o, json_t *m, struct error *e)
{
	o->greeted = true;
	return link_agree(m, "boxery on this host", PEER, e);
}

static int on_nothing(struct once *o, json_t *m, struct error *e)
{
	return 0;
}

static int on_lease(struct once *o, json_t *m, struct error *e)
{
	const char *scope = link_text(m, "scope");
	uint64_t ttl = link_number(m, "ttl_ms", KEEPER_TTL_MAX_MS);

	if (!o->greeted)
		return error_set(e, EBADMSG, PEER " asks for a VM before it has said hello");
	if (name_check(link_text(m, "pool"), "pool name", e) < 0)
		return -e->code;
	if (scope_any_check(scope, e) < 0)
		return -e->code;
	(void)str_copy(o->pool, link_text(m, "pool"));
	(void)str_copy(o->scope, scope);
	o->ttl_ms = ttl ? ttl : KEEPER_TTL_DEFAULT_MS;
	o->follow = link_true(m, "follow");
	o->wait_until_ms = once_now_ms() + link_number(m, "wait_ms", KEEPER_WAIT_MAX_MS);
	once_lease(o);
	return 0;
}

static int on_deliver(struct once *o, json_t *m, struct error *e)
{
	json_t *value = json_object_get(m, "jit");
	size_t len = json_string_length(value);
	char *secret = len > 0 && len <= JIT_MAX ? malloc(len) : NULL;
	int r;

	if (!secret)
		return error_set(e, EBADMSG, PEER " sent no JIT config, or one of more than %d bytes", JIT_MAX);
	memcpy(secret, json_string_value(value), len);
	r = jit_seal(secret, len, &o->jit_fd, e); /* wipes */
	free(secret);
	/* It is GitHub's answer that is not understood, and no command that was used wrongly. */
	if (r < 0)
		return error_set(e, EIO, "%s", e->text);
	o->runner_id = link_number(m, "runner_id", INT64_MAX);
	once_deliver(o);
	return 0;
}

static int on_busy(struct once *o, json_t *m, struct error *e)
{
	char job[KEEPER_TEXT_MAX];

	link_shown(m, "job", job, sizeof(job));
	once_note(o, KEEPER_JOB_SEEN, job);
	return 0;
}

static int on_release(struct once *o, json_t *m, struct error *e)
{
	enum outcome outcome = OUTCOME_UNKNOWN;

	/* A word of ours, or none. */
	(void)outcome_from_string(link_text(m, "outcome"), &outcome);
	once_release(o, outcome_to_string(outcome));
	return 0;
}

static int on_outcome(struct once *o, json_t *m, struct error *e)
{
	enum outcome outcome;

	if (!o->lease[0])
		return 0;
	if (outcome_from_string(link_text(m, "outcome"), &outcome) == 0)
		once_note(o, KEEPER_OUTCOME, outcome_to_string(outcome));
	if (link_true(m, "gone"))
		once_gone(o);
	return 0;
}

#define IN(state) (1u << (state))
#define ANY UINT32_MAX
#define HELD (IN(ONCE_PLANNING) | IN(ONCE_LEASED) | IN(ONCE_DELIVERING) | IN(ONCE_DELIVERED) | IN(ONCE_REJOINING))
static const struct {
	message_fn act;
	uint32_t now, late; /* states in which it is acted upon, and in which it comes too late to matter */
} table[LINK_TYPE_COUNT] = {
	[LINK_HELLO] = {on_hello, IN(ONCE_GREETING) | IN(ONCE_IDLE), 0},
	[LINK_BEAT] = {on_nothing, ANY, 0},
	[LINK_LEASE] = {on_lease, IN(ONCE_IDLE), 0},
	[LINK_DELIVER] = {on_deliver, IN(ONCE_LEASED), IN(ONCE_RELEASING) | IN(ONCE_ENDED) | IN(ONCE_OVER)},
	[LINK_BUSY] = {on_busy, IN(ONCE_DELIVERED), IN(ONCE_DELIVERING) | IN(ONCE_REJOINING) | IN(ONCE_RELEASING) | IN(ONCE_ENDED) | IN(ONCE_OVER)},
	[LINK_RELEASE] = {on_release, HELD, IN(ONCE_IDLE) | IN(ONCE_LEASING) | IN(ONCE_RELEASING) | IN(ONCE_ENDED) | IN(ONCE_OVER)},
	[LINK_OUTCOME] = {on_outcome, ANY & ~IN(ONCE_GREETING), 0},
};

static int act(struct once *o, enum link_type type, json_t *m, struct error *e)
{
	if (!table[type].act || !((table[type].now | table[type].late) & IN(o->state)))
		return error_set(e, EBADMSG, PEER " says '%s' when it makes no sense", link_type_to_string(type));
	return table[type].now & IN(o->state) ? table[type].act(o, m, e) : 0;
}

static int on_silence(sd_event_source *s, uint64_t us, void *userdata)
{
	once_leave(userdata, "it was silent for two minutes");
	return 0;
}

/* 0 when all that was there has been read. */
static int take(struct once *o, struct error *e)
{
	json_t *m = NULL;
	enum link_type type;
	int r = link_read(&o->in, STDIN_FILENO, e);

	if (r == -EAGAIN) {
		error_clear(e);
		return 0;
	}
	if (r < 0)
		return r;
	if (r == 0)
		return error_set(e, EPIPE, "it closed the connection");
	(void)once_timer(o, &o->silence, LINK_SILENT_MS, on_silence);
	while ((r = link_next(&o->in, &type, &m, e)) == 1) {
		r = act(o, type, m, e);
		json_decref(m); /* wiped, see link_wipe_memory() */
		if (r < 0 || !o->in_io)
			break;
	}
	return r < 0 ? r : 1;
}

int once_on_input(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	struct once *o = userdata;
	struct error e = ERROR_INIT;
	int r = take(o, &e);

	if (r >= 0)
		return 0;
	if (r == -EPIPE || r == -ECONNRESET)
		once_leave(o, e.text);
	else
		once_fail(o, &e);
	return 0;
}
