/* The grammar of runners.yaml: one function per key, and what has to fit together. */
#include "manager/config.h"
#include "base/str.h"
#include "linux/file.h"
#include "manager/config_yaml.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>

#define SECOND_MS UINT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define DAY_MS (24 * HOUR_MS)

_Static_assert(
	RUNNERS_LABELS_MAX *RUNNERS_LABEL_MAX > GITHUB_LABELS_MAX, "else no limit is needed on the sum");

struct draft { /* the reader's userdata */
	struct runners_config *config;
	bool seen_version, seen_runners;
};

static struct draft *draft_of(struct config_reader *r)
{
	return r->userdata;
}

static int take_scope(struct config_reader *r, struct runners_entry *entry, const char *text, const char *what)
{
	struct runners_config *config = draft_of(r)->config;

	if (entry->scope[0])
		return config_fail(r, config_line(r), "an entry has a repo or an org, not both");
	/* Two entries would both answer the same queued job. GitHub's names ignore case. */
	for (unsigned i = 0; i < config->n_entries; i++)
		if (&config->entries[i] != entry && strcasecmp(config->entries[i].scope, text) == 0)
			return config_fail(r, config_line(r), "%s %s is already served by the entry on line %u", what, text,
				config->entries[i].line);
	return str_copy(entry->scope, text) < 0 ? config_fail(r, config_line(r), "it is too long") : 0;
}

static int read_repo(struct config_reader *r, void *target)
{
	struct runners_entry *entry = target;
	struct error why = ERROR_INIT;
	char text[CONFIG_SCALAR_MAX];
	int rc = config_scalar(r, "repo", text);

	if (rc < 0)
		return rc;
	if (scope_check(text, &why) < 0)
		return config_fail_value(r, &why);
	return take_scope(r, entry, text, "repository");
}

static int read_org(struct config_reader *r, void *target)
{
	struct error why = ERROR_INIT;
	char text[CONFIG_SCALAR_MAX];
	int rc = config_scalar(r, "org", text);

	if (rc < 0)
		return rc;
	if (org_check(text, &why) < 0)
		return config_fail_value(r, &why);
	return take_scope(r, target, text, "organization");
}

static int read_label(struct config_reader *r, void *target)
{
	struct runners_entry *entry = target;
	char text[CONFIG_SCALAR_MAX], safe[CONFIG_SHOWN_MAX];
	size_t sum = 0;
	int rc = config_scalar(r, "a label", text);

	if (rc < 0)
		return rc;
	if (!text[0] || strlen(text) >= RUNNERS_LABEL_MAX)
		return config_fail(r, config_line(r), "label \"%s\": a label has 1 to %d characters",
			config_shown(text, safe), RUNNERS_LABEL_MAX - 1);
	for (const char *p = text; *p; p++)
		if (!isgraph((unsigned char)*p) || *p == ',' || *p == '"' || *p == '\\')
			return config_fail(r, config_line(r),
				"label \"%s\": only printable ASCII without space, comma, quote, backslash",
				config_shown(text, safe));
	for (unsigned i = 0; i < entry->n_labels; i++) {
		if (strcasecmp(entry->labels[i], text) == 0)
			return config_fail(r, config_line(r),
				"label \"%s\" is repeated (upper and lower case are the same)", text);
		sum += strlen(entry->labels[i]) + 1;
	}
	if (entry->n_labels == RUNNERS_LABELS_MAX)
		return config_fail(r, config_line(r), "more than %d labels", RUNNERS_LABELS_MAX);
	if (sum + strlen(text) >= GITHUB_LABELS_MAX)
		return config_fail(r, config_line(r), "all labels together are longer than %d bytes",
			GITHUB_LABELS_MAX - 1);
	(void)str_copy(entry->labels[entry->n_labels++], text);
	return 0;
}

static int read_labels(struct config_reader *r, void *target)
{
	struct runners_entry *entry = target;
	int rc;

	entry->n_labels = 0;
	rc = config_sequence(
		r, "labels must be a list, like [self-hosted, linux, x64, boxery]", read_label, entry);
	if (rc == 0 && entry->n_labels == 0)
		return config_fail(r, config_line(r), "labels must not be empty");
	return rc;
}

