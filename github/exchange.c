#include "github/call.h"

#include "base/str.h"
#include "github/answers.h"
#include "github/fault.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int call_exchange(
	struct call *c, const struct http_request *q, long expected, struct http_answer *ret, struct error *e)
{
	int r = http_call(c->http, q, ret, e);
	if (ret->limit) {
		c->out->rate_remaining = ret->remaining;
		c->out->rate_limit = ret->limit;
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

int call_get(struct call *c, const char *path, struct http_answer *ret, struct error *e)
{
	return call_exchange(c, &(struct http_request){.method = "GET", .path = path, .max = HTTP_OBJECT_MAX},
		200, ret, e);
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

int call_get_page(struct call *c, const char *path, struct http_answer *ret, struct error *e)
{
	char url[GITHUB_URL_MAX + HTTP_PATH_MAX];
	if (str_format(url, "%s%s", c->credential->base_url, path) < 0)
		return error_set(e, ENAMETOOLONG, "a URL is too long");
	const struct cache_entry *known = cache_get(c->cache, url);
	const struct http_request q = {
		.method = "GET", .path = path, .max = HTTP_LIST_MAX, .etag = known ? known->etag : NULL};

	int r = call_exchange(c, &q, 200, ret, e);
	if (r < 0)
		return r;
	if (known && ret->status == 304)
		return from_cache(known, ret) < 0 ? error_set(e, ENOMEM, "no memory for a list") : 0;
	cache_put(c->cache, url, ret->etag, ret->data ? ret->data : "", ret->len, ret->next);
	return 0;
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
	return r < 0 ? call_not_understood(c, r, e) : 0;
}

int call_confirm_visible(struct call *c, struct error *e)
{
	bool is_private;
	error_clear(e);
	return call_read_private(c, &is_private, e);
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
