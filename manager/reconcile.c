/*
 * What the keeper says, compared with what is known here: at the start, after a lost connection, and now and
 * then in case an event was missed. The keeper is right about its leases; here is known what GitHub said
 * meanwhile.
 *
 * A lease nobody here knows is from an earlier life of this service. Delivered: its runner is watched as if
 * nothing had happened, so nothing is registered twice. Not delivered: its JIT config is lost with the
 * process that had it, so the VM goes back and the registration, if any, is found by its name. Closed, but
 * its registration is not known to be gone: tidied up.
 */
#include "base/str.h"
#include "linux/log.h"
#include "manager/logs.h"
#include "manager/metrics.h"
#include "manager/service.h"
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>

#define LEASES_INTERVAL_MS 60000
#define KEEPER_DELIVERY_FAILED "delivery-failed"
#define ADOPTED_SETTLE_MS 60000 /* a mint of our earlier life may still be under way */

struct row {
	char lease[LEASE_ID_MAX], vm[VM_NAME_MAX], scope[SCOPE_MAX], runner_name[RUNNER_NAME_MAX];
	char job[JOB_NAME_SHOWN_MAX], outcome[64], end_reason[KEEPER_TEXT_MAX];
	uint64_t runner_id, expires_in_ms;
	enum registration registration;
	enum vm_state state;
	bool held; /* open, and its VM still leased: not being reset */
};

static bool text_of(const json_t *row, const char *key, char *dst, size_t size)
{
	const char *s = json_string_value(json_object_get(row, key));

	return s && str_copy_n(dst, size, s) == 0;
}

static uint64_t number_of(const json_t *row, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(row, key));

	return v > 0 ? (uint64_t)v : 0;
}

static bool row_read(const json_t *j, struct row *ret)
{
	char registration[16], state[16];
	struct row r = {.runner_id = number_of(j, "runner_id"), .expires_in_ms = number_of(j, "expires_in_ms")};
	const char *job = json_string_value(json_object_get(j, "job"));

	if (!text_of(j, "lease", r.lease, sizeof(r.lease)) || !r.lease[0] ||
		!text_of(j, "vm", r.vm, sizeof(r.vm)) || !text_of(j, "scope", r.scope, sizeof(r.scope)) ||
		!text_of(j, "runner_name", r.runner_name, sizeof(r.runner_name)) ||
		!text_of(j, "outcome", r.outcome, sizeof(r.outcome)) ||
		!text_of(j, "end_reason", r.end_reason, sizeof(r.end_reason)) ||
		!text_of(j, "registration", registration, sizeof(registration)) ||
		registration_from_string(registration, &r.registration) < 0)
		return false;
	str_show_n(r.job, sizeof(r.job), job ? job : "", job ? strlen(job) : 0);
	if (json_is_true(json_object_get(j, "open"))) {
		if (!text_of(j, "state", state, sizeof(state)) || state_from_string(state, &r.state) < 0)
			return false;
		r.held = state_has_lease(r.state);
	}
	*ret = r;
	return true;
}

static struct work *work_of_lease(struct service *s, const char *lease)
{
	for (struct work *w = s->works; w; w = w->next)
		if (w->lease[0] && strcmp(w->lease, lease) == 0)
			return w;
	return NULL;
}

static struct work_entry *entry_of_scope(struct service *s, const char *scope)
{
	for (unsigned i = 0; i < s->config->n_entries; i++)
		if (strcasecmp(s->entries[i].conf->scope, scope) == 0)
			return &s->entries[i];
	return &s->entries[s->config->n_entries];
}

/* An end_reason begins with the happening. */
static enum vm_happening cause_of(const char *end_reason)
{
	size_t len = strcspn(end_reason, ":");
	const char *word;

	for (int i = 0; i < HAPPENING_COUNT; i++) {
		word = happening_to_string((enum vm_happening)i);
		if (strlen(word) == len && strncmp(word, end_reason, len) == 0)
			return (enum vm_happening)i;
	}
	return HAPPENING_DOUBT;
}

static bool end_is_clean(enum vm_happening cause, const char *text)
{
	return cause == HAPPENING_STOPPED && strstr(text, "shutdown") != NULL;
}

