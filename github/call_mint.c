/*
 * MINT. A JIT config that a public repository can use would let anybody's pull request into a VM, so the
 * visibility (for an organization: of its runner group) is read right before, every time. The POST is made once: what is not known afterwards is told (may_exist), and
 * the client sweeps the name before it goes on with another one.
 */
#include "base/parse.h"
#include "base/str.h"
#include "github/answers.h"
#include "github/call.h"
#include "github/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_DEFAULT 1
#define LABELS_LIMIT 100
#define LABEL_LIMIT 256

static int add_labels(json_t *array, const char *text, struct error *e)
{
	for (const char *p = text;; p++) {
		size_t len = strcspn(p, ",");
		if (len == 0 || len > LABEL_LIMIT)
			return error_set(e, EINVAL,
				"labels are separated by single commas and have 1 to %d characters",
				LABEL_LIMIT);
		for (size_t i = 0; i < len; i++)
			if (p[i] <= ' ' || p[i] > '~')
				return error_set(
					e, EINVAL, "a label has a blank or a character beyond ASCII");
		if (json_array_append_new(array, json_stringn(p, len)) < 0)
			return error_set(e, ENOMEM, "no memory for labels");
		if (json_array_size(array) > LABELS_LIMIT)
			return error_set(e, EINVAL, "a runner has at most %d labels", LABELS_LIMIT);
		p += len;
		if (*p == '\0')
			return 0;
	}
}

static int make_body(const struct call *c, uint64_t group, char **ret, struct error *e)
{
	CLEANUP_JSON json_t *body = json_object(), *labels = json_array();

	if (group > INT32_MAX)
		return error_set(
			e, EINVAL, "%llu is not the id of a runner group", (unsigned long long)group);
	int r = add_labels(labels, c->in->labels, e);
	if (r < 0)
		return r;
	if (json_object_set_new(body, "name", json_string(c->in->runner_name)) < 0 ||
		json_object_set_new(body, "runner_group_id", json_integer((json_int_t)group)) < 0 ||
		json_object_set(body, "labels", labels) < 0 ||
		json_object_set_new(body, "work_folder", json_string("_work")) < 0 ||
		!(*ret = json_dumps(body, JSON_COMPACT)))
		return error_set(e, ENOMEM, "no memory for a request");
	return 0;
}

static int post(struct call *c, const char *body, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer a = {0};
	char path[HTTP_PATH_MAX], scope[HTTP_PATH_MAX];
	(void)str_format(path, "%s/actions/runners/generate-jitconfig", call_scope_path(c, scope));
	const struct http_request q = {
		.method = "POST", .path = path, .body = body, .max = HTTP_OBJECT_MAX, .secret = true};

	int r = call_exchange(c, &q, 201, &a, e);
	if (r < 0) {
		/* GitHub has refused if it said so (4xx); a conflict means that the name is there. Everything
		 * else may have registered a runner before it went wrong. */
		bool refused = c->out->fault != GITHUB_FAULT_SERVER && c->out->fault != GITHUB_FAULT_NETWORK;
		c->out->may_exist = c->out->fault == GITHUB_FAULT_CONFLICT || (!refused && a.sent);
		return r;
	}
	r = answers_mint(a.data, a.len, c->in->runner_name, &c->out->runner_id, c->ret_fd, e);
	if (r < 0) {
		c->out->may_exist = 1;
		return call_not_understood(c, r, e);
	}
	return 0;
}

/* Who could put code on the runner? Fails unless it is known that no public repository can. */
static int check_private(struct call *c, uint64_t *ret_group, struct error *e)
{
	bool org = scope_is_org(c->in->scope), is_private = false;
	int r = org ? call_read_group(c, ret_group, &is_private, NULL, e) : call_read_private(c, &is_private, e);

	if (r < 0)
		return r;
	c->out->is_private = is_private;
	if (is_private)
		return 0;
	c->out->fault = GITHUB_FAULT_PUBLIC;
	if (org)
		return error_set(e, EACCES,
			"runner group %s of %s is open to public repositories: anybody could run code on this host with "
			"a pull request, so no runner is registered",
			c->in->group, c->in->scope);
	return error_set(e, EACCES,
		"repository %s is not private: anybody could run code on this host with a pull request, so no runner is "
		"registered",
		c->in->scope);
}

int call_mint(struct call *c, struct error *e)
{
	CLEANUP_FREE char *body = NULL;
	char what[SCOPE_MAX + 64], words[SCOPE_MAX + 16];
	uint64_t group = GROUP_DEFAULT;
	int r = call_check_runner_name(c, e);

	if (r >= 0)
		r = make_body(c, group, &body, e); /* what is wrong with the request is said before anything is asked */
	if (r >= 0)
		r = check_private(c, &group, e);
	if (r >= 0 && group != GROUP_DEFAULT) {
		free(body);
		body = NULL;
		r = make_body(c, group, &body, e);
	}
	if (r < 0)
		return r;
	(void)str_format(what, "%s, runner group or call", call_scope_words(c, words, sizeof(words)));
	c->what = what;
	return post(c, body, e);
}
