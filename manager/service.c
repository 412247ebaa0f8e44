#include "manager/service.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "manager/alarm.h"
#include "manager/budget.h"
#include "manager/control.h"
#include "manager/logs.h"
#include "manager/metrics.h"
#include "manager/versions.h"
#include <errno.h>
#include <string.h>
#include <systemd/sd-daemon.h>

/* Far above what max allows, below what the keeper keeps of closed leases times its VMs. */
#define WORKS_MAX 8192
#define HOUSEKEEPING_FIRST_MS 2000
#define HOUSEKEEPING_MS 15000
#define PRUNE_MS (60 * 60 * 1000)
#define DAY_S 86400
#define EXPIRY_DAYS 14

uint64_t service_now_ms(void)
{
	return clock_boot_us() / 1000;
}

uint64_t service_wall_us(struct service *s)
{
	return steady_wall_us(&s->steady, clock_wall_us(), clock_boot_us());
}

struct work *service_work_find(struct service *s, uint64_t number)
{
	for (struct work *w = s->works; w; w = w->next)
		if (w->number == number)
			return w;
	return NULL;
}

struct work *service_work_new(struct service *s, struct work_entry *entry)
{
	struct work *w, **end = &s->works;
	unsigned n = 0;

	while (*end) {
		end = &(*end)->next;
		n++;
	}
	w = n < WORKS_MAX ? calloc(1, sizeof(*w)) : NULL;
	if (!w) {
		log_error("no room for another lease");
		return NULL;
	}
	w->number = ++s->next_number; /* 0 is nobody's */
	w->entry = entry;
	w->jit_fd = -1;
	w->state = WORK_LEASING;
	w->since_ms = w->begun_ms = service_now_ms();
	*end = w;
	return w;
}

static void work_free(struct work *w)
{
	(void)fd_close(w->jit_fd);
	free(w);
}

/* What goes on without us. */
static void tell_left(const struct service *s)
{
	unsigned jobs = 0, runners = 0;

	for (const struct work *w = s->works; w; w = w->next) {
		jobs += w->state == WORK_BUSY;
		runners += work_is_watched(w->state) && w->state != WORK_BUSY;
	}
	if (runners)
		log_info("%u %s running and %u %s without a job yet go on in their VMs; the next start finds them", jobs,
			jobs == 1 ? "job" : "jobs", runners, runners == 1 ? "runner" : "runners");
	else if (jobs)
		log_info("%u running %s on in %s; the next start finds %s", jobs, jobs == 1 ? "job goes" : "jobs go",
			jobs == 1 ? "its VM" : "their VMs", jobs == 1 ? "it" : "them");
	else
		log_info("no job is left running");
}

/* What must be finished before the service may end: nothing that is ours alone may be left half done. */
static bool holds_up_stop(const struct work *w)
{
	if (w->state == WORK_DELETING || w->state == WORK_RELEASING)
		return w->due_ms == 0; /* an answer is on its way */
	return !work_is_watched(w->state) && w->state != WORK_PAUSED && w->state != WORK_SPENT && w->state != WORK_DONE;
}

static void tell_status(struct service *s)
{
	unsigned open = 0, busy = 0, closing = 0, wanted = 0;
	const char *first = entry_state_to_string(s->entries[0].state);
	char text[sizeof(s->status)];

	for (const struct work *w = s->works; w; w = w->next) {
		open += work_is_open(w->state);
		closing += !work_is_open(w->state);
		busy += w->state == WORK_BUSY;
	}
	for (unsigned i = 0; i < s->config->n_entries; i++)
		wanted += s->entries[i].wanted;
	if (str_format(text, "%s%s: %s; %u queued, %u leases, %u busy, %u to tidy up%s",
		    s->config->entries[0].scope, s->config->n_entries > 1 ? " and others" : "", first, wanted,
		    open, busy, closing, keeper_link_is_up(s->keeper) ? "" : "; no keeper") < 0 ||
		strcmp(text, s->status) == 0)
		return;
	(void)str_copy(s->status, text);
	(void)sd_notifyf(0, "STATUS=%s", text);
}

static int on_due(sd_event_source *source, uint64_t us, void *userdata)
{
	struct service *s = userdata;
	uint64_t now = service_now_ms();

	for (struct work *w = s->works; w; w = w->next)
		if (w->due_ms && w->due_ms <= now)
			work_feed(s, w, WORK_EV_DUE);
	service_settle(s);
	return 0;
}

