/*
 * One entry of runners.yaml: its tick asks GitHub for jobs and for the state of its running runners, and
 * leases what is missing. Trouble is answered with less: a refusal stops the entry, a fault makes it wait,
 * leases that get no job make it wait longer and longer, so that nothing here can mint without end.
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "base/table.h"
#include "linux/log.h"
#include "manager/service.h"
#include <errno.h>

#define FAULT_WAIT_MIN_MS 5000
#define FAULT_WAIT_MAX_MS (5 * 60 * 1000)
#define REFUSED_WAIT_MIN_MS 30000
#define REFUSED_WAIT_MAX_MS (15 * 60 * 1000)
/* So many leases in a row may get no job before waiting starts: jobs are cancelled, runners vanish. */
#define JOBLESS_FREE 2
#define JOBLESS_ALARM 5
#define JOBLESS_WAIT_MIN_MS 15000
#define JOBLESS_WAIT_MAX_MS (15 * 60 * 1000)
#define TTL_MARGIN_MS 60000

static const char *const state_names[] = {
	[ENTRY_CHECKING] = "checking",
	[ENTRY_SERVING] = "serving",
	[ENTRY_PUBLIC] = "public, not served",
	[ENTRY_REFUSED] = "refused by GitHub",
};
_Static_assert(ARRAY_SIZE(state_names) == ENTRY_STATE_COUNT, "table and enum differ");

const char *entry_state_to_string(enum entry_state v)
{
	return (unsigned)v < ENTRY_STATE_COUNT ? state_names[v] : NULL;
}

void entry_init(struct work_entry *entry, struct service *s, const struct runners_entry *conf)
{
	*entry = (struct work_entry){
		.service = s,
		.conf = conf,
		.poll_backoff = {.min_ms = FAULT_WAIT_MIN_MS, .max_ms = FAULT_WAIT_MAX_MS},
		.mint_backoff = {.min_ms = FAULT_WAIT_MIN_MS, .max_ms = FAULT_WAIT_MAX_MS},
		.refused_backoff = {.min_ms = REFUSED_WAIT_MIN_MS, .max_ms = REFUSED_WAIT_MAX_MS},
		.jobless_backoff = {.min_ms = JOBLESS_WAIT_MIN_MS, .max_ms = JOBLESS_WAIT_MAX_MS},
	};
}

