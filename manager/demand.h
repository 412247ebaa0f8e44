#ifndef BOXERY_MANAGER_DEMAND_H
#define BOXERY_MANAGER_DEMAND_H
/*
 * GitHub's job list as boxery-github passes it on (github/proto.h, JOBS and JOB_OF), and what it says about
 * demand. The texts in it were written by whoever wrote the workflow: they are compared and shown, never
 * believed. A job that lacks a field or has one of another type is skipped, because one odd job must not stop
 * the others.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "manager/config.h"
#include <stdbool.h>
#include <stddef.h>

#define JOB_NAME_SHOWN_MAX 96

enum job_status { JOB_QUEUED, JOB_RUNNING, JOB_COMPLETED, JOB_OTHER };

struct job_view {
	enum job_status status;
	char name[JOB_NAME_SHOWN_MAX]; /* made harmless */
	char conclusion[32];	       /* "" while there is none; made harmless */
	uint64_t run_id;	       /* 0: not told */
	uint64_t created_s, started_s, completed_s; /* epoch seconds of GitHub's clock: queued, begun, ended; 0: not told */
};

struct jobs;
int jobs_parse(const char *data, size_t len, struct jobs **ret, struct error *e);
struct jobs *jobs_free(struct jobs *j);
DEFINE_CLEANUP(struct jobs *, jobs_free);

/* Queued jobs that a runner with these labels may take: each of the job's labels is among them, ignoring case. */
unsigned jobs_wanted(const struct jobs *j, const struct runners_entry *entry);
/* The job on the runner of exactly this name; false when there is none. */
bool jobs_on_runner(const struct jobs *j, const char *runner_name, struct job_view *ret);

/* Why a queued job is not for these labels: which of its labels is off, and which of ours it may have meant. */
struct job_near {
	char job[JOB_NAME_SHOWN_MAX], label[RUNNERS_LABEL_MAX * 4], meant[RUNNERS_LABEL_MAX]; /* meant: "" when none is near */
	unsigned off; /* labels that are not ours */
};
#define JOB_NEAR_MAX 20
/* The queued jobs that fit none of the n entries, each with the entry it is nearest to; returns how many are in ret. */
unsigned jobs_unmatched(const struct jobs *j, const struct runners_entry *entries, unsigned n_entries, const char *repo,
	struct job_near ret[static JOB_NEAR_MAX]);
/* Could this entry get jobs of this repository? */
bool entry_covers(const struct runners_entry *entry, const char *repo);

/*
 * How many more leases to take: what is wanted, less the leases that have not taken a job yet (they will take
 * one), at most up to `max` leases.
 */
unsigned demand_missing(unsigned wanted, unsigned unfilled, unsigned held, unsigned max);
#endif