static int on_settle(sd_event_source *source, void *userdata)
{
	struct service *s = userdata;
	uint64_t now = service_now_ms(), due = UINT64_MAX;
	struct error e = ERROR_INIT;
	bool held_up = false;

	for (struct work **at = &s->works; *at;) {
		struct work *w = *at;

		if (w->state == WORK_DONE) {
			*at = w->next;
			work_free(w);
			continue;
		}
		if (w->due_ms && w->due_ms < due)
			due = w->due_ms;
		held_up |= holds_up_stop(w);
		at = &w->next;
	}
	if (due == UINT64_MAX)
		s->due = sd_event_source_disable_unref(s->due);
	else if (loop_timer(s->ev, &s->due, due > now ? due - now : 0, on_due, s, &e) < 0)
		log_error("%s", e.text);
	tell_status(s);
	if (s->stopping && !held_up)
		(void)sd_event_exit(s->ev, 0);
	return 0;
}

void service_settle(struct service *s)
{
	(void)sd_event_source_set_enabled(s->settle, SD_EVENT_ONESHOT);
}

static int on_stop_grace(sd_event_source *source, uint64_t us, void *userdata)
{
	log_warning("ending with things still to tidy up; the next start goes on with them");
	(void)sd_event_exit(sd_event_source_get_event(source), 0);
	return 0;
}

static void on_stop(void *userdata)
{
	struct service *s = userdata;
	struct error e = ERROR_INIT;

	log_info("stopping: no new work, running jobs are left alone");
	(void)sd_notify(0, "STOPPING=1");
	s->stopping = true;
	for (struct work *w = s->works; w; w = w->next)
		work_feed(s, w, WORK_EV_STOP);
	if (loop_timer(s->ev, &s->stop, SERVICE_STOP_GRACE_MS, on_stop_grace, s, &e) < 0)
		(void)sd_event_exit(s->ev, 0);
	service_settle(s);
}

static void on_keeper_up(void *userdata)
{
	struct service *s = userdata;

	log_info("connected to the keeper");
	s->leases_asked = false;
	service_ask_leases(s, 0);
	service_ask_pools(s);
	service_settle(s);
}

static void on_keeper_down(void *userdata, const char *why)
{
	struct service *s = userdata;

	log_warning("the keeper is gone: %s", why);
	/* Until it is known again which leases there are, none is added. */
	s->leases_known = false;
	service_settle(s);
}

static void on_keeper_event(void *userdata, const struct keeper_event *event)
{
	service_take_event(userdata, event);
}

static void on_github_child(void *userdata, int code, const char *text)
{
	if (code == 0)
		log_info("GitHub: %s", text);
	else
		log_error("GitHub cannot be asked: %s", text);
}

static const struct keeper_link_ops keeper_ops = {
	.up = on_keeper_up,
	.down = on_keeper_down,
	.event = on_keeper_event,
};

/* Once at the start and after a reload: can it fit what GitHub allows? */
void service_forecast(struct service *s)
{
	struct budget *b = github_link_budget(s->github);
	unsigned repositories = 0, jobs = 0;
	uint64_t need;

	runners_config_size(s->config, &repositories, &jobs);
	need = budget_forecast(s->config->poll_interval_ms, repositories, jobs);
	if (b->limit && need > b->limit)
		log_warning("in a busy hour this configuration may need %llu calls, GitHub allows %u: a longer poll_interval, an App, "
			    "or registered: N need fewer",
			(unsigned long long)need, b->limit);
}

/* Loud from two weeks before on, once a day. */
static void tell_expiry(struct service *s)
{
	uint64_t expires = github_link_budget(s->github)->expires, now = service_wall_us(s) / 1000000, days;

	if (!expires || expires > now + EXPIRY_DAYS * DAY_S) {
		s->expiry_told = 0;
		return;
	}
	days = expires > now ? (expires - now) / DAY_S + 1 : 1;
	if (s->expiry_told == days)
		return;
	s->expiry_told = days;
	alarm_raise(s, ALARM_CREDENTIAL, "GitHub",
		expires > now ? "the credential ends within %llu %s; put a new one in with: boxery-host runners token"
			      : "the credential has ended (%llu %s); put a new one in with: boxery-host runners token",
		(unsigned long long)days, days == 1 ? "day" : "days");
}

static void tell_budget(struct service *s)
{
	struct budget *b = github_link_budget(s->github);
	uint64_t short_by = budget_short_by_s(b, service_now_ms());

	if (short_by && !s->budget_told && (uint64_t)b->remaining * 2 < b->limit)
		alarm_raise(s, ALARM_BUDGET, "GitHub",
			"at this pace the rate limit is reached %llu s before it is whole again (%u of %u calls left)",
			(unsigned long long)short_by, b->remaining, b->limit);
	s->budget_told = short_by != 0;
}

