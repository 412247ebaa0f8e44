#ifndef BOXERY_MANAGER_VERSIONS_H
#define BOXERY_MANAGER_VERSIONS_H
/*
 * Until when does GitHub take the actions/runner of each base image? A release that is too old gets no jobs, and neither its
 * registration nor its log in the guest says so in time; so it is asked once a day (boot clock), one question a release, on
 * behalf of an entry that is served. What ends within VERSIONS_SOON_S, or has ended, is an alarm, once for each of the two, and
 * stands in the status. A release that GitHub knows nothing of, or has set no end for, is none; when GitHub cannot be asked the
 * next try is an hour later and nothing is concluded.
 */
#include "base/error.h"
#include <jansson.h>
#include <stdint.h>

#define VERSIONS_SOON_S (14 * 24 * 3600)

struct service;
struct versions;
int versions_new(struct service *s, struct versions **ret, struct error *e);
struct versions *versions_free(struct versions *v);
/* Looks for the first time as soon as an entry is served. */
int versions_start(struct versions *v, struct error *e);
/* An array of {image, version, until, state}; the caller's. NULL without memory. */
json_t *versions_status(const struct versions *v);

enum version_state {
	VERSION_UNASKED,
	VERSION_TAKEN,	/* without an end, or with one that is far away */
	VERSION_ENDS,	/* soon */
	VERSION_ENDED,
	VERSION_STATE_COUNT
};
const char *version_state_to_string(enum version_state v); /* "not asked yet", "taken" ... */
/*
 * Of GitHub's dates as DEPRECATION gives them ("registers until TIME, runs until TIME", either or none). The earlier one
 * is *ret_until (epoch seconds; 0: none is set); ENDED is what does not run any more.
 */
enum version_state versions_judge(const char *dates, uint64_t now_s, uint64_t *ret_until);
#endif
