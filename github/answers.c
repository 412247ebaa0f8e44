#include "github/answers.h"

#include "base/str.h"
#include "github/json.h"
#include "jit/jit.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define RUNNER_LIST_NAME_MAX 200 /* others' names may be longer than ours */

void answers_message(const char *data, size_t len, char *dst, size_t size)
{
	CLEANUP_JSON json_t *root = NULL;
	const char *text = NULL;
	if (json_read_object(data, len, &root, NULL) >= 0)
		text = json_text(root, "message");
	str_show_n(dst, size, text ? text : "", text ? strlen(text) : 0);
}

bool answers_is_private(const json_t *repository)
{
	const json_t *visibility = json_object_get(repository, "visibility");
	const char *text = json_text(repository, "visibility");
	bool closed = !visibility || str_equal(text, "private") || str_equal(text, "internal");

	return closed && json_is_true(json_object_get(repository, "private"));
}

int answers_repository(const char *data, size_t len, const char *scope, bool *ret_private, struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	int r = json_read_object(data, len, &root, e);
	if (r < 0)
		return r;
	const char *name = json_text(root, "full_name");
	if (!name || strcasecmp(name, scope) != 0)
		return error_set(
			e, EBADMSG, "the answer is about another repository than %s; was it renamed?", scope);
	*ret_private = answers_is_private(root);
	return 0;
}

int answers_mint(
	const char *data, size_t len, const char *name, uint64_t *ret_id, int *ret_jit, struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	int r = json_read_object(data, len, &root, e);
	if (r < 0)
		return r;
	const json_t *runner = json_object_get(root, "runner");
	*ret_id = json_id(runner, "id");
	if (*ret_id == 0)
		return error_set(e, EBADMSG, "the answer has no id of the runner");
	if (!str_equal(json_text(runner, "name"), name))
		return error_set(e, EBADMSG, "the answer is about another runner than %s", name);
	const json_t *jit = json_object_get(root, "encoded_jit_config");
	if (!json_is_string(jit))
		return error_set(e, EBADMSG, "the answer has no encoded_jit_config");
	/* jansson's copy is ours until root goes, and this is its last use: it is wiped where it stands. */
	return jit_seal((char *)(uintptr_t)json_string_value(jit), json_string_length(jit), ret_jit, e) < 0
		       ? error_wrap(e, "encoded_jit_config")
		       : 0;
}

static int take_runner(const json_t *object, struct answers_runner *ret, struct error *e)
{
	const json_t *busy = json_object_get(object, "busy");
	const char *status = json_text(object, "status");
	uint64_t id = json_id(object, "id");

	/* busy decides whether a runner may be stopped: what cannot be told must not look like "no". */
	if (id == 0 || !json_is_boolean(busy) || !status)
		return error_set(e, EBADMSG, "the answer has a runner without id, busy or status");
	*ret = (struct answers_runner){
		.id = id, .online = str_equal(status, "online"), .busy = json_is_true(busy)};
	return 0;
}

int answers_runner(const char *data, size_t len, struct answers_runner *ret, struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	int r = json_read_object(data, len, &root, e);
	return r < 0 ? r : take_runner(root, ret, e);
}

/* *ret_list is part of *ret_root. */
static int read_runners(const char *data, size_t len, json_t **ret_root, const json_t **ret_list, struct error *e)
{
	int r = json_read_object(data, len, ret_root, e);
	if (r < 0)
		return r;
	*ret_list = json_object_get(*ret_root, "runners");
	return json_is_array(*ret_list) ? 0 : error_set(e, EBADMSG, "the answer has no list of runners");
}

int answers_runners(const char *data, size_t len, json_t *array, bool *ret_part, struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	const json_t *list, *item;
	int r = read_runners(data, len, &root, &list, e);
	if (r < 0)
		return r;
	size_t i;
	json_array_foreach(list, i, item)
	{
		const char *name = json_text(item, "name");
		struct answers_runner runner;
		struct error odd = ERROR_INIT;

		if (i >= ANSWERS_RUNNERS_MAX || !name || strlen(name) > RUNNER_LIST_NAME_MAX ||
			take_runner(item, &runner, &odd) < 0) {
			*ret_part = true;
			continue;
		}
		if (json_array_append_new(array, json_pack("{s:I,s:s,s:b,s:b}", "id", (json_int_t)runner.id, "name", name,
							 "online", runner.online, "busy", runner.busy)) < 0)
			return error_set(e, ENOMEM, "no memory for a list of runners");
	}
	return 0;
}

int answers_runner_named(const char *data, size_t len, const char *name, bool *ret_found,
	struct answers_runner *ret, struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	const json_t *list, *item;
	int r = read_runners(data, len, &root, &list, e);
	if (r < 0)
		return r;
	size_t i;
	json_array_foreach(list, i, item)
	{
		/* The server's filter is trusted to leave things out, not to let only the right one in. */
		if (!str_equal(json_text(item, "name"), name))
			continue;
		r = take_runner(item, ret, e);
		if (r >= 0)
			*ret_found = true;
		return r;
	}
	*ret_found = false;
	return 0;
}

int answers_deprecation(const char *data, size_t len, char *dst, size_t size, struct error *e)
{
	static const struct {
		const char *key, *words;
	} dates[] = {
		{"registration_deprecates_at", "registers until"}, {"runtime_deprecates_at", "runs until"}};
	CLEANUP_JSON json_t *root = NULL;
	char text[128] = "", shown[40];
	int r = json_read_object(data, len, &root, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(dates) / sizeof(dates[0]); i++) {
		const char *when = json_text(root, dates[i].key);
		size_t used = strlen(text);
		if (!when)
			continue; /* null or absent: no date set */
		str_show_n(shown, sizeof(shown), when, strlen(when));
		(void)str_format_n(
			text + used, sizeof(text) - used, "%s%s %s", used ? ", " : "", dates[i].words, shown);
	}
	return str_copy_n(dst, size, text) < 0 ? error_set(e, EBADMSG, "the answer's dates are too long") : 0;
}
