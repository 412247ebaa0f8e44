/*
 * One lease's way through its states. A state's work is started when it is entered (delivery.c, watch.c, closing.c)
 * and its answer is fed back as an event; an answer that comes when the state has changed is used only for what it
 * says about the world (a registration that exists after all), never to change the state.
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/log.h"
#include "manager/metrics.h"
#include "manager/service.h"
#include <errno.h>
#include <string.h>

#define OUTCOME_PATIENCE_MS 60000

void work_log(int level, const struct work *w, const char *format, ...)
{
	char text[ERROR_TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	log_vm(level, w->vm, w->lease, "%s", text);
}

int work_ask_keeper(struct service *s, struct work *w, struct keeper_request *r, int fd, keeper_cb cb)
{
	struct error e = ERROR_INIT;
	int rc;

	(void)str_copy(r->lease, w->lease);
	rc = keeper_link_ask(s->keeper, r, fd, cb, s, w->number, &e);
	if (rc < 0)
		work_log(LOG_WARNING, w, "%s", e.text);
	return rc;
}

int work_ask_github(struct service *s, struct work *w, enum github_type type, github_cb cb)
{
	struct github_request r = {.runner_id = w->runner_id};
	struct error e = ERROR_INIT;
	int rc;

	(void)str_copy(r.scope, w->scope);
	(void)str_copy(r.runner_name, w->runner_name);
	(void)str_copy(r.group, w->entry->conf->group);
	if (type == GITHUB_MINT)
		runners_entry_labels(w->entry->conf, r.labels);
	rc = github_link_ask(s->github, type, &r, GITHUB_RANK_LIVE, cb, s, w->number, &e);
	if (rc < 0)
		work_log(LOG_WARNING, w, "%s", e.text);
	return rc;
}

static void enter_nothing(struct service *s, struct work *w)
{
	w->tries = 0;
}

static void (*const enter[WORK_STATE_COUNT])(struct service *s, struct work *w) = {
	[WORK_LEASING] = work_enter_leasing,
	[WORK_PLANNING] = work_enter_registering,
	[WORK_MINTING] = work_enter_minting,
	[WORK_RECORDING] = work_enter_registering,
	[WORK_DELIVERING] = work_enter_delivering,
	[WORK_WAITING] = enter_nothing,
	[WORK_IDLE] = work_enter_idle,
	[WORK_BUSY] = work_enter_busy,
	[WORK_DELETING] = work_enter_deleting,
	[WORK_RELEASING] = work_enter_releasing,
	[WORK_ASKING] = work_enter_asking,
	[WORK_NAMING] = work_enter_naming,
	[WORK_SPENT] = work_enter_spent,
	[WORK_LOOKING] = work_enter_looking,
	[WORK_CLEARING] = work_enter_clearing,
	[WORK_FORGETTING] = work_enter_forgetting,
	[WORK_PAUSED] = work_enter_paused,
	[WORK_DONE] = enter_nothing,
};

void work_enter(struct service *s, struct work *w)
{
	enter[w->state](s, w);
	service_settle(s);
}

void work_feed(struct service *s, struct work *w, enum work_event event)
{
	enum work_state from = w->state;
	bool quiet;

	if (event == WORK_EV_STOP || event == WORK_EV_ENDED) {
		/* A mint that is still in our queue need not happen. */
		if (from == WORK_MINTING && github_link_cancel(s->github, w->number))
			w->deleted = true;
		if (event == WORK_EV_STOP && from < WORK_DELIVERING && w->outcome == OUTCOME_UNKNOWN)
			w->outcome = OUTCOME_NOT_DELIVERED;
		/* It ended before GitHub had answered, so what was expected of it is not known. */
		if (event == WORK_EV_ENDED && from == WORK_DELETING)
			w->outcome = OUTCOME_UNKNOWN;
	}
	if (!work_step(w, event, service_now_ms()))
		return;
	/* A full pool answers every poll in this way. */
	quiet = w->state == WORK_DONE && from == WORK_LEASING;
	work_log(quiet ? LOG_DEBUG : LOG_INFO, w, "%s: %s -> %s (%s)", w->scope, work_state_to_string(from),
		work_state_to_string(w->state), work_event_to_string(event));
	metrics_step(s->metrics, w, from);
	if (work_is_open(from) && !work_is_open(w->state)) {
		w->jit_fd = fd_close(w->jit_fd);
		w->patient_ms = service_now_ms() + OUTCOME_PATIENCE_MS;
		w->tries = 0;
		if (from != WORK_LEASING) /* no VM, nothing happened */
			entry_lease_ended(w->entry, w);
	}
	work_enter(s, w);
}

void work_report(struct service *s, struct work *w)
{
	work_log(LOG_INFO, w, "%s: outcome: %s%s%s", w->scope, outcome_to_string(w->outcome),
		w->job[0] ? ", job " : "", w->job);
	metrics_outcome(s->metrics, w);
	entry_lease_over(w->entry, w->outcome);
}
