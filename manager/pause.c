/*
 * What an admin has paused or is draining: in memory an entry's property, on disk one line "paused SCOPE" or "draining SCOPE"
 * each (SCOPE "*": everything, also what a later configuration adds), so that a restart or a crash does not undo it.
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "base/table.h"
#include "linux/file.h"
#include "linux/log.h"
#include "manager/service.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>

#define PAUSE_FILE "runners-paused"
#define PAUSE_FILE_MAX 16384
#define ALL "*"

static const char *const names[] = {
	[PAUSE_NONE] = "",
	[PAUSE_LEASES] = "paused",
	[PAUSE_DRAIN] = "draining",
};
_Static_assert(ARRAY_SIZE(names) == PAUSE_COUNT, "table and enum differ");

const char *entry_pause_to_string(enum entry_pause v)
{
	return (unsigned)v < PAUSE_COUNT ? names[v] : NULL;
}

static int save(const struct service *s, struct error *e)
{
	CLEANUP_BUF struct buf text = BUF_INIT(PAUSE_FILE_MAX);
	CLEANUP_FD int dir = -1;
	int r = 0;

	if (s->pause_all != PAUSE_NONE)
		r = buf_addf(&text, "%s " ALL "\n", names[s->pause_all]);
	for (unsigned i = 0; i + 1 < s->n_entries && r == 0; i++)
		if (s->entries[i].pause != PAUSE_NONE && s->entries[i].pause != s->pause_all)
			r = buf_addf(&text, "%s %s\n", names[s->entries[i].pause], s->entries[i].conf->scope);
	if (r < 0)
		return error_errno(e, -r, "cannot write " PAUSE_FILE);
	r = dir_make(s->host->state_dir, 0700, e);
	if (r == 0)
		r = dir_open(AT_FDCWD, s->host->state_dir, &dir, e);
	if (r < 0)
		return r;
	return text.len ? file_write_atomic(dir, PAUSE_FILE, text.data, text.len, 0600, e)
			: file_remove(dir, PAUSE_FILE, true, e);
}

static void apply(struct work_entry *entry, enum entry_pause pause)
{
	if (entry->pause == pause)
		return;
	entry->pause = pause;
	log_info("%s: %s", entry->conf->scope, pause == PAUSE_NONE ? "resumed" : names[pause]);
	if (pause == PAUSE_DRAIN)
		entry_drop_idle(entry);
	if (pause == PAUSE_NONE) {
		entry_resume(entry);
		entry_poll_in(entry, 0);
	}
	service_settle(entry->service);
}

int service_pause(struct service *s, const char *scope, enum entry_pause pause, struct error *e)
{
	bool found = !scope[0];

	if (!scope[0])
		s->pause_all = pause;
	for (unsigned i = 0; i + 1 < s->n_entries; i++) {
		struct work_entry *entry = &s->entries[i];

		if (scope[0] && strcasecmp(scope, entry->conf->scope) != 0)
			continue;
		found = true;
		if (pause == PAUSE_NONE && entry->pause == PAUSE_NONE)
			entry_resume(entry); /* it may have stopped by itself */
		apply(entry, pause);
	}
	if (!found)
		return error_set(e, ENOENT, "runners.yaml has no entry %s", scope);
	return save(s, e);
}

static void take_line(struct service *s, char *line)
{
	char *scope = strchr(line, ' ');
	enum entry_pause pause = PAUSE_NONE;

	if (!scope)
		return;
	*scope++ = '\0';
	for (int i = 1; i < PAUSE_COUNT; i++)
		if (strcmp(names[i], line) == 0)
			pause = (enum entry_pause)i;
	if (strcmp(scope, ALL) == 0)
		s->pause_all = pause;
	for (unsigned i = 0; i + 1 < s->n_entries; i++)
		if (strcmp(scope, ALL) == 0 || strcasecmp(scope, s->entries[i].conf->scope) == 0)
			apply(&s->entries[i], pause);
}

void service_pause_load(struct service *s)
{
	CLEANUP_FREE char *data = NULL;
	char path[sizeof(s->host->state_dir) + sizeof(PAUSE_FILE) + 1], *save_at = NULL;
	struct error e = ERROR_INIT;
	size_t len = 0;
	int r;

	(void)str_format(path, "%s/" PAUSE_FILE, s->host->state_dir);
	r = file_read(AT_FDCWD, path, PAUSE_FILE_MAX, &data, &len, &e);
	if (r == -ENOENT)
		return;
	if (r < 0) {
		log_warning("what was paused is not known: %s", e.text);
		return;
	}
	for (char *line = strtok_r(data, "\n", &save_at); line; line = strtok_r(NULL, "\n", &save_at))
		take_line(s, line);
}
