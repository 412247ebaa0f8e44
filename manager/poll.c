/*
 * The tick of an entry. GitHub is asked first whether the entry may be served at all, which costs nothing while nothing has
 * changed; then the entry's source says how many runners are wanted; then each running runner that no list has named is
 * asked about. An answer names its entry by number, because a reload may have taken it away.
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/log.h"
#include "manager/alarm.h"
#include "manager/budget.h"
#include "manager/service.h"
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>

struct work_entry *service_entry_find(struct service *s, uint64_t number)
{
	for (unsigned i = 0; i < s->n_entries; i++)
		if (s->entries[i].number == number)
			return &s->entries[i];
	return NULL;
}

uint64_t entry_interval_ms(const struct work_entry *entry)
{
	struct service *s = entry->service;

	return budget_poll_ms(github_link_budget(s->github), s->config->poll_interval_ms, service_now_ms());
}

static void poll_failed(struct work_entry *entry, const char *what, const struct github_reply *reply)
{
	uint64_t wait;

	if (entry_refused(entry, reply))
		return;
	wait = backoff_next(&entry->poll_backoff);
	wait = reply->retry_after_ms > wait ? reply->retry_after_ms : wait;
	entry->look_ms = service_now_ms() + wait;
	(void)str_copy(entry->why, reply->text);
	/* A limit is a normal thing and long; a fault is worth a line each time, its wait grows. */
	log_warning("%s: %s: %s; again in %llu s", entry->conf->scope, what, reply->text,
		(unsigned long long)(wait / 1000));
}

static int ask(struct work_entry *entry, enum github_type type, const char *scope, github_cb cb)
{
	struct github_request r = {0};
	struct error e = ERROR_INIT;
	int rc;

	(void)str_copy(r.scope, scope);
	(void)str_copy(r.group, entry->conf->group);
	rc = github_link_ask(
		entry->service->github, type, &r, GITHUB_RANK_LIVE, cb, entry->service, entry->number, &e);
	if (rc < 0)
		log_warning("%s: %s", entry->conf->scope, e.text);
	entry->polling = rc == 0;
	return rc;
}

/* So many are wanted now. */
static void demand(struct work_entry *entry, unsigned wanted)
{
	unsigned held, unfilled;

	entry_count(entry, &held, &unfilled);
	entry->wanted = wanted;
	entry->wanted_ms = service_now_ms();
	entry->missing = demand_missing(wanted, unfilled, held, entry->conf->max);
	entry_take(entry);
	service_settle(entry->service);
}

static void ask_jobs(struct work_entry *entry);

static void take_jobs(struct work_entry *entry, const char *repo, const struct jobs *jobs)
{
	struct service *s = entry->service;

	/* First: a lease that has its job now does not answer for another one. */
	work_take_jobs(s, entry, repo, jobs);
	entry->seen_wanted += jobs_wanted(jobs, entry->conf);
	if (entry->n_near < JOB_NEAR_MAX) {
		struct job_near near[JOB_NEAR_MAX];
		unsigned n = jobs_unmatched(jobs, s->config->entries, s->config->n_entries, repo, near);

		for (unsigned i = 0; i < n && entry->n_near < JOB_NEAR_MAX; i++)
			entry->near[entry->n_near++] = near[i];
	}
}

static void on_jobs(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work_entry *entry = service_entry_find(s, number);
	CLEANUP(jobs_freep) struct jobs *jobs = NULL;
	struct error e = ERROR_INIT;

	if (!entry)
		return;
	entry->polling = false;
	if (a->reply->code < 0) {
		poll_failed(entry, "the queue cannot be read", a->reply);
		work_watch(s, entry);
		return;
	}
	if (entry->repo_at >= entry->n_repos)
		return; /* the list of repositories has become shorter meanwhile */
	if (jobs_parse(a->document ? a->document : "", a->document_len, &jobs, &e) < 0) {
		log_warning("%s: %s", entry->conf->scope, e.text);
		work_watch(s, entry);
		return;
	}
	backoff_reset(&entry->poll_backoff);
	take_jobs(entry, entry->repos[entry->repo_at++], jobs);
	if (entry->repo_at < entry->n_repos) {
		ask_jobs(entry);
		return;
	}
	demand(entry, entry->seen_wanted);
	work_watch(s, entry);
}

static void ask_jobs(struct work_entry *entry)
{
	if (entry->n_repos == 0) {
		poll_failed(entry, "no jobs are looked for",
			&(struct github_reply){.fault = GITHUB_FAULT_INVALID, .code = -EINVAL,
				.text = "its runner group is not for selected repositories; say with repos: where to look for jobs, "
					"or use registered: N"});
		return;
	}
	if (entry->repo_at == 0) {
		entry->seen_wanted = entry->n_near = 0;
		work_unlist(entry->service, entry);
	}
	(void)ask(entry, GITHUB_JOBS, entry->repos[entry->repo_at], on_jobs);
}

static void source_poll(struct work_entry *entry)
{
	entry->repo_at = 0;
	ask_jobs(entry);
}

