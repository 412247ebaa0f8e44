#include "controller/place.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "controller/process.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define GIT_TIMEOUT_MS 10000
#define URL_MAX 1024

static int set_host(struct place *p, const char *host, size_t len)
{
	if (len == 0 || len >= sizeof(p->hostname))
		return -EINVAL;
	for (size_t i = 0; i < len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]", host[i]))
			return -EINVAL;
	if (host[0] == '-')
		return -EINVAL;
	memcpy(p->hostname, host, len);
	p->hostname[len] = '\0';
	return 0;
}

int place_of_name(const char *name, struct place *ret, struct error *e)
{
	struct place p = {0};
	const char *first = strchr(name, '/'), *second = first ? strchr(first + 1, '/') : NULL;

	if (second) {
		if (set_host(&p, name, (size_t)(first - name)) < 0)
			return error_set(e, EINVAL, "--repo '%.60s': not HOST/OWNER/REPO", name);
		name = first + 1;
	}
	if (scope_check(name, e) < 0)
		return -e->code;
	(void)str_copy(p.scope, name);
	*ret = p;
	return 0;
}

static int set_path(struct place *p, const char *path)
{
	char scope[URL_MAX];
	size_t len;

	while (*path == '/')
		path++;
	if (str_copy(scope, path) < 0)
		return -EINVAL;
	len = strlen(scope);
	while (len > 0 && scope[len - 1] == '/')
		scope[--len] = '\0';
	if (len > 4 && str_equal(scope + len - 4, ".git"))
		scope[len - 4] = '\0';
	return scope_check(scope, NULL) < 0 ? -EINVAL : str_copy(p->scope, scope);
}

/* [user@]HOST[:PORT]/PATH; the port is one of GitHub's only for the web, and the usual one says nothing: gh knows no port there. */
static int of_scheme(const char *rest, const char *usual_port, struct place *p)
{
	const char *path = strchr(rest, '/'), *at, *port;
	size_t len;

	if (!path)
		return -EINVAL;
	at = memchr(rest, '@', (size_t)(path - rest));
	if (at)
		rest = at + 1;
	len = (size_t)(path - rest);
	port = memchr(rest, ':', len);
	if (port && (!usual_port || (str_starts(port, usual_port) && port + strlen(usual_port) == path)))
		len = (size_t)(port - rest);
	return set_host(p, rest, len) < 0 ? -EINVAL : set_path(p, path);
}

/* [user@]HOST:PATH. One letter is a drive. */
static int of_words(const char *url, struct place *p)
{
	const char *colon = strchr(url, ':'), *at = strchr(url, '@'), *host;

	if (!colon || colon == url + 1 || memchr(url, '/', (size_t)(colon - url)))
		return -EINVAL;
	host = at && at < colon ? at + 1 : url;
	return set_host(p, host, (size_t)(colon - host)) < 0 ? -EINVAL : set_path(p, colon + 1);
}

/*
 * A name of the person's ssh configuration is none that gh knows. For a second login at one host it is often that host's with more
 * after a hyphen, github.com-work: no domain ends so, as the last part of one has no hyphen but that of xn--.
 */
static void drop_alias(struct place *p)
{
	char *dot = strrchr(p->hostname, '.'), *hyphen = dot ? strchr(dot, '-') : NULL;

	if (!dot)
		p->hostname[0] = '\0';
	else if (hyphen && !str_starts(dot, ".xn--"))
		*hyphen = '\0';
}

int place_of_url(const char *url, struct place *ret, struct error *e)
{
	static const struct {
		const char *scheme, *usual_port; /* NULL: no port is GitHub's */
	} schemes[] = {{"https", ":443"}, {"http", ":80"}, {"ssh", NULL}, {"git+ssh", NULL}, {"ssh+git", NULL}, {"git", NULL}};
	const char *sep = strstr(url, "://");
	struct place p = {0};
	int r = -EINVAL;

	for (size_t i = 0; sep && i < ARRAY_SIZE(schemes); i++)
		if (strlen(schemes[i].scheme) == (size_t)(sep - url) && strncasecmp(url, schemes[i].scheme, (size_t)(sep - url)) == 0)
			r = of_scheme(sep + strlen("://"), schemes[i].usual_port, &p);
	if (!sep)
		r = of_words(url, &p);
	/* The words of the address may hold a password. */
	if (r < 0)
		return error_set(e, EINVAL, "the git remote 'origin' is not one of GitHub's; --repo OWNER/REPO names the repository");
	for (char *c = p.hostname; *c; c++)
		if (*c >= 'A' && *c <= 'Z')
			*c |= 0x20; /* ASCII, whatever the locale */
	if (strncasecmp(url, "http", strlen("http")) != 0)
		drop_alias(&p);
	/* GitHub's names for git alone, ssh on port 443 and an old one for the web; gh takes them for another GitHub. */
	if (str_equal(p.hostname, "ssh.github.com") || str_equal(p.hostname, "www.github.com"))
		(void)str_copy(p.hostname, "github.com");
	*ret = p;
	return 0;
}

int place_of_folder(struct place *ret, struct error *e)
{
	static const char *const argv[] = {"git", "config", "--get", "remote.origin.url", NULL};
	char url[URL_MAX];
	int r = process_capture(argv, PROCESS_ERR, GIT_TIMEOUT_MS, url, sizeof(url), e);

	if (r != 0)
		return error_set(e, EINVAL, "--repo OWNER/REPO is missing, and this folder has no git remote 'origin'");
	url[strcspn(url, "\r\n")] = '\0';
	return place_of_url(url, ret, e);
}
