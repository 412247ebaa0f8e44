/*
 * Theory of operation. The Authorization header is built once, in locked memory, and given to libcurl as a
 * list node that points there; libcurl's own copies (the request it composes, TLS buffers) are wiped when
 * they are freed, see wipe.h. A reused connection that turns out to be dead makes libcurl send a request a
 * second time. For reads that is welcome; a write gets a connection of its own, so that "it may have been
 * acted upon" is said instead.
 */
#include "boxery-config.h"

#include "github/http.h"

#include "base/str.h"
#include "github/http_answer.h"
#include "github/proto.h"
#include "linux/clock.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct http {
	const struct credential *credential;
	CURL *curl;
	char error[CURL_ERROR_SIZE];
};

/* CLOCK_BOOTTIME of the last write of this process; across calls, as GitHub counts. */
static uint64_t last_write_us;

static size_t on_header(char *line, size_t size, size_t n, void *userdata)
{
	http_answer_header(userdata, line, size * n);
	return size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *userdata)
{
	return http_answer_body(userdata, data, size * n) < 0 ? 0 : size * n;
}

#define SET(h, option, value)                                                                                \
	do {                                                                                                 \
		if (r == CURLE_OK)                                                                           \
			r = curl_easy_setopt((h)->curl, (option), (value));                                  \
	} while (0)