/* Jobs are GitHub's business then: so many runners wait for them, and each is asked about itself only. */
static void source_registered(struct work_entry *entry)
{
	work_unlist(entry->service, entry);
	demand(entry, entry->conf->registered);
	work_watch(entry->service, entry);
}

/* Where the number of wanted runners comes from. ask() is called once a tick and calls demand() when it knows. */
static const struct demand_source {
	const char *name;
	void (*ask)(struct work_entry *entry);
} sources[] = {{"poll", source_poll}, {"registered", source_registered}};

static const struct demand_source *source_of(const struct work_entry *entry)
{
	return &sources[entry->conf->registered ? 1 : 0];
}

const char *entry_source(const struct work_entry *entry)
{
	return source_of(entry)->name;
}

static void add_repo(struct work_entry *entry, const char *full_name)
{
	if (full_name && entry->n_repos < RUNNERS_REPOS_MAX && scope_check(full_name, NULL) == 0)
		(void)str_copy(entry->repos[entry->n_repos++], full_name);
}

/* Where jobs are looked for: the repository; for an organization what the file says, else the group's selected ones. */
static void take_repos(struct work_entry *entry, const char *document)
{
	json_t *root = document ? json_loads(document, JSON_REJECT_DUPLICATES, NULL) : NULL;
	const json_t *name;
	size_t i;

	entry->n_repos = 0;
	if (!scope_is_org(entry->conf->scope))
		add_repo(entry, entry->conf->scope);
	for (unsigned n = 0; n < entry->conf->n_repos; n++) {
		char full_name[SCOPE_MAX];

		if (str_format(full_name, "%s/%s", entry->conf->scope, entry->conf->repos[n]) == 0)
			add_repo(entry, full_name);
	}
	if (scope_is_org(entry->conf->scope) && entry->conf->n_repos == 0) {
		json_array_foreach(json_object_get(root, "repositories"), i, name)
		{
			add_repo(entry, json_string_value(name));
		}
	}
	json_decref(root);
}

/* A runner in a group that does not allow the repository is online and never gets a job: GitHub says nothing about it. */
static void check_group_allows(struct work_entry *entry, const char *document)
{
	json_t *root = document ? json_loads(document, JSON_REJECT_DUPLICATES, NULL) : NULL;
	const json_t *allowed = json_object_get(root, "repositories"), *name;
	const char *visibility = json_string_value(json_object_get(root, "visibility"));
	char text[ERROR_TEXT_MAX] = "";
	size_t at;

	for (unsigned i = 0; visibility && str_equal(visibility, "selected") && i < entry->n_repos && !text[0]; i++) {
		bool found = json_is_true(json_object_get(root, "truncated"));

		json_array_foreach(allowed, at, name)
		{
			found |= json_string_value(name) && strcasecmp(json_string_value(name), entry->repos[i]) == 0;
		}
		if (!found)
			(void)str_format(text, "runner group %s does not allow %s: its jobs will wait for ever", entry->conf->group,
				entry->repos[i]);
	}
	json_decref(root);
	if (text[0] && !str_equal(text, entry->why))
		log_error("%s: %s", entry->conf->scope, text);
	(void)str_copy(entry->why, text);
}

static void on_scope(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work_entry *entry = service_entry_find(s, number);

	if (!entry)
		return;
	entry->polling = false;
	if (a->reply->code < 0) {
		poll_failed(entry, scope_is_org(entry->conf->scope) ? "the runner group cannot be read"
								     : "the repository cannot be read", a->reply);
		work_watch(s, entry);
		return;
	}
	if (!a->reply->is_private) {
		entry_set(entry, ENTRY_PUBLIC, "");
		entry_drop_idle(entry);
		work_watch(s, entry);
		return;
	}
	backoff_reset(&entry->poll_backoff);
	take_repos(entry, a->document);
	if (entry->state != ENTRY_SERVING && entry->state != ENTRY_STOPPED)
		entry_set(entry, ENTRY_SERVING, "");
	check_group_allows(entry, a->document);
	source_of(entry)->ask(entry);
}

static int on_tick(sd_event_source *source, uint64_t us, void *userdata)
{
	struct work_entry *entry = userdata;
	struct service *s = entry->service;

	if (s->stopping)
		return 0;
	entry_poll_in(entry, entry_interval_ms(entry));
	if (entry->polling)
		return 0;
	if (entry->pause == PAUSE_DRAIN)
		entry_drop_idle(entry);
	if (!entry->orphans && service_now_ms() >= entry->look_ms &&
		ask(entry, scope_is_org(entry->conf->scope) ? GITHUB_GROUP : GITHUB_REPOSITORY, entry->conf->scope, on_scope) == 0)
		return 0; /* its answer goes on from here */
	work_watch(s, entry);
	return 0;
}

void entry_poll_in(struct work_entry *entry, uint64_t in_ms)
{
	struct error e = ERROR_INIT;

	if (loop_timer(entry->service->ev, &entry->timer, in_ms, on_tick, entry, &e) < 0) {
		log_error("%s", e.text);
		(void)sd_event_exit(entry->service->ev, EXIT_STATUS_FAILED);
	}
}
