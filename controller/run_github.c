/*
 * Registering, watching, deleting. A registration that was asked for may be there even if the answer was an error or none: then
 * it is looked for by its name, a second time after GitHub's own limit for a request has passed, and only then taken for absent.
 * The host chooses the name, so it may be that of a runner of somebody else: it is asked before whether there is one, and what
 * was there before, or is there by a conflict, is not deleted.
 */
#include "base/str.h"
#include "controller/clock.h"
#include "controller/run.h"
#include "controller/show.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define WATCH_STARTING_MS 5000
#define WATCH_LISTENING_MS 15000
#define VANISHED_MS 30000 /* a runner that GitHub has dropped ends by itself */
#define SETTLE_MS 12000   /* GitHub gives a request up after 10 s */
#define AGAIN_MIN_MS 2000
#define AGAIN_MAX_MS 60000
#define BUSY_TRIES 4 /* of a runner whose VM is gone */
#define TRIES_MAX 6

bool run_ask(struct run *r, const char *method, gh_cb cb, json_t *body, const char *path_format, ...)
{
	char path[GH_PATH_MAX];
	struct error e = ERROR_INIT;
	struct gh_answer a = {.fault = GH_MISSING};
	va_list ap;
	int n;

	va_start(ap, path_format);
	n = vsnprintf(path, sizeof(path), path_format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(path)) {
		json_decref(body);
		return false;
	}
	if (gh_call(&r->gh, method, path, body, cb, r, &e) == 0)
		return true;
	(void)str_copy(a.text, e.text);
	run_ask_later(r, &a);
	return false;
}

void run_ask_later(struct run *r, const struct gh_answer *a)
{
	uint64_t wait = AGAIN_MIN_MS << (r->failures < 5 ? r->failures : 5);

	r->failures++;
	if (wait > AGAIN_MAX_MS)
		wait = AGAIN_MAX_MS;
	if (a->retry_after_ms > wait)
		wait = a->retry_after_ms;
	if (r->failures == 1)
		show_note(r, "%s; asking again", a->text);
	r->ask_ms = clock_now_ms() + wait;
}

/* The one secret: taken out of the answer, put on the link, wiped with the buffers of both. */
static void deliver(struct run *r, const struct gh_answer *a)
{
	json_t *jit = json_object_get(a->body, "encoded_jit_config");

	if (!json_is_string(jit)) {
		run_end(r, RESULT_MINT_FAILED, true, -1, "GitHub's answer has no JIT config");
		return;
	}
	run_enter(r, RUN_DELIVERING, RUN_DELIVERING_MS);
	run_send(r, LINK_DELIVER, json_pack("{s:I,s:O}", "runner_id", (json_int_t)r->runner_id, "jit", jit));
}

static void on_mint(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;
	char text[ERROR_TEXT_MAX];

	if (a->fault == GH_OK)
		r->runner_id = link_number(json_object_get(a->body, "runner"), "id", INT64_MAX);
	if (r->runner_id) {
		r->registration = RUN_REGISTERED;
		show_stage(r, "registered", "%s", r->name);
	} else if (r->name_was_free && (a->fault == GH_OK || a->fault == GH_SERVER || a->fault == GH_NETWORK)) {
		r->registration = RUN_PERHAPS_REGISTERED;
	} else {
		r->registration = RUN_NOT_REGISTERED; /* a conflict: the name is somebody else's */
	}
	if (r->state != RUN_MINTING) {
		run_tidy(r); /* it was ended meanwhile */
		return;
	}
	if (r->runner_id) {
		deliver(r, a);
		return;
	}
	(void)snprintf(text, sizeof(text), "not registered: %.400s", a->text);
	run_end(r, a->fault == GH_CONFLICT ? RESULT_MINT_CONFLICT : RESULT_MINT_FAILED, true,
			error_exit_status(&(struct error){.code = gh_errno(a->fault == GH_OK ? GH_SERVER : a->fault)}), text);
}

static json_t *labels_of(const struct run *r)
{
	const char *const usual[] = {"self-hosted", "linux", r->arch, "boxery"};
	const struct plan *p = r->plan;
	json_t *labels = json_array();

	for (size_t i = 0; i < p->n_labels; i++)
		(void)json_array_append_new(labels, json_string(p->labels[i]));
	for (size_t i = 0; p->n_labels == 0 && i < ARRAY_SIZE(usual); i++)
		(void)json_array_append_new(labels, json_string(usual[i]));
	return labels;
}

