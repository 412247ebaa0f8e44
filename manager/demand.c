#include "manager/demand.h"
#include "base/str.h"
#include "linux/clock.h"
#include "manager/github_list.h"
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>

#define LABELS_PER_JOB_MAX 100 /* GitHub's own limit for a runner */

struct jobs {
	json_t *root, *list;
};

int jobs_parse(const char *data, size_t len, struct jobs **ret, struct error *e)
{
	CLEANUP(jobs_freep) struct jobs *j = calloc(1, sizeof(*j));
	int code;

	if (!j)
		return error_errno(e, ENOMEM, "cannot read the list of jobs");
	code = github_list_read(data, len, "jobs", &j->root, &j->list, e);
	if (code < 0)
		return code;
	*ret = TAKE_PTR(j);
	return 0;
}

struct jobs *jobs_free(struct jobs *j)
{
	if (j)
		json_decref(j->root);
	free(j);
	return NULL;
}

static enum job_status status_of(const json_t *job)
{
	const char *s = json_string_value(json_object_get(job, "status"));

	if (!s)
		return JOB_OTHER;
	if (strcmp(s, "queued") == 0)
		return JOB_QUEUED;
	if (strcmp(s, "in_progress") == 0)
		return JOB_RUNNING;
	if (strcmp(s, "completed") == 0)
		return JOB_COMPLETED;
	return JOB_OTHER;
}

static bool entry_has(const struct runners_entry *entry, const char *label)
{
	for (unsigned i = 0; i < entry->n_labels; i++)
		if (strcasecmp(entry->labels[i], label) == 0)
			return true;
	return false;
}

static bool fits(const json_t *job, const struct runners_entry *entry)
{
	const json_t *labels = json_object_get(job, "labels");
	size_t n = json_array_size(labels);

	/* A job without labels would fit everybody; GitHub has none, so it is a broken answer. */
	if (!json_is_array(labels) || n == 0 || n > LABELS_PER_JOB_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		const char *label = json_string_value(json_array_get(labels, i));

		if (!label || !entry_has(entry, label))
			return false;
	}
	return true;
}

unsigned jobs_wanted(const struct jobs *j, const struct runners_entry *entry)
{
	unsigned n = 0;

	for (size_t i = 0; i < json_array_size(j->list); i++) {
		const json_t *job = json_array_get(j->list, i);

		if (status_of(job) == JOB_QUEUED && fits(job, entry))
			n++;
	}
	return n;
}

static void show(char *dst, size_t size, const json_t *text)
{
	const char *s = json_string_value(text);

	str_show_n(dst, size, s ? s : "", s ? strlen(s) : 0);
}

/* 0: GitHub has not said. */
static uint64_t when(const json_t *job, const char *key)
{
	uint64_t at = 0;

	(void)clock_wall_parse(json_string_value(json_object_get(job, key)), &at);
	return at;
}

bool entry_covers(const struct runners_entry *entry, const char *repo)
{
	size_t n = strlen(entry->scope);

	if (!scope_is_org(entry->scope))
		return strcasecmp(entry->scope, repo) == 0;
	if (strncasecmp(repo, entry->scope, n) != 0 || repo[n] != '/')
		return false;
	for (unsigned i = 0; i < entry->n_repos; i++)
		if (strcasecmp(entry->repos[i], repo + n + 1) == 0)
			return true;
	return entry->n_repos == 0;
}

/* Letters to change, leave out or put in; capped, as labels are short and only near ones matter. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[RUNNERS_LABEL_MAX + 1], n = (unsigned)strlen(b);

	if (n >= RUNNERS_LABEL_MAX || strlen(a) >= RUNNERS_LABEL_MAX)
		return RUNNERS_LABEL_MAX;
	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 0; a[i]; i++) {
		unsigned diagonal = row[0];

		row[0] = i + 1;
		for (unsigned j = 0; j < n; j++) {
			bool same = tolower((unsigned char)a[i]) == tolower((unsigned char)b[j]);
			unsigned best = diagonal + (same ? 0 : 1);

			diagonal = row[j + 1];
			best = diagonal + 1 < best ? diagonal + 1 : best;
			row[j + 1] = row[j] + 1 < best ? row[j] + 1 : best;
		}
	}
	return row[n];
}

#define NEAR_MAX 2 /* letters */

static void judge(const json_t *job, const struct runners_entry *entry, struct job_near *ret)
{
	const json_t *labels = json_object_get(job, "labels");

	*ret = (struct job_near){0};
	show(ret->job, sizeof(ret->job), json_object_get(job, "name"));
	for (size_t i = 0; i < json_array_size(labels); i++) {
		const char *label = json_string_value(json_array_get(labels, i));

		if (!label || entry_has(entry, label))
			continue;
		if (ret->off++ > 0)
			continue;
		str_show_n(ret->label, sizeof(ret->label), label, strlen(label));
		for (unsigned l = 0; l < entry->n_labels; l++)
			if (distance(label, entry->labels[l]) <= NEAR_MAX)
				(void)str_copy(ret->meant, entry->labels[l]);
	}
}

static bool unmatched(const json_t *job, const struct runners_entry *entries, unsigned n_entries, const char *repo,
	struct job_near *ret)
{
	bool covered = false;

	for (unsigned i = 0; i < n_entries; i++) {
		struct job_near near;

		if (!entry_covers(&entries[i], repo))
			continue;
		if (fits(job, &entries[i]))
			return false;
		judge(job, &entries[i], &near);
		if (!covered || near.off < ret->off)
			*ret = near;
		covered = true;
	}
	return covered;
}

unsigned jobs_unmatched(const struct jobs *j, const struct runners_entry *entries, unsigned n_entries, const char *repo,
	struct job_near ret[static JOB_NEAR_MAX])
{
	unsigned n = 0;

	for (size_t i = 0; i < json_array_size(j->list) && n < JOB_NEAR_MAX; i++) {
		const json_t *job = json_array_get(j->list, i);

		if (status_of(job) == JOB_QUEUED && unmatched(job, entries, n_entries, repo, &ret[n]))
			n++;
	}
	return n;
}

bool jobs_on_runner(const struct jobs *j, const char *runner_name, struct job_view *ret)
{
	for (size_t i = 0; i < json_array_size(j->list); i++) {
		const json_t *job = json_array_get(j->list, i);
		const char *name = json_string_value(json_object_get(job, "runner_name"));

		if (!name || strcmp(name, runner_name) != 0)
			continue;
		ret->status = status_of(job);
		show(ret->name, sizeof(ret->name), json_object_get(job, "name"));
		ret->run_id = json_is_integer(json_object_get(job, "run_id"))
				      ? (uint64_t)json_integer_value(json_object_get(job, "run_id"))
				      : 0;
		ret->created_s = when(job, "created_at");
		ret->started_s = when(job, "started_at");
		ret->completed_s = when(job, "completed_at");
		show(ret->conclusion, sizeof(ret->conclusion), json_object_get(job, "conclusion"));
		return true;
	}
	return false;
}

unsigned demand_missing(unsigned wanted, unsigned unfilled, unsigned held, unsigned max)
{
	unsigned room = held < max ? max - held : 0;
	unsigned missing = wanted > unfilled ? wanted - unfilled : 0;

	return missing < room ? missing : room;
}
