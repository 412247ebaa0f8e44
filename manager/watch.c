/*
 * A guest that has its JIT config: GitHub is asked what its runner does, the keeper is told what is worth keeping,
 * and a VM whose time is over is taken back, its registration first.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "manager/proto.h"
#include "manager/roster.h"
#include "manager/service.h"
#include <errno.h>

#define RELEASE_RETRY_MS 2000
#define ROSTER_PART_MS (10 * 60 * 1000) /* more runners than one page: asked for the list again after this */
#define LISTED_ASK_MS 60000 /* a runner whose job is listed as running is asked about this often */

static void on_job_told(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (w && a->code < 0 && work_is_open(w->state)) {
		work_log(LOG_WARNING, w, "the keeper does not record the job: %s", a->text);
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
	w->job_told = work_ask_keeper(s, w, &r, -1, on_job_told) == 0;
}

static void on_limited(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (w && a->code < 0 && work_is_watched(w->state)) {
		entry_trouble(w->entry, w, "the keeper does not limit the job's time", a->text);
		w->limited = false;
	}
}

/* The lease was taken for as long as everything together may need; from here on it is the job's time that counts. */
static void limit_job(struct service *s, struct work *w)
{
	struct keeper_request r;

	if (w->limited)
		return;
	keeper_request_init(&r, KEEPER_RENEW);
	r.ttl_ms = w->entry->conf->job_timeout_ms;
	r.flags = KEEPER_FLAG_FORCE; /* shorter than what is left */
	w->limited = work_ask_keeper(s, w, &r, -1, on_limited) == 0;
}

static void on_noted(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	(void)userdata, (void)number, (void)a;
}

/* For the timeline only: whether it arrives decides nothing. */
void work_enter_idle(struct service *s, struct work *w)
{
	struct keeper_request r;

	if (w->noted_online)
		return;
	keeper_request_init(&r, KEEPER_NOTE);
	(void)str_copy(r.text, "the runner is online");
	w->noted_online = work_ask_keeper(s, w, &r, -1, on_noted) == 0;
}

void work_note_time(struct service *s, struct work *w, const char *what, uint64_t epoch_s)
{
	struct keeper_request r;
	char at[24];

	if (!epoch_s || (w->queued_noted && str_equal(what, NOTE_QUEUED)))
		return;
	w->queued_noted = true;
	clock_wall_text(epoch_s * 1000000, at, sizeof(at));
	keeper_request_init(&r, KEEPER_NOTE);
	if (str_format(r.text, "%s%s", what, at) == 0)
		(void)work_ask_keeper(s, w, &r, -1, on_noted);
}

void work_enter_busy(struct service *s, struct work *w)
{
	w->seen_online = true;
	w->gone_ms = 0;
	if (!w->took_job) {
		w->took_job = true;
		entry_job_seen(w->entry);
	}
	tell_job(s, w);
	limit_job(s, w);
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
		w->offline_ms = 0; /* GitHub has its reasons; it is waited for once more */
		work_feed(s, w, WORK_EV_BUSY);
	} else {
		w->due_ms = service_now_ms() + work_wait_ms(w, a->reply);
		work_log(LOG_WARNING, w, "left alone, its registration cannot be deleted now: %s",
			a->reply->text);
		service_settle(s);
	}
}

void work_enter_deleting(struct service *s, struct work *w)
{
	w->outcome = work_overdue_outcome(w);
	/* Without an id there is nothing exact to delete; the lease's expiry ends it. */
	if (!w->runner_id || work_ask_github(s, w, GITHUB_DELETE, on_deleted) < 0)
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
		if (!a->lost)
			work_log(LOG_WARNING, w, "the keeper does not take the VM back: %s", a->text);
		w->due_ms = service_now_ms() + RELEASE_RETRY_MS;
		service_settle(s);
		return;
	}
	work_feed(s, w, WORK_EV_RELEASED);
	if (w->outcome_stored)
		work_report(s, w);
}

void work_enter_releasing(struct service *s, struct work *w)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_RELEASE);
	if (w->outcome != OUTCOME_UNKNOWN)
		(void)str_copy(r.text, outcome_to_string(w->outcome));
	if (work_ask_keeper(s, w, &r, -1, on_released) < 0)
		w->due_ms = service_now_ms() + RELEASE_RETRY_MS;
}

/* A runner that has been online and is not any more has lost its guest or its network. */
static void note_offline(struct work *w, bool online)
{
	if (online || !w->seen_online)
		w->offline_ms = 0;
	else if (!w->offline_ms)
		w->offline_ms = service_now_ms();
}

static void take_runner(struct service *s, struct work *w, bool found, const struct roster_view *v)
{
	w->asked_ms = service_now_ms();
	if (!found) {
		if (!w->gone_ms)
			work_log(LOG_INFO, w, "%s: GitHub has no runner %s any more", w->scope,
				w->runner_name);
		w->gone_ms = w->gone_ms ? w->gone_ms : service_now_ms();
	} else {
		w->gone_ms = 0;
		w->runner_id = v->id;
		w->seen_online |= v->online;
		note_offline(w, v->online);
		if (v->busy)
			work_feed(s, w, WORK_EV_BUSY);
		else if (v->online)
			work_feed(s, w, WORK_EV_ONLINE);
	}
	if (work_is_watched(w->state) && work_overdue(w, w->entry->conf, service_now_ms()))
		work_feed(s, w, WORK_EV_OVERDUE);
}

