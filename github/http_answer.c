#include "github/http_answer.h"

#include "base/parse.h"
#include "base/str.h"
#include "linux/secret.h"

#include <curl/curl.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define HEADER_MAX 1024 /* longer values belong to headers that nobody here reads */

static uint64_t number(const char *text)
{
	uint64_t v = 0;
	return parse_u64(text, "header", 0, UINT64_MAX / 2, &v, NULL) < 0 ? 0 : v;
}

static uint64_t epoch(const char *text)
{
	time_t t = curl_getdate(text, NULL);
	return t > 0 ? (uint64_t)t : 0;
}

/* "2026-12-31 23:59:59 UTC" or with an offset such as -0700: the only header in this form. */
static uint64_t expiration(const char *text)
{
	struct tm tm = {0};
	const char *rest = strptime(text, "%Y-%m-%d %H:%M:%S", &tm);
	time_t t = rest ? timegm(&tm) : -1;
	uint64_t offset = 0;

	if (t <= 0)
		return 0;
	rest += strspn(rest, " ");
	if ((*rest == '+' || *rest == '-') && parse_u64(rest + 1, "offset", 0, 1400, &offset, NULL) == 0) {
		time_t seconds = (time_t)(offset / 100 * 3600 + offset % 100 * 60);
		t += *rest == '-' ? seconds : -seconds;
	}
	return t > 0 ? (uint64_t)t : 0;
}

static void take_retry_after(struct http_answer *a, const char *value)
{
	/* Seconds, by the letter of HTTP also a date. */
	if (parse_u64(value, "retry-after", 0, UINT32_MAX, &a->retry_after, NULL) < 0) {
		uint64_t when = epoch(value), now = a->date ? a->date : (uint64_t)time(NULL);
		if (when == 0)
			return;
		a->retry_after = when > now ? when - now : 0;
	}
	a->has_retry_after = true;
}

static void take_header(struct http_answer *a, const char *name, const char *value)
{
	if (strcasecmp(name, "retry-after") == 0)
		take_retry_after(a, value);
	else if (strcasecmp(name, "x-ratelimit-remaining") == 0) {
		a->remaining = (uint32_t)number(value);
		a->has_remaining = *value >= '0' && *value <= '9';
	} else if (strcasecmp(name, "x-ratelimit-limit") == 0)
		a->limit = (uint32_t)number(value);
	else if (strcasecmp(name, "x-ratelimit-reset") == 0)
		a->reset = number(value);
	else if (strcasecmp(name, "date") == 0)
		a->date = epoch(value);
	else if (strcasecmp(name, "github-authentication-token-expiration") == 0)
		a->token_expires = expiration(value);
	else if (strcasecmp(name, "x-accepted-github-permissions") == 0)
		str_show_n(a->permissions, sizeof(a->permissions), value, strlen(value));
	else if (strcasecmp(name, "etag") == 0) {
		/* It goes back as it came, so it is kept whole or not at all. */
		if (strspn(value,
			    "\"/Ww0123456789abcdefABCDEFGHIJKLMNOPQRSTUVXYZghijklmnopqrstuvxyz+=_.:-") !=
				strlen(value) ||
			str_copy(a->etag, value) < 0)
			a->etag[0] = '\0';
	} else if (strcasecmp(name, "link") == 0)
		a->next = strstr(value, "rel=\"next\"") != NULL;
}

void http_answer_header(struct http_answer *a, const char *line, size_t len)
{
	char text[HEADER_MAX];
	while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	if (len >= sizeof(text) || memchr(line, '\0', len))
		return;
	memcpy(text, line, len);
	text[len] = '\0';

	if (str_starts(text, "HTTP/")) {
		a->next = a->has_remaining = a->has_retry_after = false;
		a->remaining = a->limit = 0;
		a->reset = a->date = a->retry_after = a->token_expires = 0;
		a->permissions[0] = a->etag[0] = '\0';
		return;
	}
	char *colon = strchr(text, ':');
	if (!colon)
		return;
	*colon = '\0';
	take_header(a, text, colon + 1 + strspn(colon + 1, " \t"));
}

static int grow(struct http_answer *a, size_t need)
{
	size_t capacity = a->capacity ? a->capacity : 16 * 1024;
	if (a->guarded) {
		/* Never moved, so that there is one copy to wipe. */
		if (!a->data && !(a->data = sodium_malloc(a->max + 1)))
			return -ENOMEM;
		a->capacity = a->max + 1;
		return 0;
	}
	while (capacity < need)
		capacity *= 2;
	/* Not realloc: what is left behind is wiped, as bodies may quote what they were asked with. */
	char *data = malloc(capacity);
	if (!data)
		return -ENOMEM;
	if (a->data) {
		memcpy(data, a->data, a->len + 1);
		secret_wipe(a->data, a->len);
		free(a->data);
	}
	a->data = data;
	a->capacity = capacity;
	return 0;
}

int http_answer_body(struct http_answer *a, const char *data, size_t len)
{
	if (len > a->max - a->len) {
		a->too_large = true;
		return -EFBIG;
	}
	if (a->len + len + 1 > a->capacity) {
		int r = grow(a, a->len + len + 1);
		if (r < 0)
			return r;
	}
	memcpy(a->data + a->len, data, len);
	a->len += len;
	a->data[a->len] = '\0';
	return 0;
}

void http_answer_free(struct http_answer *a)
{
	if (a->data)
		secret_wipe(a->data, a->len);
	if (a->guarded)
		sodium_free(a->data);
	else
		free(a->data);
	a->data = NULL;
	a->len = a->capacity = 0;
}