/* The keeper is taking the VM back, or has. */
static void lease_ended(struct service *s, struct work *w, enum vm_happening cause, const char *text)
{
	w->cause = cause;
	w->clean_end = end_is_clean(cause, text);
	w->hint = logs_keep(s->host, w);
	/* The keeper itself gave the delivery up; its answer to DELIVER may come later or not at all. */
	if (w->state == WORK_DELIVERING && cause != HAPPENING_STOPPED && w->outcome == OUTCOME_UNKNOWN)
		w->outcome = OUTCOME_DELIVERY_FAILED;
	work_feed(s, w, WORK_EV_ENDED);
}

static void adopt(struct service *s, const struct row *r)
{
	uint64_t now = service_now_ms();
	struct work *w;

	if (!r->held && (r->registration == REGISTRATION_NONE || r->registration == REGISTRATION_GONE))
		return;
	w = service_work_new(s, entry_of_scope(s, r->scope));
	if (!w)
		return; /* the next list has it too */
	(void)str_copy(w->lease, r->lease);
	(void)str_copy(w->vm, r->vm);
	(void)str_copy(w->scope, r->scope);
	(void)str_copy(w->runner_name, r->runner_name);
	(void)str_copy(w->job, r->job);
	w->runner_id = r->runner_id;
	w->registration = r->registration;
	w->since_ms = now;
	w->settle_ms = now + ADOPTED_SETTLE_MS;
	w->took_job = w->job_told = w->queued_noted = r->state == STATE_BUSY || r->job[0];
	w->seen_online = w->took_job;
	w->limited = w->took_job && r->expires_in_ms <= w->entry->conf->job_timeout_ms;
	/* An id is recorded before anything is delivered; without one nothing was. */
	w->delivered = r->held ? r->state != STATE_LEASED : r->registration == REGISTRATION_MADE;
	if (!r->held) {
		w->state = WORK_PAUSED;
		w->cause = cause_of(r->end_reason);
		w->clean_end = end_is_clean(w->cause, r->end_reason);
		/* Words of ours are final. The keeper's own are what it could tell without GitHub. */
		if (outcome_from_string(r->outcome, &w->outcome) == 0)
			w->outcome_stored = true;
		else if (strcmp(r->outcome, KEEPER_DELIVERY_FAILED) == 0)
			w->outcome = OUTCOME_DELIVERY_FAILED;
		else if (!w->delivered)
			w->outcome = OUTCOME_NOT_DELIVERED;
	} else if (r->state == STATE_LEASED) {
		w->outcome = OUTCOME_NOT_DELIVERED;
		w->state = WORK_RELEASING;
	} else {
		w->state = r->state == STATE_BUSY ? WORK_BUSY : WORK_WAITING;
	}
	log_vm(LOG_INFO, w->vm, w->lease, "%s: found again: %s", w->scope,
		r->held ? work_state_to_string(w->state) : "to tidy up");
	if (r->held) {
		work_enter(s, w);
	} else {
		w->due_ms = now;
		service_settle(s);
	}
}

static void compare(struct service *s, struct work *w, const struct row *r)
{
	if (r->registration > w->registration)
		w->registration = r->registration;
	if (!r->held) {
		if (work_is_open(w->state))
			lease_ended(s, w, cause_of(r->end_reason), r->end_reason);
		return;
	}
	if (w->state == WORK_DELIVERING && !w->delivering) {
		if (r->state == STATE_LEASED) {
			w->delivered = false;
			w->outcome = OUTCOME_NOT_DELIVERED;
			work_feed(s, w, WORK_EV_DELIVER_FAILED);
		} else {
			work_feed(s, w, WORK_EV_DELIVERED);
		}
	}
}

static bool listed(const json_t *list, const char *lease)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *id = json_string_value(json_object_get(json_array_get(list, i), "lease"));

		if (id && strcmp(id, lease) == 0)
			return true;
	}
	return false;
}

