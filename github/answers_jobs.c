#include "github/answers.h"

#include "base/str.h"
#include "github/json.h"

#include <errno.h>

#define TEXT_MAX 200  /* names are other people's text; this much is shown */
#define LABELS_MAX 50 /* of a job's runs-on */

static int take_run(struct answers_runs *runs, uint64_t id)
{
	for (size_t i = 0; i < runs->n; i++)
		if (runs->ids[i] == id)
			return 0;
	if (runs->n == ANSWERS_RUNS_MAX) {
		runs->full = true;
		return 0;
	}
	runs->ids[runs->n++] = id;
	return 0;
}

int answers_runs(const char *data, size_t len, struct answers_runs *runs, struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	int r = json_read_object(data, len, &root, e);
	if (r < 0)
		return r;
	/* total_count is not looked at: above 2,500 it may not even be a number. */
	const json_t *list = json_object_get(root, "workflow_runs"), *item;
	if (!json_is_array(list))
		return error_set(e, EBADMSG, "the answer has no list of workflow runs");
	size_t i;
	json_array_foreach(list, i, item)
	{
		uint64_t id = json_id(item, "id");
		if (id == 0)
			return error_set(e, EBADMSG, "the answer has a workflow run without an id");
		r = take_run(runs, id);
		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_id(json_t *dst, const json_t *src, const char *key)
{
	uint64_t id = json_id(src, key);
	return json_object_set_new(dst, key, id ? json_integer((json_int_t)id) : json_null()) < 0 ? -ENOMEM
												  : 0;
}

static int copy_labels(json_t *dst, const json_t *src)
{
	json_t *labels = json_array();
	const json_t *label;
	size_t i;

	if (json_object_set_new(dst, "labels", labels) < 0)
		return -ENOMEM;
	json_array_foreach(json_object_get(src, "labels"), i, label)
	{
		/* A label that is not a string cannot be matched, and a job must not seem to ask for less
		 * than it does. */
		const char *text = json_string_value(label);
		if (i == LABELS_MAX || !text)
			return -EBADMSG;
		if (json_array_append_new(labels, json_string(text)) < 0)
			return -ENOMEM;
	}
	return 0;
}

static bool wanted(const json_t *job, const char *runner_name)
{
	const char *status = json_text(job, "status");
	if (runner_name)
		return str_equal(json_text(job, "runner_name"), runner_name);
	return str_equal(status, "queued") || str_equal(status, "in_progress");
}

/* 0, -ENOMEM, -EBADMSG: this one is left out. */
static int trim(const json_t *job, json_t **ret)
{
	static const char *const ids[] = {"id", "run_id", "runner_id"};
	static const char *const texts[] = {"name", "workflow_name", "status", "conclusion", "runner_name",
		"created_at", "started_at", "completed_at"};
	CLEANUP_JSON json_t *out = json_object();
	int r = out ? 0 : -ENOMEM;

	if (json_id(job, "id") == 0 || json_id(job, "run_id") == 0 ||
		!json_is_array(json_object_get(job, "labels")))
		return -EBADMSG;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(ids); i++)
		r = copy_id(out, job, ids[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(texts); i++)
		r = json_copy_text(out, job, texts[i], TEXT_MAX);
	if (r == 0)
		r = copy_labels(out, job);
	if (r == 0)
		*ret = TAKE_PTR(out);
	return r;
}

int answers_jobs(
	const char *data, size_t len, const char *runner_name, json_t *array, bool *ret_full, struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	int r = json_read_object(data, len, &root, e);
	if (r < 0)
		return r;
	const json_t *list = json_object_get(root, "jobs"), *item;
	if (!json_is_array(list))
		return error_set(e, EBADMSG, "the answer has no list of jobs");
	size_t i;
	json_array_foreach(list, i, item)
	{
		json_t *job = NULL;
		if (!wanted(item, runner_name))
			continue;
		if (json_array_size(array) >= ANSWERS_JOBS_MAX) {
			*ret_full = true;
			return 0;
		}
		r = trim(item, &job);
		if (r == -ENOMEM || (r == 0 && json_array_append_new(array, job) < 0))
			return error_set(e, ENOMEM, "no memory for a list of jobs");
	}
	return 0;
}