static int on_housekeeping(sd_event_source *source, uint64_t us, void *userdata)
{
	struct service *s = userdata;
	struct error e = ERROR_INIT;
	uint64_t now = service_now_ms();

	if (s->config->metrics_file[0] && metrics_write(s->metrics, s, s->config->metrics_file, &e) < 0)
		log_warning("%s", e.text);
	tell_expiry(s);
	tell_budget(s);
	if (!s->pruned_ms || now - s->pruned_ms >= PRUNE_MS) {
		logs_prune(s->host, service_wall_us(s), s->config->log_keep_ms);
		s->pruned_ms = now;
	}
	if (!s->stopping)
		(void)loop_timer(s->ev, &s->housekeeping, HOUSEKEEPING_MS, on_housekeeping, s, NULL);
	return 0;
}

int service_new(const struct hostconf *host, const char *config_path, struct runners_config *config,
	const char *const *keeper_argv, struct service **ret, struct error *e)
{
	CLEANUP(service_freep) struct service *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_errno(e, ENOMEM, "cannot start");
	s->host = host;
	s->config_path = config_path;
	s->began_ms = service_now_ms();
	runners_entry_defaults(&s->orphan_conf);
	(void)str_copy(s->orphan_conf.scope, "(no entry)");
	r = service_entries_new(s, config, &s->entries, e);
	if (r < 0)
		return r;
	s->n_entries = config->n_entries + 1;
	r = loop_new(&s->ev, on_stop, s, e);
	if (r < 0)
		return r;
	r = sd_event_add_defer(s->ev, &s->settle, on_settle, s);
	if (r == 0)
		r = sd_event_source_set_enabled(s->settle, SD_EVENT_OFF);
	if (r == 0)
		r = sd_event_set_watchdog(s->ev, true);
	if (r < 0)
		return error_errno(e, -r, "cannot start");
	r = keeper_link_new(s->ev, host, &keeper_ops, s, keeper_argv, &s->keeper, e);
	if (r == 0)
		r = github_link_new(s->ev, on_github_child, s, &s->github, e);
	if (r == 0)
		r = alarms_new(s, &s->alarms, e);
	if (r == 0)
		r = metrics_new(&s->metrics, e);
	if (r == 0)
		r = versions_new(s, &s->versions, e);
	if (r == 0)
		r = control_new(s, host->runtime_dir, &s->control, e);
	if (r == 0)
		r = service_watch_hup(s, e);
	if (r < 0)
		return r;
	s->config = config;
	*ret = TAKE_PTR(s);
	return 0;
}

struct service *service_free(struct service *s)
{
	if (!s)
		return NULL;
	(void)keeper_link_free(s->keeper);
	(void)github_link_free(s->github);
	while (s->works) {
		struct work *w = s->works;

		s->works = w->next;
		work_free(w);
	}
	for (unsigned i = 0; i < s->n_entries; i++)
		(void)sd_event_source_disable_unref(s->entries[i].timer);
	free(s->entries);
	(void)control_free(s->control);
	(void)alarms_free(s->alarms);
	(void)metrics_free(s->metrics);
	(void)versions_free(s->versions);
	(void)sd_event_source_disable_unref(s->housekeeping);
	(void)sd_event_source_disable_unref(s->settle);
	(void)sd_event_source_disable_unref(s->due);
	(void)sd_event_source_disable_unref(s->stop);
	(void)sd_event_source_disable_unref(s->leases);
	(void)runners_config_free(s->config);
	(void)sd_event_unref(s->ev);
	free(s);
	return NULL;
}

int service_run(struct service *s, struct error *e)
{
	int r = keeper_link_start(s->keeper, e);

	if (r < 0)
		return r;
	service_pause_load(s);
	for (unsigned i = 0; i < s->n_entries; i++)
		entry_poll_in(&s->entries[i], 0);
	if (loop_timer(s->ev, &s->housekeeping, HOUSEKEEPING_FIRST_MS, on_housekeeping, s, e) < 0 ||
		versions_start(s->versions, e) < 0)
		return -EIO;
	(void)sd_notify(0, "READY=1");
	r = sd_event_loop(s->ev);
	tell_left(s);
	return r < 0 ? error_errno(e, -r, "the event loop failed") : r;
}
