#include "github/answers.h"

#include "base/parse.h"
#include "base/str.h"
#include "github/json.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static int take_group(const json_t *object, struct answers_group *ret, struct error *e)
{
	const char *visibility = json_text(object, "visibility");

	*ret = (struct answers_group){.id = json_id(object, "id")};
	if (ret->id == 0 || !visibility || str_copy(ret->visibility, visibility) < 0)
		return error_set(e, EBADMSG, "the answer has a runner group without id or visibility");
	ret->selected = str_equal(visibility, "selected");
	/* Whatever else it is, or nothing, might mean yes. */
	ret->excludes_public = json_is_false(json_object_get(object, "allows_public_repositories"));
	return 0;
}

int answers_group_named(const char *data, size_t len, const char *name, bool *ret_found, struct answers_group *ret,
	struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	int r = json_read_object(data, len, &root, e);
	if (r < 0)
		return r;
	const json_t *list = json_object_get(root, "runner_groups"), *item;
	if (!json_is_array(list))
		return error_set(e, EBADMSG, "the answer has no list of runner groups");
	size_t i;
	json_array_foreach(list, i, item)
	{
		if (!str_equal(json_text(item, "name"), name))
			continue;
		r = take_group(item, ret, e);
		if (r >= 0)
			*ret_found = true;
		return r;
	}
	*ret_found = false;
	return 0;
}

int answers_group_repositories(
	const char *data, size_t len, const char *org, json_t *names, bool *ret_all_private, bool *ret_full, struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	int r = json_read_object(data, len, &root, e);
	if (r < 0)
		return r;
	const json_t *list = json_object_get(root, "repositories"), *item;
	if (!json_is_array(list))
		return error_set(e, EBADMSG, "the answer has no list of repositories");
	size_t i, n = strlen(org);
	json_array_foreach(list, i, item)
	{
		const char *name = json_text(item, "full_name");
		if (!answers_is_private(item))
			*ret_all_private = false;
		if (!name || scope_check(name, NULL) < 0 || strncasecmp(name, org, n) != 0 || name[n] != '/')
			return error_set(e, EBADMSG, "the answer has a repository without a name of this organization");
		if (json_array_size(names) >= ANSWERS_GROUP_REPOSITORIES_MAX) {
			*ret_full = true;
			continue;
		}
		if (json_array_append_new(names, json_string(name)) < 0)
			return error_set(e, ENOMEM, "no memory for a list of repositories");
	}
	return 0;
}
