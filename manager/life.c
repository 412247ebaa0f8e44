/*
 * What each state of a lease does while the VM is ours. A state's work is started when it is entered and its
 * answer is fed back as an event; an answer that comes when the state has changed is used only for what it
 * says about the world (a registration that exists after all), never to change the state.
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/log.h"
#include "manager/service.h"
#include <errno.h>
#include <string.h>

#define RUNNER_GROUP_DEFAULT 1 /* at repository scope there is no other */
#define MINT_SETTLE_MS                                                                                       \
	60000 /* GitHub's own limit for a request is 10 s; then a registration is there or never will be */
#define OUTCOME_PATIENCE_MS 60000
#define RELEASE_RETRY_MS 2000

static void log_work(int level, const struct work *w, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void log_work(int level, const struct work *w, const char *format, ...)
{
	char text[ERROR_TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	log_vm(level, w->vm, w->lease, "%s", text);
}

static int ask_keeper(struct service *s, struct work *w, struct keeper_request *r, int fd, keeper_cb cb)
{
	struct error e = ERROR_INIT;
	int rc;

	(void)str_copy(r->lease, w->lease);
	rc = keeper_link_ask(s->keeper, r, fd, cb, s, w->number, &e);
	if (rc < 0)
		log_work(LOG_WARNING, w, "%s", e.text);
	return rc;
}

static int ask_github(struct service *s, struct work *w, enum github_type type, github_cb cb)
{
	struct github_request r = {.runner_id = w->runner_id, .runner_group_id = RUNNER_GROUP_DEFAULT};
	struct error e = ERROR_INIT;
	int rc;

	(void)str_copy(r.scope, w->scope);
	(void)str_copy(r.runner_name, w->runner_name);
	if (type == GITHUB_MINT)
		runners_entry_labels(w->entry->conf, r.labels);
	rc = github_link_ask(s->github, type, &r, GITHUB_RANK_LIVE, cb, s, w->number, &e);
	if (rc < 0)
		log_work(LOG_WARNING, w, "%s", e.text);
	return rc;
}

static void on_lease(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (!w)
		return;
	if (a->code < 0) {
		/* None READY is the normal way to be full; the next READY or the next poll tries again. */
		if (a->code == -EAGAIN)
			w->entry->missing++;
		else if (a->code != -ENOTCONN)
			log_warning("%s: no VM from pool %s: %s", w->scope, w->entry->conf->pool, a->text);
		work_feed(s, w, a->code == -ENOTCONN ? WORK_EV_KEEPER_ERROR : WORK_EV_REFUSED);
		return;
	}
	(void)str_copy(w->lease, a->reply->lease);
	(void)str_copy(w->vm, a->reply->name);
	(void)str_copy(w->runner_name, a->reply->runner_name);
	w->generation = a->reply->generation;
	work_feed(s, w, WORK_EV_LEASED);
}

static void enter_leasing(struct service *s, struct work *w)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_LEASE);
	(void)str_copy(r.pool, w->entry->conf->pool);
	(void)str_copy(r.holder, HOLDER_SERVICE);
	(void)str_copy(r.scope, w->scope);
	r.ttl_ms = entry_lease_ttl_ms(w->entry);
	if (ask_keeper(s, w, &r, -1, on_lease) < 0)
		work_feed(s, w, WORK_EV_KEEPER_ERROR);
}

/* Before anything was delivered every failure ends the same way. */
static void give_up(struct service *s, struct work *w, enum work_event event, enum outcome outcome)
{
	if (w->outcome == OUTCOME_UNKNOWN)
		w->outcome = outcome;
	w->jit_fd = fd_close(w->jit_fd);
	work_feed(s, w, event);
}

