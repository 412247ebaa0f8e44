#ifndef BOXERY_GITHUB_HTTP_H
#define BOXERY_GITHUB_HTTP_H
/*
 * One HTTP exchange with the one origin of the credential. Never a redirect, a proxy but the credential's, a cookie, another
 * protocol, an encoding to unpack; a limit on the body and on the time; writes are at least a second apart and are never repeated.
 */
#include "base/error.h"
#include "github/credential.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_LIST_MAX (4 * 1024 * 1024) /* a page of 100 runs has about 1.5 MB */
#define HTTP_OBJECT_MAX (256 * 1024)    /* a repository has about 7 kB, a minted JIT config about 6 kB */
#define HTTP_CONNECT_TIMEOUT_MS 10000
#define HTTP_WRITE_GAP_MS 1000          /* GitHub asks for a second between writes */
#define HTTP_PATH_MAX 512

struct http_request {
	const char *method; /* GET, POST, DELETE */
	const char *path;   /* below the base URL, with its query; made of checked parts only */
	const char *body;   /* JSON, NULL: none */
	const char *etag;   /* If-None-Match, NULL: none */
	size_t max;         /* largest body of the answer */
	bool secret;        /* the answer holds a secret: received into locked memory */
	const struct secret *authorization; /* another header than the credential's; NULL: that */
};

struct http_answer {
	long status; /* 0: none came */
	char *data;  /* NULL when empty; NUL-terminated */
	size_t len, capacity, max;
	bool guarded, too_large;
	bool sent;   /* the request, or a part of it, has left: it may have been acted upon */
	bool next;   /* the list has another page */
	bool has_remaining;
	uint32_t remaining, limit;
	uint64_t reset, date;       /* epoch seconds by GitHub's clock, 0: not told */
	uint64_t retry_after;       /* seconds, valid if has_retry_after */
	bool has_retry_after;
	uint64_t token_expires;     /* epoch seconds: when the credential does; 0: not told */
	char permissions[160], etag[128];
};

struct http;
/* The credential is borrowed. */
int http_new(const struct credential *c, struct http **ret, struct error *e);
struct http *http_free(struct http *h);
DEFINE_CLEANUP(struct http *, http_free);
/*
 * 0: a whole answer with any status. Failures: -ENOTCONN and others before an answer, -ETIMEDOUT, -EPIPE cut off, -EFBIG
 * too large; ret->status and ret->sent are set in every case. ret is freed by the caller in every case.
 */
int http_call(struct http *h, const struct http_request *r, struct http_answer *ret, struct error *e);
void http_answer_free(struct http_answer *a);
#endif