static CURLcode set_up(struct http *h)
{
	const struct credential *c = h->credential;
	const char *protocol = str_starts(c->base_url, "https:") ? "https" : "http";
	CURLcode r = CURLE_OK;

	SET(h, CURLOPT_PROTOCOLS_STR, protocol);
	SET(h, CURLOPT_REDIR_PROTOCOLS_STR, protocol);
	SET(h, CURLOPT_FOLLOWLOCATION, 0L);
	SET(h, CURLOPT_PROXY, c->proxy); /* "" is none, also not the environment's */
	SET(h, CURLOPT_NOPROXY, "");
	SET(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	SET(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(h, CURLOPT_SSL_VERIFYPEER, 1L);
	SET(h, CURLOPT_SSL_VERIFYHOST, 2L);
	if (c->ca_file[0]) {
		SET(h, CURLOPT_CAINFO, c->ca_file);
		SET(h, CURLOPT_CAPATH, NULL);
	}
	SET(h, CURLOPT_NOSIGNAL, 1L);
	SET(h, CURLOPT_CONNECTTIMEOUT_MS, (long)HTTP_CONNECT_TIMEOUT_MS);
	SET(h, CURLOPT_TIMEOUT_MS, (long)GITHUB_REQUEST_TIMEOUT_MS);
	SET(h, CURLOPT_USERAGENT, "boxery/" BOXERY_VERSION);
	SET(h, CURLOPT_ERRORBUFFER, h->error);
	SET(h, CURLOPT_HEADERFUNCTION, on_header);
	SET(h, CURLOPT_WRITEFUNCTION, on_body);
	return r;
}

int http_new(const struct credential *c, struct http **ret, struct error *e)
{
	CLEANUP(http_freep) struct http *h = calloc(1, sizeof(*h));
	if (!h)
		return error_set(e, ENOMEM, "no memory for an HTTP client");
	h->credential = c;
	h->curl = curl_easy_init();
	if (!h->curl)
		return error_set(e, ENOMEM, "no memory for an HTTP client");
	CURLcode r = set_up(h);
	if (r != CURLE_OK)
		return error_set(
			e, EOPNOTSUPP, "this libcurl cannot be set up as needed: %s", curl_easy_strerror(r));
	*ret = TAKE_PTR(h);
	return 0;
}

struct http *http_free(struct http *h)
{
	if (h) {
		curl_easy_cleanup(h->curl);
		free(h);
	}
	return NULL;
}

static CURLcode set_request(
	struct http *h, const struct http_request *q, struct curl_slist *headers, struct http_answer *answer)
{
	char url[GITHUB_URL_MAX + HTTP_PATH_MAX];
	bool get = str_equal(q->method, "GET");
	CURLcode r = CURLE_OK;

	if (str_format(url, "%s%s", h->credential->base_url, q->path) < 0)
		return CURLE_URL_MALFORMAT;
	SET(h, CURLOPT_URL, url);
	SET(h, CURLOPT_HTTPGET, 1L); /* undoes what the request before had set */
	SET(h, CURLOPT_CUSTOMREQUEST, get || q->body ? NULL : q->method);
	if (q->body) {
		SET(h, CURLOPT_POST, 1L);
		SET(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(q->body));
		SET(h, CURLOPT_POSTFIELDS, q->body);
	}
	SET(h, CURLOPT_FRESH_CONNECT, get ? 0L : 1L);
	SET(h, CURLOPT_FORBID_REUSE, get ? 0L : 1L);
	SET(h, CURLOPT_HTTPHEADER, headers);
	SET(h, CURLOPT_HEADERDATA, answer);
	SET(h, CURLOPT_WRITEDATA, answer);
	SET(h, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)q->max);
	return r;
}

static void wait_for_write(void)
{
	uint64_t due = last_write_us + HTTP_WRITE_GAP_MS * 1000, now = clock_boot_us();
	if (last_write_us != 0 && now < due) {
		uint64_t us = due - now;
		struct timespec t = {
			.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
		while (nanosleep(&t, &t) < 0 && errno == EINTR)
			;
	}
}

/* libcurl's own words, where it has some. They name hosts and files, never a header. */
static int failed(struct http *h, CURLcode r, const struct http_answer *a, struct error *e)
{
	char words[200];
	const char *text = h->error[0] ? h->error : curl_easy_strerror(r);
	str_show_n(words, sizeof(words), text, strlen(text));

	if (a->too_large || r == CURLE_FILESIZE_EXCEEDED)
		return error_set(e, EFBIG, "GitHub's answer is larger than %zu bytes", a->max);
	if (r == CURLE_OPERATION_TIMEDOUT)
		return error_set(
			e, ETIMEDOUT, "%s did not answer in time: %s", h->credential->base_url, words);
	if (a->status != 0)
		return error_set(e, EPIPE, "GitHub's answer was cut off: %s", words);
	return error_set(e, ENOTCONN, "%s cannot be reached: %s", h->credential->base_url, words);
}

int http_call(struct http *h, const struct http_request *q, struct http_answer *ret, struct error *e)
{
	char if_none_match[160] = "";
	struct curl_slist nodes[6];
	size_t n = 0;

	*ret = (struct http_answer){.max = q->max, .guarded = q->secret};
	/* Nodes of our own: libcurl reads the list and copies nothing. curl_slist has no const. */
	nodes[n++].data = (char *)(uintptr_t)secret_bytes(q->authorization ? q->authorization : h->credential->header);
	nodes[n++].data = (char *)(uintptr_t) "Accept: application/vnd.github+json";
	nodes[n++].data = (char *)(uintptr_t) "X-GitHub-Api-Version: 2022-11-28";
	if (q->body)
		nodes[n++].data = (char *)(uintptr_t) "Content-Type: application/json";
	nodes[n++].data = (char *)(uintptr_t) "Expect:";
	if (q->etag && str_format(if_none_match, "If-None-Match: %s", q->etag) == 0)
		nodes[n++].data = if_none_match;
	for (size_t i = 0; i < n; i++)
		nodes[i].next = i + 1 < n ? &nodes[i + 1] : NULL;

	CURLcode r = set_request(h, q, nodes, ret);
	if (r != CURLE_OK)
		return error_set(e, EINVAL, "the request cannot be made: %s", curl_easy_strerror(r));
	bool writes = !str_equal(q->method, "GET");
	if (writes)
		wait_for_write();
	h->error[0] = '\0';
	r = curl_easy_perform(h->curl);
	if (writes)
		last_write_us = clock_boot_us();

	long bytes = 0;
	(void)curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &ret->status);
	(void)curl_easy_getinfo(h->curl, CURLINFO_REQUEST_SIZE, &bytes);
	ret->sent = bytes > 0;
	(void)curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, NULL);
	return r == CURLE_OK ? 0 : failed(h, r, ret, e);
}
