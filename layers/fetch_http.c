/* The network half of a download: libcurl, one request, body to a file and into the sum as it comes. */
#include "base/str.h"
#include "layers/check.h"
#include "layers/fetch.h"
#include "layers/sha256.h"
#include "linux/clock.h"
#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t cancelled;

void fetch_cancel(void)
{
	cancelled = 1;
}

static void curl_done(CURL **c)
{
	curl_easy_cleanup(*c);
}
static void url_done(CURLU **u)
{
	curl_url_cleanup(*u);
}
static void text_done(char **s)
{
	curl_free(*s);
}

struct transfer {
	const struct fetch_request *q;
	struct sha256 *sum;
	int fd;
	uint64_t size, max;
	int failed; /* errno of a write, or EFBIG */
	uint64_t began_us, shown_us;
};

int fetch_url_check(const char *url, struct error *e)
{
	CLEANUP(url_done) CURLU *u = curl_url();
	CLEANUP(text_done) char *scheme = NULL;
	CLEANUP(text_done) char *host = NULL;
	CLEANUP(text_done) char *user = NULL;
	char shown[160];

	if (!u)
		return error_errno(e, ENOMEM, "--url");
	str_show_n(shown, sizeof(shown), url, strlen(url));
	if (curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK || curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
			curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK)
		return error_set(e, EINVAL, "--url: '%s' is not an http or https URL", shown);
	if (curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_OK)
		return error_set(e, EINVAL, "--url: a user name or password in the URL is not allowed");
	if (str_equal(scheme, "https"))
		return 0;
	if (!str_equal(scheme, "http"))
		return error_set(e, EINVAL, "--url: '%s': only https is allowed", shown);
	if (!host_is_loopback(host))
		return error_set(e, EINVAL, "--url: '%s': http is allowed only to a loopback address; use https", shown);
	return 0;
}

static size_t on_body(char *data, size_t one, size_t len, void *userdata)
{
	struct transfer *t = userdata;
	size_t left = len * one, all = left;

	if (t->size + left > t->max) {
		t->failed = EFBIG;
		return 0;
	}
	if (sha256_add(t->sum, data, left) < 0) {
		t->failed = EIO;
		return 0;
	}
	while (left > 0) {
		ssize_t n = write(t->fd, data, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			t->failed = errno;
			return 0;
		}
		data += n;
		left -= (size_t)n;
	}
	t->size += all;
	return all;
}

static int on_progress(void *userdata, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
	struct transfer *t = userdata;
	const bool tty = isatty(STDERR_FILENO);
	uint64_t us = clock_boot_us(), spent_ms = (us - t->began_us) / 1000u;

	(void)up_total;
	(void)up;
	if (cancelled)
		return 1;
	if (spent_ms < FETCH_PROGRESS_AFTER_MS || (us - t->shown_us) / 1000u < (tty ? 500u : 10000u) || now <= 0)
		return 0;
	t->shown_us = us;
	(void)fprintf(stderr, "%sboxery-fetch: %.1f of %.1f MiB, %.1f MiB/s%s", tty ? "\r" : "", (double)now / 1048576.0,
			(double)(total > now ? total : now) / 1048576.0, (double)now / 1048.576 / (double)spent_ms,
			tty ? "\033[K" : "\n");
	return 0;
}

static int explain(CURLcode code, long status, const char *words, const struct transfer *t, struct error *e)
{
	const char *url = t->q->url;

	if (t->failed == EFBIG || code == CURLE_FILESIZE_EXCEEDED)
		return error_set(e, EFBIG, "%s: larger than the %llu bytes allowed", url, (unsigned long long)t->max);
	if (t->failed)
		return error_errno(e, t->failed, "%s: cannot write to the cache", url);
	switch ((int)code) {
	case CURLE_ABORTED_BY_CALLBACK:
		return error_set(e, ECANCELED, "%s: interrupted", url);
	case CURLE_OPERATION_TIMEDOUT:
		return error_set(e, ETIMEDOUT, "%s: %s", url, words);
	case CURLE_HTTP_RETURNED_ERROR:
		return error_set(e, status == 404 ? ENOENT : ENOTCONN, "%s: the server answered %ld", url, status);
	case CURLE_PARTIAL_FILE:
		return error_set(e, ECONNRESET, "%s: cut off after %llu bytes; nothing was kept", url,
				(unsigned long long)t->size);
	case CURLE_UNSUPPORTED_PROTOCOL:
		return error_set(e, EPERM, "%s: sent on to an address that is not https; refused", url);
	case CURLE_TOO_MANY_REDIRECTS:
		return error_set(e, ENOTCONN, "%s: sent on more than %d times", url, FETCH_REDIRECTS_MAX);
	default:
		return error_set(e, ENOTCONN, "%s: %s", url, words);
	}
}

static void set_rules(CURL *c, const struct fetch_request *q, uint64_t max)
{
	const bool secure = str_starts(q->url, "https:");

	(void)curl_easy_setopt(c, CURLOPT_URL, q->url);
	(void)curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, secure ? "https" : "http");
	(void)curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "https");
	(void)curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, secure ? 1L : 0L);
	(void)curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)FETCH_REDIRECTS_MAX);
	(void)curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	(void)curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
	(void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(c, CURLOPT_USERAGENT, "boxery-fetch");
	(void)curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)FETCH_CONNECT_TIMEOUT_S);
	(void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)FETCH_STALL_BYTES);
	(void)curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)FETCH_STALL_S);
	(void)curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)FETCH_TOTAL_TIMEOUT_S);
	(void)curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)max);
	/* A proxy is for the world outside; what listens on loopback is asked directly. */
	if (!secure)
		(void)curl_easy_setopt(c, CURLOPT_PROXY, "");
	if (q->ca_file)
		(void)curl_easy_setopt(c, CURLOPT_CAINFO, q->ca_file);
}

int fetch_http(const struct fetch_request *q, int fd, char ret_sha256[static LAYER_SHA256_MAX], uint64_t *ret_size,
		struct error *e)
{
	CLEANUP(sha256_freep) struct sha256 *sum = sha256_new();
	CLEANUP(curl_done) CURL *c = curl_easy_init();
	char words[CURL_ERROR_SIZE] = "";
	struct transfer t = { .q = q, .sum = sum, .fd = fd, .max = q->max_size ? q->max_size : FETCH_SIZE_MAX_DEFAULT };
	long status = 0;
	CURLcode code;

	if (!sum || !c)
		return error_errno(e, ENOMEM, "%s", q->url);
	t.began_us = clock_boot_us();
	set_rules(c, q, t.max);
	(void)curl_easy_setopt(c, CURLOPT_ERRORBUFFER, words);
	(void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	(void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &t);
	(void)curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
	(void)curl_easy_setopt(c, CURLOPT_XFERINFODATA, &t);
	(void)curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
	code = curl_easy_perform(c);
	(void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	if (t.shown_us && isatty(STDERR_FILENO))
		(void)fputc('\n', stderr);
	if (code != CURLE_OK)
		return explain(code, status, words[0] ? words : curl_easy_strerror(code), &t, e);
	/* An http server that sends us elsewhere is not followed, and its page is not what was asked for. */
	if (status < 200 || status > 299)
		return error_set(e, EPERM, "%s: answered %ld; only https is followed elsewhere", q->url, status);
	if (sha256_end(sum, ret_sha256) < 0)
		return error_set(e, EIO, "%s: checksum failed", q->url);
	*ret_size = t.size;
	return 0;
}
