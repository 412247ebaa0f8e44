/*
 * Which job the runner had, and how it ended: GitHub has no list by runner, so the runs in progress and then the latest runs are
 * looked through for a job with this runner's name. GitHub's lists lag behind its runners; how long that is waited for depends
 * on what is known already.
 */
#include "base/str.h"
#include "controller/clock.h"
#include "controller/run.h"

#include <inttypes.h>
#include <string.h>

#define PATIENCE_JOB_MS 60000   /* a job was seen: its end is listed soon */
#define PATIENCE_DIED_MS 10000  /* GitHub gives a job up ten minutes later; that is not waited for */
#define PATIENCE_NO_JOB_MS 4000 /* nothing speaks for a job */
#define AGAIN_MS 2000
#define TRIES_MAX 5 /* of the last question */

static enum result of_conclusion(const char *conclusion)
{
	static const struct {
		const char *conclusion;
		enum result result;
	} known[] = {{"success", RESULT_SUCCEEDED}, {"neutral", RESULT_SUCCEEDED}, {"cancelled", RESULT_CANCELLED},
			{"skipped", RESULT_CANCELLED}};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (str_equal(conclusion, known[i].conclusion))
			return known[i].result;
	return RESULT_FAILED;
}

static void decided(struct run *r, enum result result)
{
	r->result = result;
	r->result_known = true;
	r->ask_ms = 0;
	r->failures = 0;
}

static void take_job(struct run *r, const json_t *job)
{
	r->job_id = link_number(job, "id", INT64_MAX);
	link_shown(job, "name", r->job, sizeof(r->job));
	r->busy = true;
	r->search = SEARCH_OVER;
	if (r->state == RUN_ENDING && str_equal(link_text(job, "status"), "completed"))
		decided(r, of_conclusion(link_text(job, "conclusion")));
}

static uint64_t patience(const struct run *r)
{
	if (!r->clean)
		return PATIENCE_DIED_MS;
	return r->busy || r->hint_running ? PATIENCE_JOB_MS : PATIENCE_NO_JOB_MS;
}

/* 0: go on. After an answer that was none. */
static bool failed(struct run *r, const struct gh_answer *a)
{
	if (a->fault == GH_OK)
		return false;
	if (a->fault == GH_ABSENT && r->search == SEARCH_JOBS)
		return false; /* the run was deleted meanwhile */
	run_ask_later(r, a);
	if (r->state == RUN_BUSY && r->failures > 3)
		r->search = SEARCH_OVER;
	return true;
}

static void on_jobs(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;
	json_t *job;
	size_t i;

	if (!failed(r, a)) {
		json_array_foreach(json_object_get(a->body, "jobs"), i, job)
		{
			if (!r->job_id && str_equal(link_text(job, "runner_name"), r->name))
				take_job(r, job);
		}
		r->next_run++;
	}
	run_tidy(r);
}

static void on_runs(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;
	json_t *run;
	size_t i;

	if (!failed(r, a)) {
		json_array_foreach(json_object_get(a->body, "workflow_runs"), i, run)
		{
			uint64_t id = link_number(run, "id", INT64_MAX);

			if (id && r->n_runs < ARRAY_SIZE(r->runs))
				r->runs[r->n_runs++] = id;
		}
		/* Of a job that runs only a run in progress can tell. */
		r->search = r->search == SEARCH_RUNNING && r->state == RUN_ENDING ? SEARCH_LATEST : SEARCH_JOBS;
	}
	run_tidy(r);
}

void run_find_job(struct run *r)
{
	const char *repo = r->plan->repo;

	switch (r->search) {
	case SEARCH_NONE:
		r->n_runs = r->next_run = 0;
		r->search = SEARCH_RUNNING;
		(void)run_ask(r, "GET", on_runs, NULL, "repos/%s/actions/runs?status=in_progress&per_page=%d", repo, RUN_RUNNING_RUNS);
		return;
	case SEARCH_RUNNING:
		(void)run_ask(r, "GET", on_runs, NULL, "repos/%s/actions/runs?status=in_progress&per_page=%d", repo, RUN_RUNNING_RUNS);
		return;
	case SEARCH_LATEST:
		(void)run_ask(r, "GET", on_runs, NULL, "repos/%s/actions/runs?per_page=%d", repo, RUN_LATEST_RUNS);
		return;
	case SEARCH_JOBS:
		if (r->next_run < r->n_runs) {
			(void)run_ask(r, "GET", on_jobs, NULL, "repos/%s/actions/runs/%" PRIu64 "/jobs?filter=all&per_page=100", repo,
					r->runs[r->next_run]);
			return;
		}
		r->search = SEARCH_OVER;
		return;
	case SEARCH_OVER:
		return;
	}
}

static void on_job(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;

	if (a->fault == GH_OK && str_equal(link_text(a->body, "status"), "completed"))
		decided(r, of_conclusion(link_text(a->body, "conclusion")));
	else if (a->fault == GH_OK || a->fault == GH_ABSENT)
		r->ask_ms = clock_now_ms() + AGAIN_MS;
	else
		run_ask_later(r, a);
	run_tidy(r);
}

static bool had_job(const struct run *r)
{
	return r->busy || r->hint_running;
}

/* The runner has ended by itself, or was deleted at our request. */
static void settle_gone(struct run *r)
{
	if (had_job(r))
		decided(r, RESULT_UNKNOWN);
	else
		decided(r, r->online || r->listened ? RESULT_NO_JOB : RESULT_NEVER_CONNECTED);
}

static void on_last(void *userdata, const struct gh_answer *a)
{
	struct run *r = userdata;

	if (a->fault == GH_ABSENT)
		r->registration = RUN_UNREGISTERED;
	else if (a->fault != GH_OK)
		run_ask_later(r, a);
	else if (clock_now_ms() - r->ended_ms < patience(r))
		r->ask_ms = clock_now_ms() + AGAIN_MS;
	else
		decided(r, had_job(r) || r->online || r->listened ? RESULT_GUEST_DIED : RESULT_NEVER_CONNECTED);
	run_tidy(r);
}

/*
 * No list says more. GitHub forgets a runner that has had its job or that it has dropped; one that it still knows has been cut off
 * from it, however its VM ended: that it powered itself off is no news of the runner, and the host may have seen the end or only that
 * the VM is not there any more.
 */
static void settle(struct run *r)
{
	if (r->link_lost && had_job(r))
		decided(r, RESULT_UNKNOWN);
	else if (r->registration != RUN_REGISTERED)
		settle_gone(r);
	else if (r->failures >= TRIES_MAX)
		decided(r, RESULT_UNKNOWN);
	else
		(void)run_ask(r, "GET", on_last, NULL, "%s/actions/runners/%" PRIu64, r->plan->base, r->runner_id);
}

void run_find_result(struct run *r)
{
	/* One look at all that there is, however long that takes; unless GitHub does not answer. */
	if (!r->plan->repo[0] || (clock_now_ms() - r->ended_ms >= patience(r) && (r->rounds > 0 || r->job_id || r->failures > 3))) {
		settle(r);
	} else if (r->job_id) {
		(void)run_ask(r, "GET", on_job, NULL, "repos/%s/actions/jobs/%" PRIu64, r->plan->repo, r->job_id);
		return;
	} else if (r->search != SEARCH_OVER) {
		run_find_job(r);
		if (r->search != SEARCH_OVER)
			return;
		r->rounds++;
		r->ask_ms = clock_now_ms() + AGAIN_MS;
	} else {
		r->search = SEARCH_NONE;
		return;
	}
	if (r->result_known)
		run_tidy(r);
}
