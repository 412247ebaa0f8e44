/*
 * What is done for a lease whose VM has been taken back: the outcome is found and stored, then the
 * registration is deleted by its exact id (found by its exact name when only that is known), then the keeper
 * may forget it. Each step may have to wait; nothing is ever concluded from an answer that did not come.
 */
#include "base/str.h"
#include "linux/log.h"
#include "manager/proto.h"
#include "manager/service.h"
#include <errno.h>

#define WAIT_MIN_MS 5000
#define WAIT_MAX_MS (10 * 60 * 1000)
#define AGAIN_WAIT_MS 10000
/* GitHub gives a runner that died with its job up about 10 minutes later. */
#define BUSY_WAIT_MIN_MS 30000
#define BUSY_WAIT_MAX_MS (4 * 60 * 1000)
#define SPENT_WAIT_MS (3 * 60 * 1000) /* the registration may outlive its job by tens of seconds */

/* Where the job may have run. An organization's runner whose job was never seen: one repository after the other. */
static const char *job_repo(const struct work *w)
{
	if (w->job_repo[0])
		return w->job_repo;
	return scope_is_org(w->scope) && w->repo_at < w->entry->n_repos ? w->entry->repos[w->repo_at] : w->scope;
}

static bool has_next_repo(const struct work *w)
{
	return !w->job_repo[0] && scope_is_org(w->scope) && w->repo_at + 1 < w->entry->n_repos;
}

static int ask_github(struct service *s, struct work *w, enum github_type type, github_cb cb)
{
	struct github_request r = {.runner_id = w->runner_id};
	struct error e = ERROR_INIT;
	int rc;

	(void)str_copy(r.scope, w->scope);
	(void)str_copy(r.runner_name, w->runner_name);
	if (type == GITHUB_JOB_OF) {
		(void)str_copy(r.scope, job_repo(w));
		r.run_id = w->job_run;
	}
	rc = github_link_ask(s->github, type, &r, GITHUB_RANK_CLEAN, cb, s, w->number, &e);
	if (rc < 0) {
		log_vm(LOG_WARNING, w->vm, w->lease, "%s", e.text);
		work_feed(s, w, WORK_EV_UNKNOWN);
	}
	return rc;
}

static void ask_keeper(struct service *s, struct work *w, struct keeper_request *r, keeper_cb cb)
{
	(void)str_copy(r->lease, w->lease);
	if (keeper_link_ask(s->keeper, r, -1, cb, s, w->number, NULL) < 0)
		work_feed(s, w, WORK_EV_KEEPER_ERROR);
}

uint64_t work_wait_ms(struct work *w, const struct github_reply *reply)
{
	struct backoff b = {.min_ms = WAIT_MIN_MS, .max_ms = WAIT_MAX_MS, .n = w->tries};
	uint64_t wait = backoff_next(&b);

	w->tries = b.n;
	return reply && reply->retry_after_ms > wait ? reply->retry_after_ms : wait;
}

/* The work that still is in the state in which it asked. */
static struct work *asker(struct service *s, uint64_t number, enum work_state state)
{
	struct work *w = service_work_find(s, number);

	return w && w->state == state ? w : NULL;
}

/* GitHub could not be asked: off to PAUSED. */
static void cannot_tell(struct service *s, struct work *w, const struct github_reply *reply)
{
	w->wait_ms = work_wait_ms(w, reply);
	log_vm(LOG_INFO, w->vm, w->lease, "%s: GitHub cannot be asked (%s), again in %llu s", w->scope,
		reply->text, (unsigned long long)(w->wait_ms / 1000));
	work_feed(s, w, WORK_EV_UNKNOWN);
}

static void on_job_of(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work *w = asker(s, number, WORK_ASKING);
	CLEANUP(jobs_freep) struct jobs *jobs = NULL;
	struct error e = ERROR_INIT;
	uint64_t now = service_now_ms();
	struct job_view job;
	struct outcome_facts f = {0};

	if (!w)
		return;
	if (a->reply->code < 0) {
		cannot_tell(s, w, a->reply);
		return;
	}
	if (jobs_parse(a->document ? a->document : "", a->document_len, &jobs, &e) < 0) {
		log_vm(LOG_WARNING, w->vm, w->lease, "%s: %s", w->scope, e.text);
		work_feed(s, w, WORK_EV_UNKNOWN);
		return;
	}
	f.job = jobs_on_runner(jobs, w->runner_name, &job) ? &job : NULL;
	if (!f.job && has_next_repo(w)) {
		w->repo_at++;
		work_enter_asking(s, w);
		return;
	}
	w->repo_at = 0;
	w->queued_s = f.job && job.created_s && job.started_s > job.created_s ? job.started_s - job.created_s : 0;
	f = (struct outcome_facts){
		.job = f.job,
		.cause = w->cause,
		.clean_end = w->clean_end,
		.seen_online = w->seen_online,
		.seen_busy = w->took_job,
		.hint = w->hint,
		.patient = now < w->patient_ms,
	};
	if (f.job)
		(void)str_copy(w->job, job.name);
	w->spent = f.job && job.status == JOB_COMPLETED;
	if (w->spent) {
		work_note_time(s, w, NOTE_QUEUED, job.created_s);
		work_note_time(s, w, NOTE_STARTED, job.started_s);
		work_note_time(s, w, NOTE_COMPLETED, job.completed_s);
	}
	w->outcome = outcome_decide(&f);
	if (w->outcome == OUTCOME_UNKNOWN) {
		uint64_t left = w->patient_ms - now;

		w->wait_ms = left < AGAIN_WAIT_MS ? left + 1 : AGAIN_WAIT_MS;
	}
	work_feed(s, w, w->outcome == OUTCOME_UNKNOWN ? WORK_EV_AGAIN : WORK_EV_DECIDED);
}

