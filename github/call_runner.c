/*
 * RUNNER, RUNNERS and DELETE. "Gone" must be true when it is said: GitHub answers 404 also for everything in a
 * repository or organization that the token cannot see (any more), so a 404 counts only together with one that
 * is there.
 */
#include "base/str.h"
#include "github/answers.h"
#include "github/call.h"
#include "github/json.h"

#include <errno.h>
#include <string.h>

struct words {
	char path[HTTP_PATH_MAX], what[SCOPE_MAX + 64];
};

static int runner_words(struct call *c, struct words *w, struct error *e)
{
	if (c->in->runner_id == 0 || c->in->runner_id > INT64_MAX)
		return error_set(e, EINVAL, "the id of a runner is missing");
	char scope[HTTP_PATH_MAX];
	(void)str_format(w->path, "%s/actions/runners/%llu", call_scope_path(c, scope),
		(unsigned long long)c->in->runner_id);
	(void)str_format(w->what, "runner %llu of %s", (unsigned long long)c->in->runner_id, c->in->scope);
	c->what = w->what;
	return 0;
}

static void put_runner(struct call *c, const struct answers_runner *runner)
{
	c->out->found = 1;
	c->out->runner_id = runner->id;
	c->out->online = runner->online;
	c->out->busy = runner->busy;
}

/* A 404: gone if the repository is visible. Clears the fault then. */
static int gone(struct call *c, struct error *e)
{
	int r = call_confirm_visible(c, e);
	if (r < 0)
		return r;
	c->out->fault = GITHUB_FAULT_NONE;
	c->out->http_status = 404;
	return 0;
}

static int by_id(struct call *c, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer a = {0};
	struct answers_runner runner;
	struct words w;

	int r = runner_words(c, &w, e);
	if (r >= 0)
		r = call_get(c, w.path, &a, e);
	if (r == -ENOENT)
		return gone(c, e);
	if (r < 0)
		return r;
	r = answers_runner(a.data, a.len, &runner, e);
	if (r >= 0 && runner.id != c->in->runner_id)
		r = error_set(e, EBADMSG, "the answer is about another runner");
	if (r < 0)
		return call_page_not_understood(c, w.path, r, e);
	put_runner(c, &runner);
	return 0;
}

static int by_name(struct call *c, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer a = {0};
	struct answers_runner runner;
	bool found = false;
	char scope[HTTP_PATH_MAX];
	struct words w;

	int r = call_check_runner_name(c, e);
	if (r < 0)
		return r;
	/* The characters of a checked name need no escaping. */
	(void)str_format(
		w.path, "%s/actions/runners?name=%s&per_page=100", call_scope_path(c, scope), c->in->runner_name);
	(void)call_scope_words(c, w.what, sizeof(w.what));
	c->what = w.what;
	r = call_get(c, w.path, &a, e);
	if (r < 0)
		return r;
	r = answers_runner_named(a.data, a.len, c->in->runner_name, &found, &runner, e);
	/* A name filter that is not applied fills pages; "not found" in the first of them would mean nothing.
	 */
	if (r >= 0 && !found && a.next)
		r = error_set(e, EBADMSG, "the list was not filtered by name");
	if (r < 0)
		return call_page_not_understood(c, w.path, r, e);
	if (found)
		put_runner(c, &runner);
	return 0;
}

int call_runner(struct call *c, struct error *e)
{
	return c->in->runner_id ? by_id(c, e) : by_name(c, e);
}

/* One page: what comes on a further one may have moved there meanwhile, so who is missing in it is not known to be gone. */
int call_runners(struct call *c, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer a = {0};
	CLEANUP_JSON json_t *runners = json_array(), *root = json_object();
	CLEANUP_FREE char *text = NULL;
	char scope[HTTP_PATH_MAX];
	bool part = false;
	struct words w;

	(void)str_format(w.path, "%s/actions/runners?per_page=%d", call_scope_path(c, scope), ANSWERS_RUNNERS_MAX);
	(void)call_scope_words(c, w.what, sizeof(w.what));
	c->what = w.what;
	int r = call_get_page(c, w.path, &a, e);
	if (r < 0)
		return r;
	r = answers_runners(a.data, a.len, runners, &part, e);
	if (r < 0)
		return r == -ENOMEM ? r : call_page_not_understood(c, w.path, r, e);
	if (json_object_set(root, "runners", runners) == 0 &&
		json_object_set_new(root, "truncated", json_boolean(part || a.next)) == 0)
		text = json_dumps(root, JSON_COMPACT);
	if (!text)
		return error_set(e, ENOMEM, "no memory for a list of runners");
	c->out->http_status = 200;
	return msg_document(text, strlen(text), c->ret_fd, e);
}

int call_delete(struct call *c, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer a = {0};
	struct words w;

	int r = runner_words(c, &w, e);
	if (r < 0)
		return r;
	const struct http_request q = {.method = "DELETE", .path = w.path, .max = HTTP_OBJECT_MAX};
	r = call_exchange(c, &q, 204, &a, e);
	return r == -ENOENT ? gone(c, e) : r;
}
