#include "github/credential.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

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

/* The website's address is the likeliest mistake, and its answers are not JSON. */
static const char *api_of_website(const char *host)
{
	return str_equal(host, "github.com") || str_equal(host, "www.github.com") ? GITHUB_URL_DEFAULT : NULL;
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
	if (api_of_website(p.host))
		return error_set(e, EINVAL, "%s is the website; the URL of its API is %s", p.host, api_of_website(p.host));
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

#define GHE_COM ".ghe.com"

/* One row per kind of host; the first that fits. Between `before` and `after` stands the name without its suffix. */
static const struct {
	const char *suffix; /* "": every other */
	bool whole;         /* the suffix is the whole name */
	const char *before, *after;
} hosts[] = {
	{"github.com", true, GITHUB_URL_DEFAULT, ""},
	{"api.github.com", true, GITHUB_URL_DEFAULT, ""},
	{GHE_COM, false, "https://api.", GHE_COM},
	{"", false, "https://", "/api/v3"},
};

static int host_check(const char *host, struct error *e)
{
	size_t len = strlen(host);

	if (len == 0 || len > 200 || host[0] == '.' || host[0] == '-' || strstr(host, "..") ||
		strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]") != len)
		return error_set(e, EINVAL, "a host is a name such as github.com, NAME.ghe.com or github.example.com");
	return 0;
}

int base_url_of_host(const char *host, char *ret, size_t size, struct error *e)
{
	char url[GITHUB_URL_MAX] = "";
	size_t len = strlen(host);
	int r = host_check(host, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]) && !url[0]; i++) {
		size_t n = strlen(hosts[i].suffix);
		const char *name = host;
		size_t rest;

		if (n > len || strcasecmp(host + len - n, hosts[i].suffix) != 0 || (hosts[i].whole && n != len))
			continue;
		rest = len - n;
		/* api.NAME.ghe.com is its API already. */
		if (n > 0 && !hosts[i].whole && rest > 4 && strncasecmp(name, "api.", 4) == 0) {
			name += 4;
			rest -= 4;
		}
		if (rest == 0 && !hosts[i].whole)
			return error_set(e, EINVAL, "%s is not a host of its own", host);
		if (str_format(url, "%s%.*s%s", hosts[i].before, (int)rest, name, hosts[i].after) < 0)
			return error_set(e, EINVAL, "the host's name is too long");
	}
	return base_url_check(url, ret, size, e);
}

int proxy_url_check(const char *url, char *ret, size_t size, struct error *e)
{
	const char *rest = str_starts(url, "http://") ? url + 7 : str_starts(url, "https://") ? url + 8 : NULL;
	size_t len;

	if (!rest)
		return error_set(e, EINVAL, "a proxy is http://HOST:PORT or https://HOST:PORT");
	len = strcspn(rest, "/");
	if (rest[len] == '/' && rest[len + 1])
		return error_set(e, EINVAL, "a proxy has no path");
	if (len == 0 || strspn(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]") != len)
		return error_set(e, EINVAL, "a proxy is http://HOST:PORT, without user, query or blanks");
	if (str_format_n(ret, size, "%.*s", (int)(rest - url) + (int)len, url) < 0)
		return error_set(e, EINVAL, "the proxy's URL is too long");
	return 0;
}
