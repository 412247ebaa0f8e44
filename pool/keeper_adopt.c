/*
 * Start-up: what an earlier keeper left, one state at a time. What was in flight is done over, what was promised to nobody
 * any more is reset, and what may run on is kept but believed only when libvirt has listed it (keeper_vm.confirmed).
 *
 *   STARTING, LEASED, ADDING,     INTERRUPTED. A LEASED life got nothing, so its holder loses nothing but the lease.
 *   MAINTENANCE without a lease
 *   LEASED, bound, awake, not     kept for its holder, who may be using it without anything having been delivered: see below
 *   a runner's, of this boot
 *   MAINTENANCE with one          an admin looks at it: goes on (one bound to a connection: see below); after a restart of the
 *                                 host with the usual time
 *   KEPT                          halted once more; after a restart of the host its time counts anew
 *   RESETTING                     the reset is done again
 *   READY, DELIVERED, BUSY        kept until the first listing judges them; of another boot of the host: reset now, no domain
 *                                 survives that
 *   DELIVERED without the         a delivery was cut off: nobody can say whether the guest has the secret. Reset.
 *   event "delivered", or
 *   with events that cannot
 *   be read
 *   PLAIN, COLD, BROKEN           as they are
 *
 * A VM that an admin wanted gone is removed, whatever its state: half of it may be.
 *
 * Expiries that passed while no keeper ran fire at once. A lease that was bound to a connection is kept for KEEPER_REJOIN_MS:
 * its holder may only have lost us, and a running job is worth more than the VM it occupies; the holder binds it to its new
 * connection (RENEW with BIND), and whoever has not done so by then is lost.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>

struct seen {
	const struct vm_row *row;
	bool committed, delivered;
};

static int see(void *userdata, const struct event_row *v)
{
	struct seen *seen = userdata;

	if (v->generation != seen->row->generation || !str_equal(v->lease, seen->row->lease))
		return 0;
	seen->committed |= str_equal(v->kind, happening_to_string(HAPPENING_DELIVER));
	seen->delivered |= str_equal(v->kind, "delivered");
	return 0;
}

/*
 * The row "delivered" is younger than the commit's. If that one is forgotten already (only so many are kept), it proves nothing.
 * Events that cannot be read prove nothing either, but they may be readable in a moment.
 */
void adopt_delivered(struct keeper_vm *v)
{
	const struct store_detail cut_off = {.step = "deliver", .reason = "the keeper ended in the middle of its delivery",
			.outcome = "delivery-failed"};
	struct seen seen = {.row = &v->row};
	struct error e = ERROR_INIT;

	if (store_event_each(v->k->store, NULL, v->row.lease, KEEPER_HISTORY_MAX, see, &seen, &e) < 0)
		keeper_unread(v, "the history of its delivery", &e);
	else if (seen.committed && !seen.delivered)
		(void)keeper_apply(v, v->row.generation, HAPPENING_DOUBT, &cut_off, &e);
	v->unadopted = e.code != 0 && v->row.state == STATE_DELIVERED;
}

/* Of another boot nobody can say what is left of its time. */
static void adopt_inspected(struct keeper_vm *v)
{
	struct lease_row lease;
	struct error e = ERROR_INIT;
	int r = store_lease_get(v->k->store, v->row.lease, &lease, &e);

	if (r == 0 && !str_equal(lease.boot_id, v->k->boot_id))
		r = store_lease_renew(v->k->store, lease.id, KEEPER_TTL_DEFAULT_MS, &e);
	if (r < 0)
		log_vm(LOG_ERR, v->row.name, v->row.lease, "%s", e.text);
	lease_watch_expiry(v);
}

static void adopt(struct keeper_vm *v)
{
	bool other_boot = !str_equal(v->row.since_boot_id, v->k->boot_id);

	lease_load(v);
	deadline_watch(v);
	if (v->row.removing && v->row.state != STATE_RESETTING && v->row.state != STATE_STARTING) {
		pool_remove_again(v);
		return;
	}
	switch (v->row.state) {
	case STATE_MAINTENANCE:
		if (v->row.lease[0])
			adopt_inspected(v);
		else
			keeper_note(v, HAPPENING_INTERRUPTED, "the keeper ended in the middle of it");
		break;
	case STATE_STARTING:
	case STATE_ADDING:
		keeper_note(v, HAPPENING_INTERRUPTED, "the keeper ended in the middle of it");
		break;
	case STATE_LEASED:
		if (deadline_is_orphan(v) && !other_boot) {
			lease_watch_expiry(v);
			break;
		}
		keeper_note(v, HAPPENING_INTERRUPTED, "the keeper ended before anything was delivered");
		break;
	case STATE_RESETTING:
		effect_reset(v);
		break;
	case STATE_KEPT:
		if (other_boot)
			keeper_note(v, HAPPENING_INTERRUPTED, "the host was restarted");
		else
			effect_halt(v);
		break;
	case STATE_READY:
		if (other_boot)
			keeper_note(v, HAPPENING_DOUBT, "the host was restarted");
		break;
	case STATE_DELIVERED:
	case STATE_BUSY:
		if (other_boot)
			keeper_note(v, HAPPENING_DOUBT, "the host was restarted");
		else if (v->row.state == STATE_DELIVERED)
			adopt_delivered(v);
		lease_watch_expiry(v);
		break;
	case STATE_PLAIN:
	case STATE_COLD:
	case STATE_BROKEN:
	case STATE_COUNT:
		break;
	}
}

struct names {
	char (*name)[VM_NAME_MAX];
	size_t n;
};

static int add_name(void *userdata, const struct vm_row *v)
{
	struct names *to = userdata;
	char(*p)[VM_NAME_MAX] = reallocarray(to->name, to->n + 1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	to->name = p;
	return str_copy(to->name[to->n++], v->name);
}

int adopt_all(struct keeper *k, struct error *e)
{
	struct names names = {0};
	int r = store_vm_each(k->store, add_name, &names, e);

	for (size_t i = 0; r == 0 && i < names.n; i++) {
		struct keeper_vm *v;

		r = keeper_vm_track(k, names.name[i], &v, e);
	}
	free(names.name);
	if (r < 0)
		return error_wrap(e, "cannot read the database");
	for (size_t i = 0; i < k->n_vms; i++)
		adopt(k->vms[i]);
	return 0;
}
