/* An entry of runners.yaml: one function per key, and what has to fit together. */
#include "base/str.h"
#include "manager/config_entry.h"
#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>

_Static_assert(
	RUNNERS_LABELS_MAX *RUNNERS_LABEL_MAX > GITHUB_LABELS_MAX, "else no limit is needed on the sum");

static int take_scope(struct config_reader *r, struct runners_entry *entry, const char *text, const char *what)
{
	struct runners_config *config = config_draft_of(r)->config;

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

int config_entry_read(struct config_reader *r, void *target)
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