static void on_registered(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (!w || (w->state != WORK_PLANNING && w->state != WORK_RECORDING))
		return;
	if (a->code < 0) {
		log_work(LOG_WARNING, w, "the keeper does not record the registration: %s", a->text);
		give_up(s, w, WORK_EV_KEEPER_ERROR, OUTCOME_NOT_DELIVERED);
		return;
	}
	if (w->state == WORK_PLANNING) {
		w->registration = REGISTRATION_PLANNED;
		work_feed(s, w, WORK_EV_PLANNED);
	} else {
		w->registration = REGISTRATION_MADE;
		work_feed(s, w, WORK_EV_RECORDED);
	}
}

static void enter_registering(struct service *s, struct work *w)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_REGISTER);
	r.registration = w->state == WORK_PLANNING ? REGISTRATION_PLANNED : REGISTRATION_MADE;
	r.runner_id = w->runner_id;
	if (s->stopping)
		give_up(s, w, WORK_EV_STOP, OUTCOME_NOT_DELIVERED);
	else if (ask_keeper(s, w, &r, -1, on_registered) < 0)
		give_up(s, w, WORK_EV_KEEPER_ERROR, OUTCOME_NOT_DELIVERED);
}

static void on_mint(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);
	const struct github_reply *reply = a->reply;
	bool conflict = reply->fault == GITHUB_FAULT_CONFLICT || reply->code == -EEXIST;

	if (!w)
		return; /* its name stays on the keeper's list, and is looked up from there */
	if (reply->code == 0)
		w->runner_id = reply->runner_id;
	else
		w->deleted = !conflict && !reply->may_exist;
	w->settle_ms = service_now_ms() + MINT_SETTLE_MS;
	if (w->state != WORK_MINTING)
		return;
	if (reply->code == 0 && *a->fd >= 0) {
		backoff_reset(&w->entry->mint_backoff);
		backoff_reset(&w->entry->refused_backoff);
		w->jit_fd = TAKE_FD(*a->fd);
		work_feed(s, w, WORK_EV_MINTED);
		return;
	}
	log_work(LOG_WARNING, w, "%s: no registration: %s", w->scope, reply->text);
	if (!conflict)
		entry_fault(w->entry, reply);
	give_up(s, w, WORK_EV_MINT_FAILED,
		conflict || reply->may_exist ? OUTCOME_MINT_CONFLICT : OUTCOME_MINT_FAILED);
}

static void enter_minting(struct service *s, struct work *w)
{
	w->settle_ms = service_now_ms() + MINT_SETTLE_MS;
	if (ask_github(s, w, GITHUB_MINT, on_mint) < 0) {
		w->deleted = true; /* nothing was asked */
		give_up(s, w, WORK_EV_MINT_FAILED, OUTCOME_MINT_FAILED);
	}
}

static void on_delivered(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (!w)
		return;
	w->delivering = false;
	if (w->state != WORK_DELIVERING)
		return;
	if (a->code == 0) {
		work_feed(s, w, WORK_EV_DELIVERED);
	} else if (a->code == -ENOTCONN) {
		/* Delivered or not: the keeper has committed it, and says so in its list. */
		service_ask_leases(s, 0);
	} else {
		log_work(LOG_WARNING, w, "not delivered: %s", a->text);
		give_up(s, w, WORK_EV_DELIVER_FAILED, OUTCOME_DELIVERY_FAILED);
	}
}

static void enter_delivering(struct service *s, struct work *w)
{
	struct keeper_request r;
	int rc;

	keeper_request_init(&r, KEEPER_DELIVER);
	if (s->stopping) {
		give_up(s, w, WORK_EV_DELIVER_FAILED, OUTCOME_NOT_DELIVERED);
		return;
	}
	rc = ask_keeper(s, w, &r, w->jit_fd, on_delivered);
	w->jit_fd = fd_close(w->jit_fd);
	if (rc < 0) {
		give_up(s, w, WORK_EV_DELIVER_FAILED, OUTCOME_NOT_DELIVERED);
		return;
	}
	w->delivered = w->delivering = true;
}

static void on_job_told(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (w && a->code < 0 && work_is_open(w->state)) {
		log_work(LOG_WARNING, w, "the keeper does not record the job: %s", a->text);
		w->job_told = false;
	}
}