static void mint(struct run *r)
{
	json_t *body = json_pack("{s:s,s:I,s:o,s:s}", "name", r->name, "runner_group_id", (json_int_t)r->plan->group_id, "labels",
			labels_of(r), "work_folder", "_work");

	r->registration = RUN_PERHAPS_REGISTERED;
	if (!run_ask(r, "POST", on_mint, body, "%s/actions/runners/generate-jitconfig", r->plan->base)) {
		r->registration = RUN_NOT_REGISTERED;
		run_end(r, RESULT_MINT_FAILED, true, -1, "gh cannot be run");
	}
}

static void on_looked(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;
	json_t *list = json_object_get(a->body, "runners");
	char text[ERROR_TEXT_MAX];

	if (r->state != RUN_MINTING) {
		run_tidy(r); /* it was ended meanwhile */
		return;
	}
	r->name_was_free = a->fault == GH_OK && json_is_array(list) && json_array_size(list) == 0;
	/* Who may not look may not register either, and that answer says what is missing. */
	if (r->name_was_free || a->fault == GH_PERMISSION) {
		mint(r);
		return;
	}
	if (a->fault == GH_OK && json_array_size(list) > 0) {
		(void)snprintf(text, sizeof(text), "not registered: there is a runner %s already, and it is not this run's; the host is to name "
				"another", r->name);
		run_end(r, RESULT_MINT_CONFLICT, true, -1, text);
		return;
	}
	(void)snprintf(text, sizeof(text), "not registered: whether the name %s is free is not known: %.300s", r->name,
			a->fault == GH_OK ? "GitHub's answer has no list of runners" : a->text);
	run_end(r, RESULT_MINT_FAILED, true,
			error_exit_status(&(struct error){.code = gh_errno(a->fault == GH_OK ? GH_SERVER : a->fault)}), text);
}

void run_mint(struct run *r)
{
	if (!run_ask(r, "GET", on_looked, NULL, "%s/actions/runners?name=%s&per_page=100", r->plan->base, r->name))
		run_end(r, RESULT_MINT_FAILED, true, -1, "gh cannot be run");
}

static void is_busy(struct run *r)
{
	if (r->state >= RUN_ENDING || r->state == RUN_BUSY)
		return;
	r->busy = true;
	if (!r->busy_ms)
		r->busy_ms = clock_now_ms();
	run_enter(r, RUN_BUSY, r->plan->job_ms);
	/* The host learns it at once; the name that GitHub has for the job follows. */
	run_send(r, LINK_BUSY, json_pack("{s:s}", "job", r->hint));
}

static void on_watched(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;

	if (r->state < RUN_STARTING || r->state > RUN_LISTENING) {
		run_tidy(r);
		return;
	}
	if (a->fault == GH_ABSENT) {
		/* Used up, or dropped while it was idle. The guest powers itself off. */
		r->registration = RUN_UNREGISTERED;
		if (!r->absent_ms)
			r->absent_ms = clock_now_ms();
		if (clock_now_ms() - r->absent_ms > VANISHED_MS)
			run_end(r, RESULT_UNKNOWN, false, -1, "GitHub has dropped the runner");
		else
			r->ask_ms = clock_now_ms() + WATCH_STARTING_MS;
		return;
	}
	if (a->fault != GH_OK) {
		run_ask_later(r, a);
		return;
	}
	r->failures = 0;
	r->online = r->online || str_equal(link_text(a->body, "status"), "online");
	if (link_true(a->body, "busy")) {
		r->online = true;
		is_busy(r);
		return;
	}
	if (r->online && r->state == RUN_STARTING) {
		show_stage(r, "listening", "%s", r->name);
		run_enter(r, RUN_LISTENING, r->plan->idle_ms);
	}
	/* The guest says that it has a job and GitHub does not say so yet. */
	r->ask_ms = clock_now_ms() + (r->hint_running ? AGAIN_MIN_MS : r->state == RUN_STARTING ? WATCH_STARTING_MS : WATCH_LISTENING_MS);
}

void run_tell_job(struct run *r)
{
	const char *name = r->job[0] ? r->job : r->hint;

	if (r->job_told)
		return;
	r->job_told = true;
	show_stage(r, "running", "%s", name[0] ? name : "a job");
	run_send(r, LINK_BUSY, json_pack("{s:s}", "job", name));
}

