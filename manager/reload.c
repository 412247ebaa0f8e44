/*
 * SIGHUP and `runners reload`: the configuration file is read into a new object, entries are built for it, and only when all
 * of that has worked do they take the old ones' place. An entry that stays keeps what it has learnt; the leases of one that has
 * gone are watched to their end as nobody's, those without a job are taken back.
 */
#include "base/str.h"
#include "linux/log.h"
#include "manager/metrics.h"
#include "manager/service.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <systemd/sd-daemon.h>

static struct work_entry *old_entry(struct service *s, const char *scope)
{
	for (unsigned i = 0; i + 1 < s->n_entries; i++)
		if (strcasecmp(s->entries[i].conf->scope, scope) == 0)
			return &s->entries[i];
	return NULL;
}

/* Works point at entries; they follow to the one of the same scope, or to the orphans'. */
static void move_works(struct service *s, struct work_entry *entries, unsigned n)
{
	for (struct work *w = s->works; w; w = w->next) {
		struct work_entry *to = &entries[n - 1];

		for (unsigned i = 0; i + 1 < n; i++)
			if (strcasecmp(entries[i].conf->scope, w->entry->orphans ? w->scope : w->entry->conf->scope) == 0)
				to = &entries[i];
		w->entry = to;
	}
}

static void swap(struct service *s, struct runners_config *config, struct work_entry *entries, unsigned n)
{
	struct work_entry *old = s->entries;
	unsigned n_old = s->n_entries;

	for (unsigned i = 0; i + 1 < n; i++) {
		struct work_entry *before = old_entry(s, config->entries[i].scope);

		if (!before)
			continue;
		entries[i] = *before;
		entries[i].conf = &config->entries[i];
		entries[i].timer = NULL;
		/* An admin who reloads has changed something: what was refused is looked at at once. */
		entry_resume(&entries[i]);
	}
	move_works(s, entries, n);
	for (unsigned i = 0; i < n_old; i++)
		(void)sd_event_source_disable_unref(old[i].timer);
	s->entries = entries;
	s->n_entries = n;
	(void)runners_config_free(s->config);
	s->config = config;
	free(old);
}

int service_entries_new(struct service *s, const struct runners_config *config, struct work_entry **ret, struct error *e)
{
	struct work_entry *entries = calloc(config->n_entries + 1, sizeof(entries[0]));

	if (!entries)
		return error_errno(e, ENOMEM, "cannot take a configuration");
	for (unsigned i = 0; i < config->n_entries; i++) {
		entry_init(&entries[i], s, &config->entries[i]);
		entries[i].pause = s->pause_all;
	}
	entry_init(&entries[config->n_entries], s, &s->orphan_conf);
	entries[config->n_entries].orphans = true;
	*ret = entries;
	return 0;
}

int service_reload(struct service *s, struct error *e)
{
	struct work_entry *entries = NULL;
	struct runners_config *config = NULL;
	int r = runners_config_load(s->config_path, &config, e);

	if (r == 0)
		r = service_entries_new(s, config, &entries, e);
	if (r < 0 || !entries) {
		(void)runners_config_free(config);
		return r;
	}
	swap(s, config, entries, config->n_entries + 1);
	log_info("%s: read again: %u %s", s->config_path, config->n_entries, config->n_entries == 1 ? "entry" : "entries");
	entry_drop_idle(&s->entries[s->n_entries - 1]);
	for (unsigned i = 0; i < s->n_entries; i++)
		entry_poll_in(&s->entries[i], 0);
	service_ask_pools(s);
	service_forecast(s);
	service_settle(s);
	return 0;
}

static int on_hup(sd_event_source *source, const struct signalfd_siginfo *si, void *userdata)
{
	struct service *s = userdata;
	struct error e = ERROR_INIT;

	if (s->stopping)
		return 0;
	(void)sd_notify(0, "RELOADING=1");
	if (service_reload(s, &e) < 0)
		log_error("not read again, the old configuration stays: %s", e.text);
	(void)sd_notify(0, "READY=1");
	return 0;
}

int service_watch_hup(struct service *s, struct error *e)
{
	sigset_t set;
	int r;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return error_errno(e, errno, "cannot block SIGHUP");
	r = sd_event_add_signal(s->ev, NULL, SIGHUP, on_hup, s);
	return r < 0 ? error_errno(e, -r, "cannot watch for SIGHUP") : 0;
}