static int read_group(struct config_reader *r, void *target)
{
	struct runners_entry *entry = target;
	char text[CONFIG_SCALAR_MAX], safe[CONFIG_SHOWN_MAX];
	int rc = config_scalar(r, "group", text);

	if (rc < 0)
		return rc;
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return config_fail(r, config_line(r), "group \"%s\" has a control character",
				config_shown(text, safe));
	if (!text[0] || str_copy(entry->group, text) < 0)
		return config_fail(r, config_line(r), "group \"%s\": a runner group's name has 1 to %d bytes",
			config_shown(text, safe), GITHUB_GROUP_MAX - 1);
	return 0;
}

static int read_repo_name(struct config_reader *r, void *target)
{
	struct runners_entry *entry = target;
	char text[CONFIG_SCALAR_MAX], safe[CONFIG_SHOWN_MAX], whole[CONFIG_SCALAR_MAX + 2];
	int rc = config_scalar(r, "a repository of repos", text);

	if (rc < 0)
		return rc;
	(void)str_format(whole, "o/%s", text);
	if (strlen(text) >= RUNNERS_REPO_MAX || scope_check(whole, NULL) < 0)
		return config_fail(r, config_line(r), "repos: \"%s\" is not a repository's name without its owner",
			config_shown(text, safe));
	for (unsigned i = 0; i < entry->n_repos; i++)
		if (strcasecmp(entry->repos[i], text) == 0)
			return config_fail(r, config_line(r), "repository \"%s\" is repeated", text);
	if (entry->n_repos == RUNNERS_REPOS_MAX)
		return config_fail(r, config_line(r), "more than %d repositories", RUNNERS_REPOS_MAX);
	return str_copy(entry->repos[entry->n_repos++], text);
}

static int read_repos(struct config_reader *r, void *target)
{
	struct runners_entry *entry = target;
	int rc = config_sequence(r, "repos must be a list of names, like [api, web]", read_repo_name, entry);

	if (rc == 0 && entry->n_repos == 0)
		return config_fail(r, config_line(r), "repos must not be empty");
	return rc;
}

static int read_registered(struct config_reader *r, void *target)
{
	return config_number(r, "registered", 0, 100, &((struct runners_entry *)target)->registered);
}

static int read_priority(struct config_reader *r, void *target)
{
	return config_number(r, "priority", 0, 100, &((struct runners_entry *)target)->priority);
}

static int read_pool(struct config_reader *r, void *target)
{
	struct runners_entry *entry = target;
	struct error why = ERROR_INIT;
	char text[CONFIG_SCALAR_MAX];
	int rc = config_scalar(r, "pool", text);

	if (rc < 0)
		return rc;
	if (name_check(text, "pool", &why) < 0)
		return config_fail_value(r, &why);
	(void)str_copy(entry->pool, text); /* name_check bounds it */
	return 0;
}

static int read_min_ready(struct config_reader *r, void *target)
{
	return config_number(r, "min_ready", 0, 100, &((struct runners_entry *)target)->min_ready);
}

static int read_max(struct config_reader *r, void *target)
{
	return config_number(r, "max", 1, 100, &((struct runners_entry *)target)->max);
}

static int read_start_timeout(struct config_reader *r, void *target)
{
	return config_duration_ms(r, "start_timeout", 10 * SECOND_MS, HOUR_MS,
		&((struct runners_entry *)target)->start_timeout_ms);
}

static int read_idle_timeout(struct config_reader *r, void *target)
{
	return config_duration_ms(r, "idle_timeout", 10 * SECOND_MS, DAY_MS,
		&((struct runners_entry *)target)->idle_timeout_ms);
}

static int read_job_timeout(struct config_reader *r, void *target)
{
	return config_duration_ms(
		r, "job_timeout", MINUTE_MS, 5 * DAY_MS, &((struct runners_entry *)target)->job_timeout_ms);
}

static const struct config_key entry_keys[] = {
	{"repo", read_repo},
	{"org", read_org},
	{"group", read_group},
	{"repos", read_repos},
	{"registered", read_registered},
	{"priority", read_priority},
	{"labels", read_labels},
	{"pool", read_pool},
	{"min_ready", read_min_ready},
	{"max", read_max},
	{"start_timeout", read_start_timeout},
	{"idle_timeout", read_idle_timeout},
	{"job_timeout", read_job_timeout},
};
_Static_assert(ARRAY_SIZE(entry_keys) <= CONFIG_KEYS_MAX, "one bit each");