static void take_leases(struct service *s, const json_t *list)
{
	bool leasing = false;
	struct row r;

	for (struct work *w = s->works; w; w = w->next) {
		leasing |= w->state == WORK_LEASING;
		/* Not even on the list: closed, and nothing of it is left at GitHub as far as the keeper knows. */
		if (w->lease[0] && work_is_open(w->state) && w->state != WORK_RELEASING &&
			!listed(list, w->lease))
			lease_ended(s, w, HAPPENING_DOUBT, "");
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *j = json_array_get(list, i);
		struct work *w;

		if (!row_read(j, &r)) {
			log_warning("the keeper's list of leases has a row that cannot be read");
			continue;
		}
		w = work_of_lease(s, r.lease);
		if (w)
			compare(s, w, &r);
		else if (!leasing || !r.held)
			adopt(s, &r); /* while one of ours is being leased, an unknown one may just be that */
	}
}

static void on_leases(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	json_t *root = NULL;
	const json_t *list = NULL;

	s->leases_asked = false;
	if (a->code == 0 && a->document) {
		root = json_loads(a->document, JSON_REJECT_DUPLICATES, NULL);
		list = json_object_get(root, "leases");
	}
	if (json_is_array(list)) {
		take_leases(s, list);
		s->leases_known = true;
	} else if (!a->lost) {
		log_warning("the keeper's leases cannot be read: %s",
			a->code < 0 ? a->text : "not the expected document");
	}
	json_decref(root);
	service_ask_leases(s, LEASES_INTERVAL_MS);
	service_settle(s);
}

static int on_leases_timer(sd_event_source *source, uint64_t us, void *userdata)
{
	struct service *s = userdata;
	struct keeper_request r;

	if (s->leases_asked || s->stopping)
		return 0;
	keeper_request_init(&r, KEEPER_LEASES);
	(void)str_copy(r.holder, HOLDER_SERVICE);
	/* Down: asked again as soon as it is up. */
	s->leases_asked = keeper_link_ask(s->keeper, &r, -1, on_leases, s, 0, NULL) == 0;
	return 0;
}

void service_ask_leases(struct service *s, uint64_t in_ms)
{
	struct error e = ERROR_INIT;

	if (loop_timer(s->ev, &s->leases, in_ms, on_leases_timer, s, &e) < 0)
		log_error("%s", e.text);
}

void service_take_event(struct service *s, const struct keeper_event *event)
{
	struct work *w;

	if (event->to == STATE_READY) {
		metrics_ready(s->metrics, event->name, service_now_ms());
		for (unsigned i = 0; i < s->config->n_entries; i++)
			entry_take(&s->entries[i]);
		return;
	}
	if (!event->lease[0] ||
		(event->to != STATE_RESETTING && event->to != STATE_BROKEN && event->to != STATE_KEPT))
		return;
	w = work_of_lease(s, event->lease);
	if (w && event->to == STATE_KEPT) {
		service_ask_leases(s, 0); /* why it ended is in the list; the event says that the VM is kept */
		return;
	}
	/* Our own RELEASE is answered as well, and the answer says more. */
	if (!w || !work_is_open(w->state) || (w->state == WORK_RELEASING && event->what == HAPPENING_RELEASE))
		return;
	lease_ended(s, w, (enum vm_happening)event->what, event->text);
}

static void on_list(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	json_t *root, *vms;

	if (a->code < 0 || !a->document)
		return;
	root = json_loads(a->document, JSON_REJECT_DUPLICATES, NULL);
	vms = json_object_get(root, "vms");
	for (unsigned i = 0; i < s->config->n_entries && json_is_array(vms); i++) {
		const struct runners_entry *conf = s->entries[i].conf;
		unsigned n = 0;

		for (size_t v = 0; v < json_array_size(vms); v++) {
			const char *pool = json_string_value(json_object_get(json_array_get(vms, v), "pool"));

			n += pool && strcmp(pool, conf->pool) == 0;
		}
		if (n == 0)
			log_error("%s: pool %s has no VM, so nothing can be served; add one with: "
				  "boxery-host pool add NAME",
				conf->scope, conf->pool);
		else if (n < conf->min_ready)
			log_warning("%s: pool %s has %u VMs, fewer than min_ready (%u)", conf->scope,
				conf->pool, n, conf->min_ready);
	}
	json_decref(root);
}

void service_ask_pools(struct service *s)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_LIST);
	(void)keeper_link_ask(s->keeper, &r, -1, on_list, s, 0, NULL);
}