uint64_t entry_lease_ttl_ms(const struct work_entry *entry)
{
	const struct runners_entry *c = entry->conf;

	/* The keeper ends a lease at its expiry and cannot know when the job began. */
	return c->start_timeout_ms + c->idle_timeout_ms + c->job_timeout_ms + TTL_MARGIN_MS;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* One line per change, loud when an admin has to act. */
static void entry_set(struct work_entry *entry, enum entry_state to, const char *why)
{
	enum entry_state from = entry->state;
	uint64_t now = service_now_ms();

	entry->state = to;
	entry->missing = 0;
	if (to == ENTRY_PUBLIC)
		entry->look_ms = now + 2 * entry->service->config->poll_interval_ms;
	else if (to == ENTRY_REFUSED)
		entry->look_ms = now + backoff_next(&entry->refused_backoff);
	else
		entry->look_ms = 0;
	if (from == to)
		return;
	if (to == ENTRY_PUBLIC)
		log_error("%s: not served: the repository is not private, anybody could run anything here; "
			  "served again when it is private",
			entry->conf->repo);
	else if (to == ENTRY_REFUSED)
		log_error("%s: not served: %s", entry->conf->repo, why);
	else
		log_info("%s: served%s", entry->conf->repo, from == ENTRY_CHECKING ? "" : " again");
	service_settle(entry->service);
}

/* The faults that stop an entry. */
static bool refused(struct work_entry *entry, const struct github_reply *reply)
{
	switch ((enum github_fault)reply->fault) {
	case GITHUB_FAULT_PUBLIC:
		entry_set(entry, ENTRY_PUBLIC, "");
		return true;
	case GITHUB_FAULT_CREDENTIAL:
	case GITHUB_FAULT_PERMISSION:
	case GITHUB_FAULT_ABSENT:
	case GITHUB_FAULT_INVALID:
		entry_set(entry, ENTRY_REFUSED, reply->text);
		return true;
	case GITHUB_FAULT_NONE:
	case GITHUB_FAULT_LIMIT:
	case GITHUB_FAULT_CONFLICT:
	case GITHUB_FAULT_BUSY:
	case GITHUB_FAULT_SERVER:
	case GITHUB_FAULT_NETWORK:
	case GITHUB_FAULT_COUNT:
		break;
	}
	return false;
}

void entry_fault(struct work_entry *entry, const struct github_reply *reply)
{
	if (entry->orphans || refused(entry, reply))
		return;
	entry->missing = 0;
	entry->hold_ms = service_now_ms() + later(backoff_next(&entry->mint_backoff), reply->retry_after_ms);
}

static void poll_failed(struct work_entry *entry, const char *what, const struct github_reply *reply)
{
	uint64_t wait;

	if (refused(entry, reply))
		return;
	wait = later(backoff_next(&entry->poll_backoff), reply->retry_after_ms);
	entry->look_ms = service_now_ms() + wait;
	/* A limit is a normal thing and long; a fault is worth a line each time, its wait grows. */
	log_warning("%s: %s: %s; again in %llu s", entry->conf->repo, what, reply->text,
		(unsigned long long)(wait / 1000));
}

void entry_job_taken(struct work_entry *entry)
{
	entry->jobless = 0;
	backoff_reset(&entry->jobless_backoff);
	backoff_reset(&entry->refused_backoff);
}

void entry_lease_over(struct work_entry *entry, enum outcome outcome)
{
	uint64_t wait;

	if (outcome_had_job(outcome)) {
		entry_job_taken(entry);
		return;
	}
	/* Nothing ran there: what kept it from running has its own wait. */
	if (entry->orphans || outcome == OUTCOME_MINT_FAILED || outcome == OUTCOME_MINT_CONFLICT ||
		outcome == OUTCOME_NOT_DELIVERED)
		return;
	if (++entry->jobless <= JOBLESS_FREE)
		return;
	wait = backoff_next(&entry->jobless_backoff);
	entry->missing = 0;
	entry->hold_ms = later(entry->hold_ms, service_now_ms() + wait);
	log_full(entry->jobless >= JOBLESS_ALARM ? LOG_ERR : LOG_WARNING, NULL,
		"%s: %u leases in a row got no job (the last: %s); the next one in %llu s at the earliest%s",
		entry->conf->repo, entry->jobless, outcome_to_string(outcome),
		(unsigned long long)(wait / 1000),
		entry->jobless >= JOBLESS_ALARM
			? ". Look at the consoles of its VMs: the runner may be too old, "
			  "or the guest cannot reach GitHub"
			: "");
}

void entry_take(struct work_entry *entry)
{
	struct service *s = entry->service;
	uint64_t now = service_now_ms();

	if (s->stopping || entry->state != ENTRY_SERVING || !s->leases_known ||
		!keeper_link_is_up(s->keeper) || now < entry->hold_ms ||
		now - entry->wanted_ms > 2 * s->config->poll_interval_ms)
		return;
	/* Counted down before the work is entered: a full pool counts up again, and that must not go round
	 * here. */
	for (unsigned n = entry->missing; n > 0; n--) {
		struct work *w = service_work_new(s, entry);

		if (!w)
			return;
		entry->missing--;
		(void)str_copy(w->scope, entry->conf->repo);
		work_enter(s, w);
	}
}

static void count(const struct work_entry *entry, unsigned *ret_held, unsigned *ret_unfilled)
{
	*ret_held = *ret_unfilled = 0;
	for (const struct work *w = entry->service->works; w; w = w->next) {
		if (w->entry != entry)
			continue;
		*ret_held += work_is_open(w->state);
		*ret_unfilled += work_is_unfilled(w);
	}
}

static void on_jobs(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct work_entry *entry = userdata;
	struct service *s = entry->service;
	CLEANUP(jobs_freep) struct jobs *jobs = NULL;
	struct error e = ERROR_INIT;
	unsigned held, unfilled;

	entry->polling = false;
	if (a->reply->code < 0) {
		poll_failed(entry, "the queue cannot be read", a->reply);
		work_watch(s, entry, NULL);
		return;
	}
	if (jobs_parse(a->document ? a->document : "", a->document_len, &jobs, &e) < 0) {
		log_warning("%s: %s", entry->conf->repo, e.text);
		work_watch(s, entry, NULL);
		return;
	}
	backoff_reset(&entry->poll_backoff);
	/* First: a lease that has its job now does not answer for another one. */
	work_watch(s, entry, jobs);
	count(entry, &held, &unfilled);
	entry->wanted = jobs_wanted(jobs, entry->conf);
	entry->wanted_ms = service_now_ms();
	entry->missing = demand_missing(entry->wanted, unfilled, held, entry->conf->max);
	entry_take(entry);
	service_settle(s);
}

static void on_repository(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct work_entry *entry = userdata;

	entry->polling = false;
	if (a->reply->code < 0) {
		poll_failed(entry, "the repository cannot be read", a->reply);
	} else if (!a->reply->is_private) {
		entry_set(entry, ENTRY_PUBLIC, "");
	} else {
		backoff_reset(&entry->poll_backoff);
		entry_set(entry, ENTRY_SERVING, "");
		entry_poll_in(entry, 0);
	}
}

static int ask(struct work_entry *entry, enum github_type type, github_cb cb)
{
	struct github_request r = {0};
	struct error e = ERROR_INIT;
	int rc;

	(void)str_copy(r.scope, entry->conf->repo);
	rc = github_link_ask(entry->service->github, type, &r, GITHUB_RANK_LIVE, cb, entry, 0, &e);
	if (rc < 0)
		log_warning("%s: %s", entry->conf->repo, e.text);
	entry->polling = rc == 0;
	return rc;
}

static int on_tick(sd_event_source *source, uint64_t us, void *userdata)
{
	struct work_entry *entry = userdata;
	struct service *s = entry->service;

	if (s->stopping)
		return 0;
	entry_poll_in(entry, s->config->poll_interval_ms);
	if (entry->polling)
		return 0;
	if (!entry->orphans && service_now_ms() >= entry->look_ms) {
		if (entry->state == ENTRY_SERVING && ask(entry, GITHUB_JOBS, on_jobs) == 0)
			return 0; /* its answer goes on from here */
		if (entry->state != ENTRY_SERVING)
			(void)ask(entry, GITHUB_REPOSITORY, on_repository);
	}
	work_watch(s, entry, NULL);
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