/* What has to fit together. */
static int check_entry(struct config_reader *r, struct runners_entry *entry)
{
	bool org = scope_is_org(entry->scope);

	if (!entry->scope[0])
		return config_fail(r, entry->line, "this entry has no repo and no org; write repo: OWNER/REPO or org: NAME");
	if (entry->min_ready > entry->max)
		return config_fail(
			r, entry->line, "min_ready (%u) is more than max (%u)", entry->min_ready, entry->max);
	if (entry->registered > entry->max)
		return config_fail(
			r, entry->line, "registered (%u) is more than max (%u)", entry->registered, entry->max);
	if (!org && (entry->group[0] || entry->n_repos))
		return config_fail(r, entry->line, "group and repos belong to an org, not to a repo");
	if (org && entry->registered && entry->n_repos)
		return config_fail(r, entry->line, "repos says where jobs are looked for; with registered they are not looked for");
	if (org && !entry->group[0])
		(void)str_copy(entry->group, "Default");
	return 0;
}

static int read_entry(struct config_reader *r, void *target)
{
	struct runners_config *config = target;
	struct runners_entry *entry;
	int rc;

	if (config->n_entries == RUNNERS_ENTRIES_MAX)
		return config_fail(r, config_line(r), "more than %d entries", RUNNERS_ENTRIES_MAX);
	entry = &config->entries[config->n_entries++];
	runners_entry_defaults(entry);
	entry->line = config_line(r);
	rc = config_mapping(r, "an entry of runners", entry_keys, ARRAY_SIZE(entry_keys), entry);
	if (rc < 0)
		return rc;
	return check_entry(r, entry);
}

static int read_runners(struct config_reader *r, void *target)
{
	struct draft *d = target;
	int rc;

	d->seen_runners = true;
	rc = config_sequence(
		r, "runners must be a list of entries (- repo: OWNER/REPO)", read_entry, d->config);
	if (rc == 0 && d->config->n_entries == 0)
		return config_fail(
			r, config_line(r), "runners must have at least one entry (- repo: OWNER/REPO)");
	return rc;
}

static int read_version(struct config_reader *r, void *target)
{
	char text[CONFIG_SCALAR_MAX], safe[CONFIG_SHOWN_MAX];
	int rc = config_scalar(r, "version", text);

	if (rc < 0)
		return rc;
	draft_of(r)->seen_version = true;
	if (strcmp(text, "1") != 0)
		return config_fail(r, config_line(r),
			"version \"%s\" is not known; this program reads version 1",
			config_shown(text, safe));
	return 0;
}

static int read_poll_interval(struct config_reader *r, void *target)
{
	return config_duration_ms(
		r, "poll_interval", 5 * SECOND_MS, 5 * MINUTE_MS, &draft_of(r)->config->poll_interval_ms);
}

static int read_path(struct config_reader *r, const char *what, char dst[static RUNNERS_PATH_MAX])
{
	char text[CONFIG_SCALAR_MAX], safe[CONFIG_SHOWN_MAX];
	int rc = config_scalar(r, what, text);

	if (rc < 0)
		return rc;
	for (const char *p = text; *p; p++)
		if (!isprint((unsigned char)*p))
			return config_fail(r, config_line(r), "%s \"%s\" has a control character", what, config_shown(text, safe));
	if (text[0] != '/' || text[strlen(text) - 1] == '/' || str_copy_n(dst, RUNNERS_PATH_MAX, text) < 0)
		return config_fail(r, config_line(r), "%s \"%s\" must be an absolute path of a file, up to %d bytes", what,
			config_shown(text, safe), RUNNERS_PATH_MAX - 1);
	return 0;
}

static int read_metrics_file(struct config_reader *r, void *target)
{
	return read_path(r, "metrics_file", draft_of(r)->config->metrics_file);
}

static int read_alarm_command(struct config_reader *r, void *target)
{
	return read_path(r, "alarm_command", draft_of(r)->config->alarm_command);
}

static int read_log_keep(struct config_reader *r, void *target)
{
	return config_duration_ms(r, "log_keep", HOUR_MS, 365 * DAY_MS, &draft_of(r)->config->log_keep_ms);
}