static void on_runner(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);
	const struct github_reply *reply = a->reply;

	if (!w)
		return;
	w->asking = false;
	w->asked_ms = service_now_ms();
	/* "Cannot tell" changes nothing. */
	if (work_is_watched(w->state) && reply->code == 0)
		take_runner(s, w, reply->found, &(struct roster_view){reply->runner_id, reply->online, reply->busy});
}

static void ask_runner(struct service *s, struct work *w)
{
	w->asking = work_ask_github(s, w, GITHUB_RUNNER, on_runner) == 0;
}

static void take_roster(struct service *s, struct work *w, const struct roster *roster)
{
	struct roster_view v = {0};
	bool found = roster_find(roster, w->runner_id, w->runner_name, &v);

	if (!found && !roster_is_whole(roster)) {
		if (w->state == WORK_SPENT)
			work_feed(s, w, WORK_EV_DUE);
		else if (work_is_watched(w->state) && !w->asking)
			ask_runner(s, w);
	} else if (work_is_watched(w->state)) {
		take_runner(s, w, found, &v);
	} else if (w->state == WORK_SPENT && !found) {
		w->deleted = true;
		work_feed(s, w, WORK_EV_ABSENT);
	}
}

static void on_roster(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work_entry *entry = service_entry_find(s, number);
	CLEANUP(roster_freep) struct roster *roster = NULL;
	struct error e = ERROR_INIT;

	if (!entry)
		return;
	entry->listing = false;
	if (a->reply->code < 0)
		return;
	if (roster_parse(a->document ? a->document : "", a->document_len, &roster, &e) < 0) {
		log_warning("%s: %s", entry->conf->scope, e.text);
		return;
	}
	if (!roster_is_whole(roster))
		entry->roster_ms = service_now_ms() + ROSTER_PART_MS;
	for (struct work *w = s->works; w; w = w->next)
		if (w->entry == entry && w->in_roster)
			take_roster(s, w, roster);
}

void work_unlist(struct service *s, struct work_entry *entry)
{
	for (struct work *w = s->works; w; w = w->next)
		if (w->entry == entry)
			w->listed = false;
}

void work_take_jobs(struct service *s, struct work_entry *entry, const char *repo, const struct jobs *jobs)
{
	struct job_view job;

	for (struct work *w = s->works; w; w = w->next) {
		if (w->entry != entry || !work_is_watched(w->state) || !jobs_on_runner(jobs, w->runner_name, &job) ||
			job.status != JOB_RUNNING)
			continue;
		if (!w->job[0] && job.name[0])
			w->job_told = false; /* busy was known before the name was */
		(void)str_copy(w->job, job.name);
		(void)str_copy(w->job_repo, repo);
		w->job_run = job.run_id;
		w->listed = true;
		w->asked_ms = w->asked_ms ? w->asked_ms : service_now_ms();
		work_note_time(s, w, NOTE_QUEUED, job.created_s);
		work_feed(s, w, WORK_EV_BUSY);
		if (w->state == WORK_BUSY)
			work_enter_busy(s, w); /* again, if the keeper could not be told */
	}
}

static bool wants_look(const struct work *w, uint64_t now)
{
	/* A list that still says "running" says nothing about a runner that is gone. */
	return work_is_watched(w->state) && !w->asking && (!w->listed || now - w->asked_ms >= LISTED_ASK_MS);
}

/* What begins while the list is on its way may not be in it yet: only of those that are here now it tells. */
static void ask_roster(struct service *s, struct work_entry *entry)
{
	struct github_request r = {0};
	struct error e = ERROR_INIT;

	for (struct work *w = s->works; w; w = w->next)
		if (w->entry == entry)
			w->in_roster = work_is_watched(w->state) || w->state == WORK_SPENT;
	(void)str_copy(r.scope, entry->conf->scope);
	entry->listing =
		github_link_ask(s->github, GITHUB_RUNNERS, &r, GITHUB_RANK_LIVE, on_roster, s, entry->number, &e) == 0;
	if (!entry->listing)
		log_warning("%s: %s", entry->conf->scope, e.text);
}

void work_watch(struct service *s, struct work_entry *entry)
{
	uint64_t now = service_now_ms();
	unsigned spent = 0, looks = 0;

	for (struct work *w = s->works; w; w = w->next)
		if (w->entry == entry) {
			spent += w->state == WORK_SPENT;
			looks += wants_look(w, now);
		}
	if (!entry->orphans && now >= entry->roster_ms && (spent > 0 || looks > 1)) {
		if (!entry->listing)
			ask_roster(s, entry);
		return;
	}
	for (struct work *w = s->works; w; w = w->next)
		if (w->entry == entry && wants_look(w, now))
			ask_runner(s, w);
}
