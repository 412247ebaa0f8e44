#ifndef BOXERY_GITHUB_CALL_H
#define BOXERY_GITHUB_CALL_H
/*
 * One request of a client on its way through GitHub's API. A call function checks the fields it uses, makes its exchanges
 * and fills the reply; on failure it returns -errno with the sentence in e and the fault in the reply.
 */
#include "base/error.h"
#include "github/cache.h"
#include "github/credential.h"
#include "github/http.h"
#include "github/proto.h"
#include <jansson.h>

struct call {
	const struct github_request *in; /* strings are terminated, scope is checked */
	struct github_reply *out;
	struct credential *credential;
	bool token_was_kept; /* an App's: not fetched for this call */
	struct http *http;
	struct cache *cache;
	const char *what; /* what is being asked for, for the error: "repository o/r" */
	int *ret_fd;      /* goes along with the reply; -1 */
};
typedef int (*call_fn)(struct call *c, struct error *e);

int call_hello(struct call *c, struct error *e);
int call_repository(struct call *c, struct error *e);
int call_mint(struct call *c, struct error *e);
int call_runner(struct call *c, struct error *e);
int call_runners(struct call *c, struct error *e);
int call_delete(struct call *c, struct error *e);
int call_jobs(struct call *c, struct error *e);
int call_job_of(struct call *c, struct error *e);
int call_deprecation(struct call *c, struct error *e);
int call_group(struct call *c, struct error *e);

/* Looks up one request in the table of verbs and answers it. Never fails: the reply says how it went. ret_fd is -1 or the
 * file that goes along. */
void call_dispatch(const char *env_path, struct cache *cache, const struct github_request *in, struct github_reply *out,
		int *ret_fd);

/* --- shared by the call functions (exchange.c) */

/* Makes the exchange; anything but `expected` (and 304, when an ETag was sent) is a fault. ret must be freed by the caller in every case. */
int call_exchange(struct call *c, const struct http_request *q, long expected, struct http_answer *ret, struct error *e);
/* GET of an object with 200, through the cache. */
int call_get(struct call *c, const char *path, struct http_answer *ret, struct error *e);
/* GET of a page of a list, through the cache. */
int call_get_page(struct call *c, const char *path, struct http_answer *ret, struct error *e);
/* "/repos/OWNER/REPO" or "/orgs/ORG". */
const char *call_scope_path(const struct call *c, char dst[static HTTP_PATH_MAX]);
/* "repository o/r" or "organization o". */
const char *call_scope_words(const struct call *c, char *dst, size_t size);
/* A page or object that was not understood: forgotten, or its ETag would bring it back for ever. Sets the fault, returns r. */
int call_page_not_understood(struct call *c, const char *path, int r, struct error *e);
/* An answer that was not understood: sets the fault, returns r. */
int call_not_understood(struct call *c, int r, struct error *e);
/* Is the repository or organization there for this token? For a 404 below it, which otherwise says nothing. Fails with the fault set. */
int call_confirm_visible(struct call *c, struct error *e);
/* The repository's visibility; fault PUBLIC is not set here. */
int call_read_private(struct call *c, bool *ret_private, struct error *e);
/* The runner group that the request names: its id, and whether only private repositories can use it. ret_document may be NULL. */
int call_read_group(struct call *c, uint64_t *ret_id, bool *ret_private, json_t **ret_document, struct error *e);
int call_check_runner_name(const struct call *c, struct error *e);
#endif
