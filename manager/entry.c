/*
 * One entry of runners.yaml: whether it is served, and how many leases it may take (poll.c says how many are wanted). Trouble is answered with less, so that nothing here can mint without end:
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
#include "manager/alarm.h"
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
	[ENTRY_STOPPED] = "stopped",
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
		.number = ++s->next_number,
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
void entry_set(struct work_entry *entry, enum entry_state to, const char *why)
{
	enum entry_state from = entry->state;
	uint64_t now = service_now_ms();

	entry->state = to;
	entry->missing = 0;
	if (from != to)
		entry->since_ms = now;
	(void)str_copy(entry->why, why);
	if (to == ENTRY_PUBLIC)
		entry->look_ms = now + 2 * entry->service->config->poll_interval_ms;
	else if (to == ENTRY_REFUSED)
		entry->look_ms = now + backoff_next(&entry->refused_backoff);
	else
		entry->look_ms = 0;
	if (from == to)
		return;
	if (to == ENTRY_PUBLIC)
		alarm_raise(entry->service, ALARM_PUBLIC, entry->conf->scope,
			scope_is_org(entry->conf->scope)
				? "not served: a public repository can use its runner group, anybody could run anything here; "
				  "served again when none can"
				: "not served: the repository is not private, anybody could run anything here; "
				  "served again when it is private");
	else if (to == ENTRY_REFUSED)
		alarm_raise(entry->service, ALARM_REFUSED, entry->conf->scope, "not served: %s", why);
	else if (to == ENTRY_STOPPED)
		alarm_raise(entry->service, ALARM_STOPPED, entry->conf->scope, "stopped: %s", why);
	else if (to == ENTRY_SERVING)
		log_info("%s: served%s", entry->conf->scope, from == ENTRY_CHECKING ? "" : " again");
	service_settle(entry->service);
}

bool entry_refused(struct work_entry *entry, const struct github_reply *reply)
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
	(void)entry_refused(entry, reply);
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

void entry_job_seen(struct work_entry *entry)
{
	/* The next one may be tried; it is as much of a trial as this one until a job has ended well or badly. */
	entry->jobless_hold.until_ms = 0;
	backoff_reset(&entry->refused_backoff);
}

void entry_lease_ended(struct work_entry *entry, const struct work *w)
{
	if (entry->orphans || entry->service->stopping || outcome_reaction(w->outcome) == REACTION_NONE)
		return;
	if (++entry->jobless <= JOBLESS_FREE)
		return;
	hold_grow(&entry->jobless_hold, w->begun_ms);
	if (w->outcome == OUTCOME_UNKNOWN && entry->jobless >= JOBLESS_ALARM && seconds_left(&entry->jobless_hold))
		log_warning("%s: %u leases in a row have ended, and GitHub has not said that a job ended on one of them; "
			    "the next one in %u s at the earliest",
			entry->conf->scope, entry->jobless, seconds_left(&entry->jobless_hold));
}

void entry_lease_over(struct work_entry *entry, enum outcome outcome)
{
	bool alarm = entry->jobless >= JOBLESS_ALARM;
	const char *hint = "", *trouble = "";

	entry->last_outcome = outcome;
	if (outcome_had_job(outcome)) {
		entry->jobless = 0;
		entry->trouble[0] = '\0';
		hold_end(&entry->jobless_hold);
		backoff_reset(&entry->refused_backoff);
		return;
	}
	if (entry->orphans || entry->service->stopping || outcome_reaction(outcome) == REACTION_NONE)
		return;
	if (outcome_reaction(outcome) == REACTION_STOP && entry->state != ENTRY_STOPPED) {
		entry_set(entry, ENTRY_STOPPED,
			"GitHub gives this version of the runner no jobs any more (version deprecated); put a newer one into "
			"the image (boxery-host build-base, pool patch), then: boxery-host runners resume");
		return;
	}
	if (entry->jobless <= JOBLESS_FREE)
		return;
	if (alarm && (outcome == OUTCOME_DELIVERY_FAILED || outcome == OUTCOME_NOT_DELIVERED)) {
		hint = ". The last trouble: ";
		trouble = entry->trouble;
	} else if (alarm) {
		hint = ". Look at the consoles of its VMs: the runner may be too old, or the guest cannot reach GitHub";
	}
	if (alarm)
		alarm_raise(entry->service, ALARM_JOBLESS, entry->conf->scope,
			"%u leases in a row got no job (the last: %s); the next one in %u s at the earliest%s%s", entry->jobless,
			outcome_to_string(outcome), seconds_left(&entry->jobless_hold), hint, trouble);
	else
		log_warning("%s: %u leases in a row got no job (the last: %s); the next one in %u s at the earliest",
			entry->conf->scope, entry->jobless, outcome_to_string(outcome), seconds_left(&entry->jobless_hold));
}

