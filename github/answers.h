#ifndef BOXERY_GITHUB_ANSWERS_H
#define BOXERY_GITHUB_ANSWERS_H
/*
 * What GitHub's answers mean. Everything here takes bytes from outside and does no I/O, so that it can be fed anything
 * (tests/fuzz). All return 0 or -EBADMSG with a sentence that quotes nothing of the input. Shapes: GitHub's OpenAPI
 * description, version 2022-11-28.
 */
#include "base/error.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWERS_RUNS_MAX 300
#define ANSWERS_JOBS_MAX 2000 /* what fits a document to the client */

/* The "message" of an error body, made visible; "" when there is none. Never fails. */
void answers_message(const char *data, size_t len, char *dst, size_t size);

/* A boolean true in "private", and no "visibility" that is neither private nor internal (to an enterprise). */
bool answers_is_private(const json_t *repository);
/* The repository has to be the one that was asked for. */
int answers_repository(const char *data, size_t len, const char *scope, bool *ret_private, struct error *e);

/* The sealed JIT config and the runner's id. ret_id is set, if the answer has it, even when the call fails. */
int answers_mint(const char *data, size_t len, const char *name, uint64_t *ret_id, int *ret_jit, struct error *e);

struct answers_runner {
	uint64_t id;
	bool online, busy;
};
int answers_runner(const char *data, size_t len, struct answers_runner *ret, struct error *e);
#define ANSWERS_RUNNERS_MAX 100 /* of one page */
/* Adds the runners of a page, trimmed to what proto.h lists, to an array. *ret_part is set when it is not known of every one of
 * them what it is. */
int answers_runners(const char *data, size_t len, json_t *array, bool *ret_part, struct error *e);
/* The one with exactly this name out of a list. */
int answers_runner_named(const char *data, size_t len, const char *name, bool *ret_found, struct answers_runner *ret,
		struct error *e);

/* Ids of the runs of a page, added to those that are there already; one that is there is not added again. */
struct answers_runs {
	uint64_t ids[ANSWERS_RUNS_MAX];
	size_t n;
	bool full; /* there were more */
};
int answers_runs(const char *data, size_t len, struct answers_runs *runs, struct error *e);

/* Adds the wanted jobs of a page, trimmed to what proto.h lists, to an array. runner_name NULL: the queued and running
 * ones; else those that this runner has or had. ret_full: there is no room for more. */
int answers_jobs(const char *data, size_t len, const char *runner_name, json_t *array, bool *ret_full, struct error *e);

struct answers_group {
	uint64_t id;
	bool selected;        /* for a list of repositories only */
	bool excludes_public; /* GitHub says so, in so many words */
	char visibility[24];
};
/* The runner group with exactly this name out of a page of them. */
int answers_group_named(const char *data, size_t len, const char *name, bool *ret_found, struct answers_group *ret,
		struct error *e);
#define ANSWERS_GROUP_REPOSITORIES_MAX 100
/* Adds the full names of a page of a group's repositories to an array. *ret_all_private is cleared when one is not known to
 * be private, *ret_full set when there is no room for more. */
int answers_group_repositories(const char *data, size_t len, const char *org, json_t *names, bool *ret_all_private,
		bool *ret_full, struct error *e);

/* "registers until D1, runs until D2" or "". */
int answers_deprecation(const char *data, size_t len, char *dst, size_t size, struct error *e);
#endif