void work_enter_asking(struct service *s, struct work *w)
{
	/* Nobody knows in which repository of an organization it was: what is known without GitHub has to do. */
	if (scope_is_org(job_repo(w))) {
		w->outcome = w->took_job || !w->clean_end ? OUTCOME_GUEST_DIED : OUTCOME_NO_JOB;
		work_feed(s, w, WORK_EV_DECIDED);
		return;
	}
	(void)ask_github(s, w, GITHUB_JOB_OF, on_job_of);
}

static void on_named(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = asker(s, number, WORK_NAMING);

	if (!w)
		return;
	/* Named before, by us in an earlier life or by whoever released it; or too old to be kept. */
	if (a->code < 0 && a->code != -EALREADY && a->code != -ENOENT) {
		work_feed(s, w, WORK_EV_KEEPER_ERROR);
		return;
	}
	w->outcome_stored = true;
	work_report(s, w);
	work_feed(s, w, WORK_EV_NAMED);
}

void work_enter_naming(struct service *s, struct work *w)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_OUTCOME);
	(void)str_copy(r.text, outcome_to_string(w->outcome));
	ask_keeper(s, w, &r, on_named);
}

/* Nothing is asked here: the next tick of its entry reads the list of runners (watch.c), if none has said so already. */
void work_enter_spent(struct service *s, struct work *w)
{
	uint64_t now = service_now_ms();

	if (w->gone_ms) {
		w->deleted = true;
		work_feed(s, w, WORK_EV_ABSENT);
		return;
	}
	w->due_ms = now + (w->entry->orphans || now < w->entry->roster_ms ? 0 : SPENT_WAIT_MS);
}

static void on_looked(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work *w = asker(s, number, WORK_LOOKING);
	uint64_t now = service_now_ms();

	if (!w)
		return;
	if (a->reply->code < 0) {
		cannot_tell(s, w, a->reply);
	} else if (a->reply->found) {
		w->runner_id = a->reply->runner_id;
		work_feed(s, w, WORK_EV_FOUND);
	} else if (now < w->settle_ms) {
		/* A request that we gave up may still be under way at GitHub. */
		w->wait_ms = w->settle_ms - now;
		work_feed(s, w, WORK_EV_AGAIN);
	} else {
		w->deleted = true;
		work_feed(s, w, WORK_EV_ABSENT);
	}
}

void work_enter_looking(struct service *s, struct work *w)
{
	(void)ask_github(s, w, GITHUB_RUNNER, on_looked);
}

static void on_cleared(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work *w = asker(s, number, WORK_CLEARING);

	if (!w)
		return;
	if (a->reply->code == 0) {
		w->deleted = true;
		work_feed(s, w, WORK_EV_DELETED);
	} else if (a->reply->fault == GITHUB_FAULT_BUSY || a->reply->code == -EBUSY) {
		struct backoff b = {.min_ms = BUSY_WAIT_MIN_MS, .max_ms = BUSY_WAIT_MAX_MS, .n = w->tries++};

		w->wait_ms = backoff_next(&b);
		work_feed(s, w, WORK_EV_BUSY);
	} else {
		cannot_tell(s, w, a->reply);
	}
}

void work_enter_clearing(struct service *s, struct work *w)
{
	(void)ask_github(s, w, GITHUB_DELETE, on_cleared);
}

static void on_forgotten(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = asker(s, number, WORK_FORGETTING);

	if (!w)
		return;
	if (a->code < 0 && a->code != -ENOENT) {
		work_feed(s, w, WORK_EV_KEEPER_ERROR);
		return;
	}
	w->registration = REGISTRATION_GONE;
	work_feed(s, w, WORK_EV_FORGOTTEN);
}

void work_enter_forgetting(struct service *s, struct work *w)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_REGISTER);
	r.registration = REGISTRATION_GONE;
	r.runner_id = w->runner_id;
	ask_keeper(s, w, &r, on_forgotten);
}

void work_enter_paused(struct service *s, struct work *w)
{
	uint64_t wait = w->wait_ms ? w->wait_ms : work_wait_ms(w, NULL);

	w->wait_ms = 0;
	w->due_ms = service_now_ms() + wait;
}