void entry_count(const struct work_entry *entry, unsigned *ret_held, unsigned *ret_unfilled)
{
	*ret_held = *ret_unfilled = 0;
	for (const struct work *w = entry->service->works; w; w = w->next) {
		if (w->entry != entry)
			continue;
		*ret_held += work_is_open(w->state);
		*ret_unfilled += work_is_unfilled(w);
	}
}

/* One whose end will say whether the next may be taken. Of those that are kept registered each that is online waits for a job
 * for as long as it takes, and says nothing by that. */
static bool on_trial(const struct work_entry *entry)
{
	for (const struct work *w = entry->service->works; w; w = w->next)
		if (w->entry == entry && work_is_unfilled(w) && !(entry->conf->registered && w->state == WORK_IDLE))
			return true;
	return false;
}

/* How many may be taken now: what is missing, or one at a time after failures. */
static unsigned allowed(const struct work_entry *entry)
{
	if (entry->missing == 0 || (entry->jobless <= JOBLESS_FREE && entry->mint_hold.backoff.n == 0))
		return entry->missing;
	return on_trial(entry) ? 0 : 1;
}

uint64_t entry_next_ms(const struct work_entry *entry)
{
	return later(entry->mint_hold.until_ms, entry->jobless_hold.until_ms);
}

void entry_resume(struct work_entry *entry)
{
	hold_end(&entry->mint_hold);
	hold_end(&entry->jobless_hold);
	backoff_reset(&entry->refused_backoff);
	entry->jobless = 0;
	entry->look_ms = 0;
	if (entry->state == ENTRY_STOPPED || entry->state == ENTRY_REFUSED)
		entry_set(entry, ENTRY_CHECKING, "");
}

void entry_drop_idle(struct work_entry *entry)
{
	struct service *s = entry->service;

	for (struct work *w = s->works, *next; w; w = next) {
		next = w->next;
		if (w->entry != entry)
			continue;
		if (w->state < WORK_DELIVERING)
			work_feed(s, w, WORK_EV_STOP);
		else if (w->state == WORK_WAITING || w->state == WORK_IDLE)
			work_feed(s, w, WORK_EV_OVERDUE); /* its registration first: a job that came just now keeps its VM */
	}
}

void entry_take(struct work_entry *entry)
{
	struct service *s = entry->service;
	uint64_t now = service_now_ms();

	if (s->stopping || entry->orphans || entry->state != ENTRY_SERVING || entry->pause != PAUSE_NONE ||
		!s->leases_known || !keeper_link_is_up(s->keeper) || now < entry_next_ms(entry) ||
		now - entry->wanted_ms > 2 * entry_interval_ms(entry))
		return;
	/* Counted down before the work is entered: a full pool counts up again, and that must not go round here. */
	for (unsigned n = allowed(entry); n > 0; n--) {
		struct work *w = service_work_new(s, entry);

		if (!w)
			return;
		entry->missing--;
		(void)str_copy(w->scope, entry->conf->scope);
		work_enter(s, w);
	}
}
