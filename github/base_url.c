#include "github/credential.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct parts {
	CURLU *url;
	char *scheme, *host;
};

static void parts_free(struct parts *p)
{
	curl_free(p->scheme);
	curl_free(p->host);
	curl_url_cleanup(p->url);
}

static bool has_part(CURLU *url, CURLUPart part)
{
	char *text = NULL;
	CURLUcode r = curl_url_get(url, part, &text, 0);
	curl_free(text);
	return r == CURLUE_OK;
}

/* A name such as localhost is what the resolver makes of it, so only an address counts. */
static bool is_loopback(const char *host)
{
	struct in_addr v4;
	return str_equal(host, "[::1]") ||
	       (inet_pton(AF_INET, host, &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127);
}

int base_url_check(const char *url, char *ret, size_t size, struct error *e)
{
	/* libcurl forgives a lot (blanks, backslashes, one slash); what it would have to forgive does not get
	 * that far. */
	for (const char *p = url; *p; p++)
		if (!isascii((unsigned char)*p) || (!isalnum((unsigned char)*p) && !strchr(":/.-_[]", *p)))
			return error_set(
				e, EINVAL, "the URL may consist of letters, digits and : / . - _ [ ] only");
	if (!str_starts(url, "https://") && !str_starts(url, "http://"))
		return error_set(
			e, EINVAL, "the URL must begin with https:// (such as %s)", GITHUB_URL_DEFAULT);

	/* As it is written: libcurl's own parts are normalised already. */
	const char *rest = strstr(url, "://") + 3;
	if (rest[0] == '/' || strstr(rest, "//") || strstr(rest, "/."))
		return error_set(e, EINVAL, "the URL must be plain, such as https://HOST/api/v3");

	CLEANUP(parts_free) struct parts p = {.url = curl_url()};
	if (!p.url)
		return error_set(e, ENOMEM, "no memory for a URL");
	if (curl_url_set(p.url, CURLUPART_URL, url, 0) != CURLUE_OK ||
		curl_url_get(p.url, CURLUPART_SCHEME, &p.scheme, 0) != CURLUE_OK ||
		curl_url_get(p.url, CURLUPART_HOST, &p.host, 0) != CURLUE_OK)
		return error_set(e, EINVAL,
			"this is not a URL; it should look like %s or https://HOST/api/v3",
			GITHUB_URL_DEFAULT);
	if (has_part(p.url, CURLUPART_USER) || has_part(p.url, CURLUPART_PASSWORD) ||
		has_part(p.url, CURLUPART_QUERY) || has_part(p.url, CURLUPART_FRAGMENT))
		return error_set(e, EINVAL, "the URL must have no user, query or fragment");
	if (!str_equal(p.scheme, "https") && !is_loopback(p.host))
		return error_set(e, EINVAL,
			"http:// would send the token in the clear; it is taken for a loopback address only, "
			"such as 127.0.0.1; use https://");

	size_t len = strlen(url);
	while (len > 0 && url[len - 1] == '/')
		len--;
	if (str_format_n(ret, size, "%.*s", (int)len, url) < 0)
		return error_set(e, EINVAL, "the URL has more than %zu characters", size - 1);
	return 0;
}
