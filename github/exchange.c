#include "github/call.h"

#include "base/str.h"
#include "base/parse.h"
#include "github/answers.h"
#include "github/app.h"
#include "github/fault.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What the exchange says about the budget, whatever it says otherwise. */
static void note_cost(struct call *c, const struct http_answer *a)
{
	uint64_t now = a->date ? a->date : (uint64_t)time(NULL);

	if (a->status == 304)
		c->out->calls_free++;
	else if (a->status != 0 || a->sent)
		c->out->calls++;
	if (a->limit) {
		c->out->rate_remaining = a->remaining;
		c->out->rate_limit = a->limit;
		c->out->rate_reset_s = a->reset > now && a->reset - now < UINT32_MAX ? (uint32_t)(a->reset - now) : 0;
	}
	if (a->token_expires)
		c->out->credential_expires = a->token_expires;
}

int call_exchange(
	struct call *c, const struct http_request *q, long expected, struct http_answer *ret, struct error *e)
{
	int r = 0;
	if (!c->credential->header && !q->authorization)
		r = app_authorise(c, e);
	if (r < 0)
		return r;
	r = http_call(c->http, q, ret, e);
	note_cost(c, ret);
	if (r >= 0 && ret->status == 401 && !q->authorization && app_forget(c)) {
		/* The token ended before its time; refused is not acted upon, so the request may be made again. */
		http_answer_free(ret);
		return call_exchange(c, q, expected, ret, e);
	}
	if (r < 0)
		return fault_from_failure(r, ret, c->out);
	c->out->http_status = (int32_t)ret->status;
	if (ret->status == expected || (ret->status == 304 && q->etag))
		return 0;
	const struct fault_context context = {.credential = c->credential,
		.what = c->what,
		.deletes = str_equal(q->method, "DELETE"),
		.now = (uint64_t)time(NULL)};
	return fault_from_answer(&context, ret, c->out, e);
}

/* A 304 has no body: the page is the one that is kept. */
static int from_cache(const struct cache_entry *entry, struct http_answer *ret)
{
	char *copy = malloc(entry->len + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, entry->data, entry->len + 1);
	free(ret->data);
	ret->data = copy;
	ret->len = entry->len;
	ret->capacity = entry->len + 1;
	ret->next = entry->next;
	return 0;
}

static int get_through_cache(
	struct call *c, const char *path, size_t max, struct http_answer *ret, struct error *e)
{
	char url[GITHUB_URL_MAX + HTTP_PATH_MAX];
	if (str_format(url, "%s%s", c->credential->base_url, path) < 0)
		return error_set(e, ENAMETOOLONG, "a URL is too long");
	const struct cache_entry *known = cache_get(c->cache, url);
	const struct http_request q = {
		.method = "GET", .path = path, .max = max, .etag = known ? known->etag : NULL};

	int r = call_exchange(c, &q, 200, ret, e);
	if (r < 0)
		return r;
	if (known && ret->status == 304)
		return from_cache(known, ret) < 0 ? error_set(e, ENOMEM, "no memory for a list") : 0;
	cache_put(c->cache, url, ret->etag, ret->data ? ret->data : "", ret->len, ret->next);
	return 0;
}

int call_get(struct call *c, const char *path, struct http_answer *ret, struct error *e)
{
	return get_through_cache(c, path, HTTP_OBJECT_MAX, ret, e);
}

int call_get_page(struct call *c, const char *path, struct http_answer *ret, struct error *e)
{
	return get_through_cache(c, path, HTTP_LIST_MAX, ret, e);
}

const char *call_scope_path(const struct call *c, char dst[static HTTP_PATH_MAX])
{
	(void)str_format_n(dst, HTTP_PATH_MAX, "/%s/%s", scope_is_org(c->in->scope) ? "orgs" : "repos", c->in->scope);
	return dst;
}

const char *call_scope_words(const struct call *c, char *dst, size_t size)
{
	(void)str_format_n(dst, size, "%s %s", scope_is_org(c->in->scope) ? "organization" : "repository", c->in->scope);
	return dst;
}

int call_not_understood(struct call *c, int r, struct error *e)
{
	c->out->fault = GITHUB_FAULT_SERVER;
	return r < 0 ? error_wrap(e, "GitHub was not understood") : r;
}

int call_page_not_understood(struct call *c, const char *path, int r, struct error *e)
{
	char url[GITHUB_URL_MAX + HTTP_PATH_MAX];
	if (str_format(url, "%s%s", c->credential->base_url, path) == 0)
		cache_drop(c->cache, url);
	return call_not_understood(c, r, e);
}

int call_read_private(struct call *c, bool *ret_private, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer a = {0};
	char path[HTTP_PATH_MAX], what[SCOPE_MAX + 16];
	const char *asked = c->what;

	(void)str_format(path, "/repos/%s", c->in->scope);
	(void)str_format(what, "repository %s", c->in->scope);
	c->what = what;
	int r = call_get(c, path, &a, e);
	c->what = asked;
	if (r < 0)
		return r;
	r = answers_repository(a.data, a.len, c->in->scope, ret_private, e);
	return r < 0 ? call_page_not_understood(c, path, r, e) : 0;
}

int call_confirm_visible(struct call *c, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer a = {0};
	char path[HTTP_PATH_MAX];
	bool is_private;

	error_clear(e);
	if (!scope_is_org(c->in->scope))
		return call_read_private(c, &is_private, e);
	/* Whoever sees an organization's runners sees its groups. */
	(void)str_format(path, "/orgs/%s/actions/runner-groups?per_page=100&page=1", c->in->scope);
	return call_get_page(c, path, &a, e);
}

int call_check_runner_name(const struct call *c, struct error *e)
{
	const char *name = c->in->runner_name;
	size_t len = strlen(name);
	for (size_t i = 0; i < len; i++)
		if (!isascii((unsigned char)name[i]) ||
			(!isalnum((unsigned char)name[i]) && !strchr("_.-", name[i])))
			return error_set(
				e, EINVAL, "a runner's name consists of letters, digits and _ . - only");
	return len > 0 ? 0 : error_set(e, EINVAL, "the name of a runner is missing");
}
