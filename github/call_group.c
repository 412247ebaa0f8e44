/*
 * A runner group by its name, and whether code from a public repository could get onto a runner in it. Two ways to be sure:
 * the group excludes public repositories, or it is for selected ones and each of them is private right now. All of it is read
 * conditionally, so that asking before every registration costs nothing while nothing changes.
 */
#include "base/str.h"
#include "github/answers.h"
#include "github/call.h"
#include "github/json.h"

#include <errno.h>
#include <string.h>

#define GROUP_PAGES_MAX 5      /* of 100 groups */
#define REPOSITORY_PAGES_MAX 5 /* of 100 repositories */

static int find_group(struct call *c, struct answers_group *ret, struct error *e)
{
	for (unsigned page = 1; page <= GROUP_PAGES_MAX; page++) {
		CLEANUP(http_answer_free) struct http_answer a = {0};
		char path[HTTP_PATH_MAX];
		bool found = false;

		(void)str_format(path, "/orgs/%s/actions/runner-groups?per_page=100&page=%u", c->in->scope, page);
		int r = call_get_page(c, path, &a, e);
		if (r < 0)
			return r;
		r = answers_group_named(a.data ? a.data : "", a.len, c->in->group, &found, ret, e);
		if (r < 0)
			return call_page_not_understood(c, path, r, e);
		if (found)
			return 0;
		if (!a.next)
			break;
	}
	c->out->fault = GITHUB_FAULT_ABSENT;
	return error_set(e, ENOENT, "organization %s has no runner group named '%s'", c->in->scope, c->in->group);
}

static int read_repositories(
	struct call *c, uint64_t id, json_t *names, bool *ret_all_private, bool *ret_full, struct error *e)
{
	*ret_all_private = true;
	*ret_full = false;
	for (unsigned page = 1; page <= REPOSITORY_PAGES_MAX; page++) {
		CLEANUP(http_answer_free) struct http_answer a = {0};
		char path[HTTP_PATH_MAX];

		(void)str_format(path, "/orgs/%s/actions/runner-groups/%llu/repositories?per_page=100&page=%u", c->in->scope,
			(unsigned long long)id, page);
		int r = call_get_page(c, path, &a, e);
		if (r < 0)
			return r;
		r = answers_group_repositories(
			a.data ? a.data : "", a.len, c->in->scope, names, ret_all_private, ret_full, e);
		if (r < 0)
			return call_page_not_understood(c, path, r, e);
		if (!a.next)
			return 0;
	}
	/* Those that were not looked at may be public. */
	*ret_all_private = false;
	*ret_full = true;
	return 0;
}

int call_read_group(struct call *c, uint64_t *ret_id, bool *ret_private, json_t **ret_document, struct error *e)
{
	CLEANUP_JSON json_t *names = json_array();
	struct answers_group group = {0};
	bool all_private = false, full = false;
	char what[SCOPE_MAX + 16];
	const char *asked = c->what;
	int r;

	if (!c->in->group[0])
		return error_set(e, EINVAL, "the name of a runner group is missing");
	c->what = call_scope_words(c, what, sizeof(what));
	r = find_group(c, &group, e);
	if (r >= 0 && group.selected && (!group.excludes_public || ret_document))
		r = read_repositories(c, group.id, names, &all_private, &full, e);
	c->what = asked;
	if (r < 0)
		return r;
	*ret_id = group.id;
	*ret_private = group.excludes_public || (group.selected && all_private);
	if (!ret_document)
		return 0;
	*ret_document = json_pack("{s:s,s:O,s:b}", "visibility", group.visibility, "repositories", names, "truncated",
		full ? 1 : 0);
	return *ret_document ? 0 : error_set(e, ENOMEM, "no memory for a list of repositories");
}

int call_group(struct call *c, struct error *e)
{
	CLEANUP_JSON json_t *document = NULL;
	bool is_private = false;
	int r = call_read_group(c, &c->out->group_id, &is_private, &document, e);

	if (r < 0)
		return r;
	c->out->is_private = is_private;
	c->out->http_status = 200;
	CLEANUP_FREE char *text = json_dumps(document, JSON_COMPACT);
	if (!text)
		return error_set(e, ENOMEM, "no memory for a list of repositories");
	return msg_document(text, strlen(text), c->ret_fd, e);
}
