/* The grammar of runners.yaml as a file; an entry of it is in config_entry.c. */
#include "base/str.h"
#include "linux/file.h"
#include "manager/config_entry.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int read_runners(struct config_reader *r, void *target)
{
	struct config_draft *d = target;
	int rc;

	d->seen_runners = true;
	rc = config_sequence(
		r, "runners must be a list of entries (- repo: OWNER/REPO)", config_entry_read, d->config);
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
	config_draft_of(r)->seen_version = true;
	if (strcmp(text, "1") != 0)
		return config_fail(r, config_line(r),
			"version \"%s\" is not known; this program reads version 1",
			config_shown(text, safe));
	return 0;
}

static int read_poll_interval(struct config_reader *r, void *target)
{
	return config_duration_ms(
		r, "poll_interval", 5 * SECOND_MS, 5 * MINUTE_MS, &config_draft_of(r)->config->poll_interval_ms);
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
	return read_path(r, "metrics_file", config_draft_of(r)->config->metrics_file);
}

static int read_alarm_command(struct config_reader *r, void *target)
{
	return read_path(r, "alarm_command", config_draft_of(r)->config->alarm_command);
}

static int read_log_keep(struct config_reader *r, void *target)
{
	return config_duration_ms(r, "log_keep", HOUR_MS, 365 * DAY_MS, &config_draft_of(r)->config->log_keep_ms);
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

static int read_file(struct config_reader *r, struct config_draft *d)
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
	struct config_draft d = {0};
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
