/*
 * One entry of runners.yaml: its tick asks GitHub for jobs and for the state of its running runners, and
 * leases what is missing. Trouble is answered with less, so that nothing here can mint without end:
 *
 * - a refusal by GitHub stops the entry until GitHub, asked more and more slowly, serves the repository again
 * - a mint that fails in any way, or whose name is taken, makes it wait longer and longer, until one succeeds
 * - every other lease that ends counts as one without a job until GitHub says that a job ended on it: two in a row are
 *   free, then it waits longer and longer. It counts from its end on, not from when its outcome is known, because
 *   that may take a minute or, when GitHub cannot be asked, for ever
 * - while either count is above what is free, leases are taken one at a time
 *
 * The counts are this process's: a service that is killed again and again is its unit's to slow down.
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "base/table.h"
#include "linux/log.h"
#include "manager/service.h"
#include <errno.h>
#include <string.h>

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
		.mint_hold.backoff = {.min_ms = FAULT_WAIT_MIN_MS, .max_ms = FAULT_WAIT_MAX_MS},
		.refused_backoff = {.min_ms = REFUSED_WAIT_MIN_MS, .max_ms = REFUSED_WAIT_MAX_MS},
		.jobless_hold.backoff = {.min_ms = JOBLESS_WAIT_MIN_MS, .max_ms = JOBLESS_WAIT_MAX_MS},
	};
}

uint64_t entry_lease_ttl_ms(const struct work_entry *entry)
{
	const struct runners_entry *c = entry->conf;

	/* A job may begin late, and the service may be away then: only for a job that it sees is this made less. */
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

static void hold_grow(struct hold *h, uint64_t begun_ms)
{
	uint64_t now = service_now_ms();

	if (begun_ms < h->noticed_ms)
		return;
	h->noticed_ms = now;
	h->until_ms = later(h->until_ms, now + backoff_next(&h->backoff));
}

static void hold_end(struct hold *h)
{
	backoff_reset(&h->backoff);
	h->until_ms = 0;
}

static unsigned seconds_left(const struct hold *h)
{
	uint64_t now = service_now_ms();

	return h->until_ms > now ? (unsigned)((h->until_ms - now + 999) / 1000) : 0;
}

void entry_fault(struct work_entry *entry, const struct work *w, const struct github_reply *reply)
{
	if (entry->orphans)
		return;
	hold_grow(&entry->mint_hold, w->begun_ms);
	entry->mint_hold.until_ms = later(entry->mint_hold.until_ms, service_now_ms() + reply->retry_after_ms);
	(void)refused(entry, reply);
}

void entry_minted(struct work_entry *entry)
{
	hold_end(&entry->mint_hold);
	backoff_reset(&entry->refused_backoff);
}

void entry_trouble(struct work_entry *entry, const struct work *w, const char *what, const char *why)
{
	char text[ERROR_TEXT_MAX];
	bool again;

	if (str_format(text, "%s: %s", what, why) < 0)
		(void)str_copy(text, what);
	again = strcmp(text, entry->trouble) == 0;
	(void)str_copy(entry->trouble, text);
	work_log(again ? LOG_DEBUG : LOG_WARNING, w, "%s: %s", w->scope, text);
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

void entry_job_seen(struct work_entry *entry)
{
	/* The next one may be tried; it is as much of a trial as this one until a job has ended well or badly. */
	entry->jobless_hold.until_ms = 0;
	backoff_reset(&entry->refused_backoff);
}

void entry_lease_ended(struct work_entry *entry, const struct work *w)
{
	if (entry->orphans || entry->service->stopping || w->outcome == OUTCOME_MINT_FAILED ||
		w->outcome == OUTCOME_MINT_CONFLICT)
		return;
	if (++entry->jobless <= JOBLESS_FREE)
		return;
	hold_grow(&entry->jobless_hold, w->begun_ms);
	if (w->outcome == OUTCOME_UNKNOWN && entry->jobless >= JOBLESS_ALARM && seconds_left(&entry->jobless_hold))
		log_warning("%s: %u leases in a row have ended, and GitHub has not said that a job ended on one of them; "
			    "the next one in %u s at the earliest",
			entry->conf->repo, entry->jobless, seconds_left(&entry->jobless_hold));
}

void entry_lease_over(struct work_entry *entry, enum outcome outcome)
{
	bool alarm = entry->jobless >= JOBLESS_ALARM;
	const char *hint = "", *trouble = "";

	if (outcome_had_job(outcome)) {
		entry->jobless = 0;
		entry->trouble[0] = '\0';
		hold_end(&entry->jobless_hold);
		backoff_reset(&entry->refused_backoff);
		return;
	}
	if (entry->orphans || entry->service->stopping || outcome == OUTCOME_MINT_FAILED ||
		outcome == OUTCOME_MINT_CONFLICT || entry->jobless <= JOBLESS_FREE)
		return;
	if (alarm && (outcome == OUTCOME_DELIVERY_FAILED || outcome == OUTCOME_NOT_DELIVERED)) {
		hint = ". The last trouble: ";
		trouble = entry->trouble;
	} else if (alarm) {
		hint = ". Look at the consoles of its VMs: the runner may be too old, or the guest cannot reach GitHub";
	}
	log_full(alarm ? LOG_ERR : LOG_WARNING, NULL,
		"%s: %u leases in a row got no job (the last: %s); the next one in %u s at the earliest%s%s",
		entry->conf->repo, entry->jobless, outcome_to_string(outcome), seconds_left(&entry->jobless_hold),
		hint, trouble);
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

/* How many may be taken now: what is missing, or one at a time after failures. */
static unsigned allowed(const struct work_entry *entry)
{
	unsigned held, unfilled;

	if (entry->missing == 0 || (entry->jobless <= JOBLESS_FREE && entry->mint_hold.backoff.n == 0))
		return entry->missing;
	count(entry, &held, &unfilled);
	return unfilled == 0 ? 1 : 0;
}

void entry_take(struct work_entry *entry)
{
	struct service *s = entry->service;
	uint64_t now = service_now_ms();

	if (s->stopping || entry->state != ENTRY_SERVING || !s->leases_known ||
		!keeper_link_is_up(s->keeper) || now < entry->mint_hold.until_ms ||
		now < entry->jobless_hold.until_ms ||
		now - entry->wanted_ms > 2 * s->config->poll_interval_ms)
		return;
	/* Counted down before the work is entered: a full pool counts up again, and that must not go round here. */
	for (unsigned n = allowed(entry); n > 0; n--) {
		struct work *w = service_work_new(s, entry);

		if (!w)
			return;
		entry->missing--;
		(void)str_copy(w->scope, entry->conf->repo);
		work_enter(s, w);
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