static void tell_job(struct service *s, struct work *w)
{
	struct keeper_request r;

	if (w->job_told)
		return;
	keeper_request_init(&r, KEEPER_JOB_SEEN);
	(void)str_copy(r.text, w->job);
	w->job_told = ask_keeper(s, w, &r, -1, on_job_told) == 0;
}

static void on_noted(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	(void)userdata, (void)number, (void)a;
}

/* For the timeline only: whether it arrives decides nothing. */
static void enter_idle(struct service *s, struct work *w)
{
	struct keeper_request r;

	if (w->noted_online)
		return;
	keeper_request_init(&r, KEEPER_NOTE);
	(void)str_copy(r.text, "the runner is online");
	w->noted_online = ask_keeper(s, w, &r, -1, on_noted) == 0;
}

static void enter_busy(struct service *s, struct work *w)
{
	w->seen_online = true;
	w->gone_ms = 0;
	if (!w->took_job) {
		w->took_job = true;
		entry_job_taken(w->entry);
	}
	tell_job(s, w);
}

static void on_deleted(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (!w)
		return;
	if (a->reply->code == 0)
		w->deleted = true;
	if (w->state != WORK_DELETING)
		return;
	if (a->reply->code == 0) {
		work_feed(s, w, WORK_EV_DELETED);
	} else if (a->reply->fault == GITHUB_FAULT_BUSY || a->reply->code == -EBUSY) {
		/* The job came in the last moment: GitHub decides, not our reading of it. */
		w->outcome = OUTCOME_UNKNOWN;
		w->tries = 0;
		work_feed(s, w, WORK_EV_BUSY);
	} else {
		w->due_ms = service_now_ms() + work_wait_ms(w, a->reply);
		log_work(LOG_WARNING, w, "left alone, its registration cannot be deleted now: %s",
			a->reply->text);
		service_settle(s);
	}
}

static void enter_deleting(struct service *s, struct work *w)
{
	w->outcome = work_overdue_outcome(w);
	/* Without an id there is nothing exact to delete; the lease's expiry ends it. */
	if (!w->runner_id || ask_github(s, w, GITHUB_DELETE, on_deleted) < 0)
		w->due_ms = service_now_ms() + work_wait_ms(w, NULL);
}

static void on_released(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (!w || w->state != WORK_RELEASING)
		return;
	if (a->code == 0) {
		w->cause = HAPPENING_RELEASE;
		w->outcome_stored = w->outcome != OUTCOME_UNKNOWN;
	} else if (a->code != -EALREADY && a->code != -ENOENT) {
		if (a->code != -ENOTCONN)
			log_work(LOG_WARNING, w, "the keeper does not take the VM back: %s", a->text);
		w->due_ms = service_now_ms() + RELEASE_RETRY_MS;
		service_settle(s);
		return;
	}
	w->closed = true;
	work_feed(s, w, WORK_EV_RELEASED);
	if (w->outcome_stored)
		work_report(s, w);
}

static void enter_releasing(struct service *s, struct work *w)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_RELEASE);
	if (w->outcome != OUTCOME_UNKNOWN)
		(void)str_copy(r.text, outcome_to_string(w->outcome));
	if (ask_keeper(s, w, &r, -1, on_released) < 0)
		w->due_ms = service_now_ms() + RELEASE_RETRY_MS;
}

static void enter_nothing(struct service *s, struct work *w)
{
	w->tries = 0;
}

static void (*const enter[WORK_STATE_COUNT])(struct service *s, struct work *w) = {
	[WORK_LEASING] = enter_leasing,
	[WORK_PLANNING] = enter_registering,
	[WORK_MINTING] = enter_minting,
	[WORK_RECORDING] = enter_registering,
	[WORK_DELIVERING] = enter_delivering,
	[WORK_WAITING] = enter_nothing,
	[WORK_IDLE] = enter_idle,
	[WORK_BUSY] = enter_busy,
	[WORK_DELETING] = enter_deleting,
	[WORK_RELEASING] = enter_releasing,
	[WORK_ASKING] = work_enter_asking,
	[WORK_NAMING] = work_enter_naming,
	[WORK_LOOKING] = work_enter_looking,
	[WORK_CLEARING] = work_enter_clearing,
	[WORK_FORGETTING] = work_enter_forgetting,
	[WORK_PAUSED] = work_enter_paused,
	[WORK_DONE] = enter_nothing,
};