void run_watch(struct run *r)
{
	if (gh_busy(&r->gh) || r->ask_ms > clock_now_ms())
		return;
	if (r->state == RUN_STOPPING) {
		run_stop(r, NULL);
		return;
	}
	if (r->state == RUN_BUSY) {
		if (r->job_told)
			return;
		/* Its name is GitHub's, if it can be found; a job of an organisation may be anywhere. */
		if (!r->job_id && r->plan->repo[0] && r->search != SEARCH_OVER)
			run_find_job(r);
		else
			run_tell_job(r);
		return;
	}
	(void)run_ask(r, "GET", on_watched, NULL, "%s/actions/runners/%" PRIu64, r->plan->base, r->runner_id);
}

static void on_stopped(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;

	if (a->fault == GH_OK || a->fault == GH_ABSENT)
		r->registration = RUN_UNREGISTERED;
	if (r->state != RUN_STOPPING) {
		run_tidy(r);
		return;
	}
	if (a->fault == GH_OK) {
		run_end(r, r->result, true, r->interrupts ? EXIT_STATUS_INTERRUPTED : -1, NULL);
	} else if (a->fault == GH_ABSENT) {
		/* Gone before: perhaps it has done its job. */
		run_end(r, RESULT_UNKNOWN, false, r->interrupts ? EXIT_STATUS_INTERRUPTED : -1, NULL);
	} else if (a->fault == GH_INVALID) {
		run_enter(r, RUN_LISTENING, 0);
		is_busy(r);
		if (r->interrupts)
			show_note(r, "a job is running; waiting for its end. Ctrl-C again takes the VM away from it");
	} else {
		run_ask_later(r, a);
	}
}

void run_stop(struct run *r, const char *why)
{
	if (why) {
		show_note(r, "%s", why);
		run_enter(r, RUN_STOPPING, RUN_STOPPING_MS);
	}
	if (!gh_busy(&r->gh))
		(void)run_ask(r, "DELETE", on_stopped, NULL, "%s/actions/runners/%" PRIu64, r->plan->base, r->runner_id);
}

static void give_up(struct run *r, const char *why)
{
	show_note(r, "the registration %s is left, offline and useless, until GitHub removes it: %s", r->name, why);
	r->registration = RUN_NOT_REGISTERED;
}

static void on_deleted(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;

	if (a->fault == GH_OK || a->fault == GH_ABSENT)
		r->registration = RUN_UNREGISTERED;
	else if (a->fault == GH_INVALID && ++r->refused >= BUSY_TRIES)
		give_up(r, "GitHub takes it for busy for some minutes more");
	else if (a->fault == GH_LOGIN || a->fault == GH_PERMISSION || r->failures >= TRIES_MAX)
		give_up(r, a->text);
	else if (a->fault == GH_INVALID)
		r->ask_ms = clock_now_ms() + AGAIN_MIN_MS;
	else
		run_ask_later(r, a);
	run_tidy(r);
}

static void on_found(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;
	json_t *list = json_object_get(a->body, "runners"), *runner;
	size_t i;

	if (a->fault != GH_OK) {
		if (a->fault == GH_LOGIN || a->fault == GH_PERMISSION || a->fault == GH_ABSENT || r->failures >= TRIES_MAX)
			give_up(r, a->text);
		else
			run_ask_later(r, a);
		run_tidy(r);
		return;
	}
	json_array_foreach(list, i, runner)
	{
		if (!str_equal(link_text(runner, "name"), r->name))
			continue;
		r->runner_id = link_number(runner, "id", INT64_MAX);
		r->registration = r->runner_id ? RUN_REGISTERED : RUN_NOT_REGISTERED;
	}
	if (r->registration == RUN_PERHAPS_REGISTERED) {
		if (r->asked_by_name++ > 0)
			r->registration = RUN_NOT_REGISTERED;
		else
			r->ask_ms = clock_now_ms() + SETTLE_MS;
	}
	run_tidy(r);
}

void run_unregister(struct run *r)
{
	if (r->registration == RUN_REGISTERED)
		(void)run_ask(r, "DELETE", on_deleted, NULL, "%s/actions/runners/%" PRIu64, r->plan->base, r->runner_id);
	else
		(void)run_ask(r, "GET", on_found, NULL, "%s/actions/runners?name=%s&per_page=100", r->plan->base, r->name);
}
