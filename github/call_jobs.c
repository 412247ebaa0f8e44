/*
 * JOBS and JOB_OF. There is no list of queued jobs: there are runs, and jobs of a run. A run in progress can
 * hold queued jobs, so both kinds of runs are read. All of it is bounded (pages, runs, jobs, time); what was
 * left out is told.
 */
#include "base/str.h"
#include "github/answers.h"
#include "github/call.h"
#include "github/json.h"
#include "linux/clock.h"

#include <errno.h>
#include <string.h>

#define RUN_PAGES_MAX 3	      /* of 100 runs, for each status */
#define JOB_PAGES_MAX 3	      /* of 100 jobs, for each run; a run has at most 256 by one matrix */
#define JOBS_BUDGET_MS 120000 /* after that what there is is answered */
#define JOB_OF_RUNS 50	      /* latest runs to look for one job in */

struct walk {
	struct call *c;
	struct answers_runs runs;
	json_t *jobs;
	const char *runner_name; /* NULL: queued and running ones */
	uint64_t end_us;
	bool truncated;
};

static bool out_of_time(struct walk *w)
{
	if (clock_boot_us() < w->end_us)
		return false;
	w->truncated = true;
	return true;
}

static int read_runs(struct walk *w, const char *query, unsigned per_page, unsigned pages, struct error *e)
{
	for (unsigned page = 1; page <= pages && !out_of_time(w); page++) {
		CLEANUP(http_answer_free) struct http_answer a = {0};
		char path[HTTP_PATH_MAX];
		(void)str_format(path, "/repos/%s/actions/runs?%sper_page=%u&page=%u", w->c->in->scope, query,
			per_page, page);
		int r = call_get_page(w->c, path, &a, e);
		if (r < 0)
			return r;
		r = answers_runs(a.data, a.len, &w->runs, e);
		if (r < 0)
			return call_page_not_understood(w->c, path, r, e);
		if (!a.next)
			return 0;
		w->truncated = w->truncated || (page == pages && pages > 1);
	}
	return 0;
}

static int read_jobs(struct walk *w, uint64_t run, struct error *e)
{
	for (unsigned page = 1; page <= JOB_PAGES_MAX && !out_of_time(w); page++) {
		CLEANUP(http_answer_free) struct http_answer a = {0};
		char path[HTTP_PATH_MAX];
		/* A job of an earlier attempt is of interest only to whom has seen it run. */
		(void)str_format(path, "/repos/%s/actions/runs/%llu/jobs?filter=%s&per_page=100&page=%u",
			w->c->in->scope, (unsigned long long)run, w->runner_name ? "all" : "latest", page);
		int r = call_get_page(w->c, path, &a, e);
		if (r == -ENOENT) { /* the run was deleted meanwhile; the repository has just been read */
			error_clear(e);
			w->c->out->fault = GITHUB_FAULT_NONE;
			return 0;
		}
		if (r < 0)
			return r;
		r = answers_jobs(a.data, a.len, w->runner_name, w->jobs, &w->truncated, e);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			return call_page_not_understood(w->c, path, r, e);
		if (!a.next)
			return 0;
		w->truncated = w->truncated || page == JOB_PAGES_MAX;
	}
	return 0;
}

static int send_document(struct walk *w, struct error *e)
{
	CLEANUP_JSON json_t *root = json_object();
	if (json_object_set(root, "jobs", w->jobs) < 0 ||
		json_object_set_new(root, "truncated", json_boolean(w->truncated || w->runs.full)) < 0)
		return error_set(e, ENOMEM, "no memory for a list of jobs");
	CLEANUP_FREE char *text = json_dumps(root, JSON_COMPACT);
	if (!text)
		return error_set(e, ENOMEM, "no memory for a list of jobs");
	w->c->out->http_status = 200;
	return msg_document(text, strlen(text), w->c->ret_fd, e);
}

static int walk_start(struct walk *w, struct call *c, struct error *e)
{
	w->c = c;
	w->end_us = clock_boot_us() + JOBS_BUDGET_MS * 1000ull;
	w->jobs = json_array();
	return w->jobs ? 0 : error_set(e, ENOMEM, "no memory for a list of jobs");
}

static void walk_end(struct walk *w)
{
	json_decref(w->jobs);
}

int call_jobs(struct call *c, struct error *e)
{
	CLEANUP(walk_end) struct walk w = {0};
	int r = walk_start(&w, c, e);
	if (r >= 0)
		r = read_runs(&w, "status=queued&", 100, RUN_PAGES_MAX, e);
	if (r >= 0)
		r = read_runs(&w, "status=in_progress&", 100, RUN_PAGES_MAX, e);
	for (size_t i = 0; r >= 0 && i < w.runs.n && !out_of_time(&w); i++)
		r = read_jobs(&w, w.runs.ids[i], e);
	return r < 0 ? r : send_document(&w, e);
}

static int finish_job_of(struct walk *w, struct error *e)
{
	while (json_array_size(w->jobs) > 1)
		(void)json_array_remove(w->jobs, 1);
	return send_document(w, e);
}

int call_job_of(struct call *c, struct error *e)
{
	CLEANUP(walk_end) struct walk w = {.runner_name = c->in->runner_name};
	int r = call_check_runner_name(c, e);
	if (r >= 0)
		r = walk_start(&w, c, e);
	if (r >= 0 && c->in->run_id) {
		r = read_jobs(&w, c->in->run_id, e);
		return r < 0 ? r : finish_job_of(&w, e);
	}
	/* Runs in progress first: a long job's run is not among the latest any more. */
	if (r >= 0)
		r = read_runs(&w, "status=in_progress&", 100, 1, e);
	if (r >= 0)
		r = read_runs(&w, "", JOB_OF_RUNS, 1, e);
	for (size_t i = 0; r >= 0 && i < w.runs.n && json_array_size(w.jobs) == 0 && !out_of_time(&w); i++)
		r = read_jobs(&w, w.runs.ids[i], e);
	return r < 0 ? r : finish_job_of(&w, e);
}
