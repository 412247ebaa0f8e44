#ifndef BOXERY_GITHUB_FAULT_H
#define BOXERY_GITHUB_FAULT_H
/* Tells apart, in the words that decide what to do next, why GitHub said no. No I/O. */
#include "base/error.h"
#include "github/credential.h"
#include "github/http.h"
#include "github/proto.h"

struct fault_context {
	const struct credential *credential; /* to blot it out of GitHub's words */
	const char *what; /* what was asked for, for "GitHub knows no ...": "repository o/r", "runner 17 in o/r" */
	bool deletes;     /* 422 means busy */
	uint64_t now;     /* epoch seconds, used when the answer has no date */
};
#define FAULT_RETRY_DEFAULT_MS 60000            /* a limit that names no time: a minute at least */
#define FAULT_RETRY_MAX_MS (24ull * 3600 * 1000)

/* For an answer whose status is not the expected one: fills fault, http_status, retry_after_ms; returns -errno. */
int fault_from_answer(const struct fault_context *c, const struct http_answer *a, struct github_reply *reply, struct error *e);
/* For http_call's own failure r, whose sentence is in e already. */
int fault_from_failure(int r, const struct http_answer *a, struct github_reply *reply);
#endif
