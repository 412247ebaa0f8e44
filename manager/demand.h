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
};

struct jobs;
int jobs_parse(const char *data, size_t len, struct jobs **ret, struct error *e);
struct jobs *jobs_free(struct jobs *j);
DEFINE_CLEANUP(struct jobs *, jobs_free);

/* Queued jobs that a runner with these labels may take: each of the job's labels is among them, ignoring case. */
unsigned jobs_wanted(const struct jobs *j, const struct runners_entry *entry);
/* The job on the runner of exactly this name; false when there is none. */
bool jobs_on_runner(const struct jobs *j, const char *runner_name, struct job_view *ret);

/*
 * How many more leases to take: what is wanted, less the leases that have not taken a job yet (they will take
 * one), at most up to `max` leases.
 */
unsigned demand_missing(unsigned wanted, unsigned unfilled, unsigned held, unsigned max);
#endif
