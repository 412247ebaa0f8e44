/*
 * From the wish for a VM to the moment in which its guest has a JIT config: lease, plan, mint, record, deliver. Each
 * step is committed by the keeper before the next one acts. Before anything was delivered every failure ends the
 * same way: the VM goes back, and the entry waits (entry.c).
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/log.h"
#include "manager/service.h"
#include <errno.h>

/* GitHub's own limit for a request is 10 s; after this a registration is there or never will be. */
#define MINT_SETTLE_MS 60000

static void on_lease(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (!w)
		return;
	if (a->code < 0) {
		/* None READY is the normal way to be full; the next READY or the next poll tries again. */
		if (a->code == -EAGAIN)
			w->entry->missing++;
		else if (!a->lost)
			log_warning("%s: no VM from pool %s: %s", w->scope, w->entry->conf->pool, a->text);
		work_feed(s, w, a->lost ? WORK_EV_KEEPER_ERROR : WORK_EV_REFUSED);
		return;
	}
	(void)str_copy(w->lease, a->reply->lease);
	(void)str_copy(w->vm, a->reply->name);
	(void)str_copy(w->runner_name, a->reply->runner_name);
	work_feed(s, w, WORK_EV_LEASED);
}

void work_enter_leasing(struct service *s, struct work *w)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_LEASE);
	(void)str_copy(r.pool, w->entry->conf->pool);
	(void)str_copy(r.holder, HOLDER_SERVICE);
	(void)str_copy(r.scope, w->scope);
	r.ttl_ms = entry_lease_ttl_ms(w->entry);
	if (work_ask_keeper(s, w, &r, -1, on_lease) < 0)
		work_feed(s, w, WORK_EV_KEEPER_ERROR);
}

/* Before anything was delivered every failure ends the same way. */
static void give_up(struct service *s, struct work *w, enum work_event event, enum outcome outcome)
{
	if (w->outcome == OUTCOME_UNKNOWN)
		w->outcome = outcome;
	w->jit_fd = fd_close(w->jit_fd);
	work_feed(s, w, event);
}

static void on_registered(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (!w || (w->state != WORK_PLANNING && w->state != WORK_RECORDING))
		return;
	if (a->code < 0) {
		entry_trouble(w->entry, w, "the keeper does not record the registration", a->text);
		give_up(s, w, WORK_EV_KEEPER_ERROR, OUTCOME_NOT_DELIVERED);
		return;
	}
	if (w->state == WORK_PLANNING) {
		w->registration = REGISTRATION_PLANNED;
		work_feed(s, w, WORK_EV_PLANNED);
	} else {
		w->registration = REGISTRATION_MADE;
		work_feed(s, w, WORK_EV_RECORDED);
	}
}

void work_enter_registering(struct service *s, struct work *w)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_REGISTER);
	r.registration = w->state == WORK_PLANNING ? REGISTRATION_PLANNED : REGISTRATION_MADE;
	r.runner_id = w->runner_id;
	if (s->stopping)
		give_up(s, w, WORK_EV_STOP, OUTCOME_NOT_DELIVERED);
	else if (work_ask_keeper(s, w, &r, -1, on_registered) < 0)
		give_up(s, w, WORK_EV_KEEPER_ERROR, OUTCOME_NOT_DELIVERED);
}

static void on_mint(void *userdata, uint64_t number, const struct github_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);
	const struct github_reply *reply = a->reply;
	bool conflict = reply->fault == GITHUB_FAULT_CONFLICT || reply->code == -EEXIST;

	if (!w)
		return; /* its name stays on the keeper's list, and is looked up from there */
	if (reply->code == 0)
		w->runner_id = reply->runner_id;
	else
		w->deleted = !conflict && !reply->may_exist;
	w->settle_ms = service_now_ms() + MINT_SETTLE_MS;
	if (w->state != WORK_MINTING)
		return;
	if (reply->code == 0 && *a->fd >= 0) {
		entry_minted(w->entry);
		w->jit_fd = TAKE_FD(*a->fd);
		work_feed(s, w, WORK_EV_MINTED);
		return;
	}
	entry_trouble(w->entry, w, "no registration", reply->text);
	entry_fault(w->entry, w, reply);
	give_up(s, w, WORK_EV_MINT_FAILED,
		conflict || reply->may_exist ? OUTCOME_MINT_CONFLICT : OUTCOME_MINT_FAILED);
}

void work_enter_minting(struct service *s, struct work *w)
{
	static const struct github_reply not_asked = {.code = -EAGAIN, .fault = GITHUB_FAULT_NETWORK};

	w->settle_ms = service_now_ms() + MINT_SETTLE_MS;
	if (work_ask_github(s, w, GITHUB_MINT, on_mint) < 0) {
		w->deleted = true;
		entry_fault(w->entry, w, &not_asked);
		give_up(s, w, WORK_EV_MINT_FAILED, OUTCOME_MINT_FAILED);
	}
}

static void on_delivered(void *userdata, uint64_t number, const struct keeper_link_answer *a)
{
	struct service *s = userdata;
	struct work *w = service_work_find(s, number);

	if (!w)
		return;
	w->delivering = false;
	if (w->state != WORK_DELIVERING)
		return;
	if (a->code == 0) {
		work_feed(s, w, WORK_EV_DELIVERED);
	} else if (a->lost) {
		/* Delivered or not: the keeper has committed it, and says so in its list. */
		entry_trouble(w->entry, w, "the keeper's answer about a delivery is lost", a->text);
		service_ask_leases(s, 0);
	} else {
		entry_trouble(w->entry, w, "not delivered", a->text);
		give_up(s, w, WORK_EV_DELIVER_FAILED, OUTCOME_DELIVERY_FAILED);
	}
}

void work_enter_delivering(struct service *s, struct work *w)
{
	struct keeper_request r;
	int rc;

	keeper_request_init(&r, KEEPER_DELIVER);
	if (s->stopping) {
		give_up(s, w, WORK_EV_DELIVER_FAILED, OUTCOME_NOT_DELIVERED);
		return;
	}
	rc = work_ask_keeper(s, w, &r, w->jit_fd, on_delivered);
	w->jit_fd = fd_close(w->jit_fd);
	if (rc < 0) {
		give_up(s, w, WORK_EV_DELIVER_FAILED, OUTCOME_NOT_DELIVERED);
		return;
	}
	w->delivered = w->delivering = true;
}
