#include "manager/roster.h"
#include "manager/github_list.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct roster {
	json_t *root, *list;
	bool whole;
};

int roster_parse(const char *data, size_t len, struct roster **ret, struct error *e)
{
	CLEANUP(roster_freep) struct roster *r = calloc(1, sizeof(*r));
	int code;

	if (!r)
		return error_errno(e, ENOMEM, "cannot read the list of runners");
	code = github_list_read(data, len, "runners", &r->root, &r->list, e);
	if (code < 0)
		return code;
	/* Only a "false" says so: what is missing or odd must not look like "nothing was left out". */
	r->whole = json_is_false(json_object_get(r->root, "truncated"));
	*ret = TAKE_PTR(r);
	return 0;
}

struct roster *roster_free(struct roster *r)
{
	if (r)
		json_decref(r->root);
	free(r);
	return NULL;
}

bool roster_is_whole(const struct roster *r)
{
	return r->whole;
}

bool roster_find(const struct roster *r, uint64_t id, const char *name, struct roster_view *ret)
{
	const json_t *item;
	size_t i;

	json_array_foreach(r->list, i, item)
	{
		json_int_t its = json_integer_value(json_object_get(item, "id"));
		const char *its_name = json_string_value(json_object_get(item, "name"));

		if (its <= 0 || (id ? (uint64_t)its != id : !its_name || strcmp(its_name, name) != 0))
			continue;
		*ret = (struct roster_view){.id = (uint64_t)its,
			.online = json_is_true(json_object_get(item, "online")),
			.busy = json_is_true(json_object_get(item, "busy"))};
		return true;
	}
	return false;
}