void work_enter(struct service *s, struct work *w)
{
	enter[w->state](s, w);
	service_settle(s);
}

void work_feed(struct service *s, struct work *w, enum work_event event)
{
	enum work_state from = w->state;
	bool quiet;

	if (event == WORK_EV_STOP || event == WORK_EV_ENDED) {
		/* A mint that is still in our queue need not happen. */
		if (from == WORK_MINTING && github_link_cancel(s->github, w->number))
			w->deleted = true;
		if (event == WORK_EV_STOP && from < WORK_DELIVERING && w->outcome == OUTCOME_UNKNOWN)
			w->outcome = OUTCOME_NOT_DELIVERED;
		/* It ended before GitHub had answered, so what was expected of it is not known. */
		if (event == WORK_EV_ENDED && from == WORK_DELETING)
			w->outcome = OUTCOME_UNKNOWN;
	}
	if (!work_step(w, event, service_now_ms()))
		return;
	/* A full pool answers every poll in this way. */
	quiet = w->state == WORK_DONE && from == WORK_LEASING;
	log_work(quiet ? LOG_DEBUG : LOG_INFO, w, "%s: %s -> %s (%s)", w->scope, work_state_to_string(from),
		work_state_to_string(w->state), work_event_to_string(event));
	if (work_is_open(from) && !work_is_open(w->state)) {
		w->jit_fd = fd_close(w->jit_fd);
		w->patient_ms = service_now_ms() + OUTCOME_PATIENCE_MS;
		w->tries = 0;
	}
	work_enter(s, w);
}

void work_report(struct service *s, struct work *w)
{
	log_work(LOG_INFO, w, "%s: outcome: %s%s%s", w->scope, outcome_to_string(w->outcome),
		w->job[0] ? ", job " : "", w->job);
	entry_lease_over(w->entry, w->outcome);
}

static void on_runner(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);
	const struct github_reply *reply = a->reply;

	if (!w)
		return;
	w->asking = false;
	/* "Cannot tell" changes nothing. */
	if (!work_is_watched(w->state) || reply->code < 0)
		return;
	if (!reply->found) {
		if (!w->gone_ms)
			log_work(LOG_INFO, w, "%s: GitHub has no runner %s any more", w->scope,
				w->runner_name);
		w->gone_ms = w->gone_ms ? w->gone_ms : service_now_ms();
	} else {
		w->gone_ms = 0;
		w->runner_id = reply->runner_id;
		w->seen_online |= reply->online != 0;
		if (reply->busy)
			work_feed(s, w, WORK_EV_BUSY);
		else if (reply->online)
			work_feed(s, w, WORK_EV_ONLINE);
	}
	if (work_is_watched(w->state) && work_overdue(w, w->entry->conf, service_now_ms()))
		work_feed(s, w, WORK_EV_OVERDUE);
}

void work_watch(struct service *s, struct work_entry *entry, const struct jobs *jobs)
{
	struct job_view job;

	for (struct work *w = s->works; w; w = w->next) {
		if (w->entry != entry || !work_is_watched(w->state))
			continue;
		if (jobs && jobs_on_runner(jobs, w->runner_name, &job) && job.status == JOB_RUNNING) {
			if (!w->job[0] && job.name[0])
				w->job_told = false; /* busy was known before the name was */
			(void)str_copy(w->job, job.name);
			work_feed(s, w, WORK_EV_BUSY);
			if (w->state == WORK_BUSY)
				tell_job(s, w); /* again, if the keeper could not be told */
			continue;
		}
		if (!w->asking)
			w->asking = ask_github(s, w, GITHUB_RUNNER, on_runner) == 0;
	}
}