static int by_priority(const void *a, const void *b)
{
	const struct runners_entry *x = a, *y = b;

	if (x->priority != y->priority)
		return x->priority > y->priority ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

static const struct config_key top_keys[] = {
	{"version", read_version},
	{"poll_interval", read_poll_interval},
	{"metrics_file", read_metrics_file},
	{"alarm_command", read_alarm_command},
	{"log_keep", read_log_keep},
	{"runners", read_runners},
};

static int read_file(struct config_reader *r, struct draft *d)
{
	int rc = config_document(r, top_keys, ARRAY_SIZE(top_keys), d);

	if (rc < 0)
		return rc;
	if (!d->seen_version)
		return config_fail(r, 1, "version is missing; write version: 1");
	if (!d->seen_runners)
		return config_fail(r, 1, "runners is missing; it lists what to serve (- repo: OWNER/REPO)");
	return 0;
}

int runners_config_parse(
	const char *shown_name, const char *data, size_t len, struct runners_config **ret, struct error *e)
{
	CLEANUP(runners_config_freep) struct runners_config *c = NULL;
	struct error local = ERROR_INIT;
	struct config_reader r;
	struct draft d = {0};
	int rc;

	if (!e)
		e = &local;
	if (len > RUNNERS_CONFIG_MAX)
		return error_set(e, EBADMSG, "%s: larger than %d bytes", shown_name, RUNNERS_CONFIG_MAX);
	d.config = c = calloc(1, sizeof(*c) + RUNNERS_ENTRIES_MAX * sizeof(c->entries[0]));
	if (!c)
		return error_errno(e, ENOMEM, "cannot read %s", shown_name);
	c->poll_interval_ms = 15 * SECOND_MS;
	c->log_keep_ms = 14 * DAY_MS;
	rc = config_reader_init(&r, shown_name, data, len, e);
	if (rc < 0)
		return rc;
	r.userdata = &d;
	rc = read_file(&r, &d);
	config_reader_done(&r);
	if (rc < 0)
		return rc;
	qsort(c->entries, c->n_entries, sizeof(c->entries[0]), by_priority);
	*ret = TAKE_PTR(c);
	return 0;
}

int runners_config_load(const char *path, struct runners_config **ret, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	size_t len = 0;
	int rc = file_read(AT_FDCWD, path, RUNNERS_CONFIG_MAX, &data, &len, e);

	if (rc == -ENOENT)
		return error_set(e, ENOENT,
			"%s is missing; it says what to serve. The least is: version: 1, and runners: with "
			"- repo: OWNER/REPO",
			path);
	if (rc == -EFBIG)
		return error_set(e, EBADMSG, "%s is larger than %d bytes; that is no list of runners", path, RUNNERS_CONFIG_MAX);
	if (rc < 0)
		return rc;
	return runners_config_parse(path, data, len, ret, e);
}

struct runners_config *runners_config_free(struct runners_config *c)
{
	free(c);
	return NULL;
}

void runners_entry_defaults(struct runners_entry *entry)
{
	static const char *const names[] = {"self-hosted", "linux", "x64", "boxery"};
	struct utsname u;

	*entry = (struct runners_entry){
		.pool = POOL_DEFAULT,
		.min_ready = 1,
		.max = 1,
		.start_timeout_ms = 5 * MINUTE_MS,
		.idle_timeout_ms = 10 * MINUTE_MS,
		.job_timeout_ms = 6 * HOUR_MS,
	};
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)str_copy(entry->labels[entry->n_labels++], names[i]);
	if (uname(&u) == 0 && strcmp(u.machine, "aarch64") == 0)
		(void)str_copy(entry->labels[2], "arm64");
}

void runners_entry_labels(const struct runners_entry *entry, char dst[static GITHUB_LABELS_MAX])
{
	size_t len = 0;

	dst[0] = '\0';
	for (unsigned i = 0; i < entry->n_labels; i++) {
		size_t n = strlen(entry->labels[i]);

		if (len + n + 2 > GITHUB_LABELS_MAX)
			return; /* read_label() keeps the sum below */
		if (i > 0)
			dst[len++] = ',';
		memcpy(dst + len, entry->labels[i], n + 1);
		len += n;
	}
}

void runners_config_size(const struct runners_config *c, unsigned *ret_repositories, unsigned *ret_jobs)
{
	*ret_repositories = *ret_jobs = 0;
	for (unsigned i = 0; i < c->n_entries; i++) {
		const struct runners_entry *entry = &c->entries[i];

		*ret_jobs += entry->max;
		if (!entry->registered)
			*ret_repositories += entry->n_repos ? entry->n_repos : 1;
	}
}
