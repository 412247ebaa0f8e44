/* HELLO, REPOSITORY, DEPRECATION: what can be known without touching a runner. */
#include "base/str.h"
#include "github/answers.h"
#include "github/call.h"

#include <errno.h>
#include <string.h>

int call_hello(struct call *c, struct error *e)
{
	/* Both come from runners.env and fit: 256 and a few words. */
	if (str_format(c->out->text, "%s, %s", c->credential->base_url, c->credential->kind) < 0)
		return error_set(e, ENAMETOOLONG, "the base URL is too long");
	return 0;
}

int call_repository(struct call *c, struct error *e)
{
	bool is_private = false;
	int r = call_read_private(c, &is_private, e);
	if (r < 0)
		return r;
	c->out->is_private = is_private;
	(void)str_format(c->out->text, "repository %s is %s", c->in->scope,
		is_private ? "private" : "public, or GitHub does not say that it is private");
	return 0;
}

int call_deprecation(struct call *c, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer a = {0};
	char path[HTTP_PATH_MAX], scope[HTTP_PATH_MAX], what[64];
	const char *version = c->in->text;
	size_t len = strlen(version);

	if (len == 0 || len > 31 || strspn(version, "0123456789.") != len || version[0] == '.')
		return error_set(e, EINVAL, "a version of the runner looks like 2.338.0");
	(void)str_format(path, "%s/actions/runners/deprecations/%s", call_scope_path(c, scope), version);
	(void)str_format(what, "runner version %s", version);
	c->what = what;
	int r = call_get(c, path, &a, e);
	if (r < 0)
		return r;
	r = answers_deprecation(a.data, a.len, c->out->text, sizeof(c->out->text), e);
	return r < 0 ? call_page_not_understood(c, path, r, e) : 0;
}
