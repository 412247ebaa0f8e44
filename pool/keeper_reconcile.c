/*
 * A listing of libvirt's compared with the store: what runs and should, what runs and should not, what should and does not,
 * and what is wrong with the files or the domain of a VM.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* A domain of ours by its metadata that the store has never heard of: somebody's, or an older database's. Left alone. */
static void stranger(struct keeper *k, const struct vm_entry *entry)
{
	for (unsigned i = 0; i < k->n_strangers; i++)
		if (str_equal(k->strangers[i], entry->name))
			return;
	/* Else each listing would tell of them again. */
	if (k->n_strangers == KEEPER_STRANGERS_MAX)
		return;
	(void)str_copy(k->strangers[k->n_strangers++], entry->name);
	log_vm(LOG_WARNING, entry->name, NULL, "%s, but is not in the database; it is left alone",
			entry->running ? "runs with our mark on it" : "has a settings file");
}

static void judge_running(struct keeper_vm *v, const struct vm_entry *entry, bool settled)
{
	char reason[128];

	if (!v->running && settled) {
		v->running = true;
		v->running_us = clock_boot_us();
	}
	switch (v->row.state) {
	case STATE_READY:
	case STATE_LEASED:
	case STATE_DELIVERED:
	case STATE_BUSY:
		if (entry->generation == v->row.generation) {
			if (!v->confirmed)
				log_vm(LOG_INFO, v->row.name, v->row.lease, "runs with generation %" PRIu64 " and is taken over",
						entry->generation);
			v->confirmed = true;
		} else if (settled) {
			(void)str_format(reason, "a domain of generation %" PRIu64 " runs instead of %" PRIu64,
					entry->generation, v->row.generation);
			keeper_note(v, HAPPENING_DOUBT, reason);
		}
		break;
	case STATE_COLD:
		if (settled && !v->row.removing)
			keeper_note(v, HAPPENING_DOUBT, "a domain runs although the VM is COLD");
		break;
	case STATE_KEPT:
		if (settled)
			effect_halt(v);
		break;
	case STATE_BROKEN: /* libvirt was away when it became so */
	case STATE_MAINTENANCE:
		if (settled && !v->row.removing && (v->row.state == STATE_BROKEN || v->row.lease[0])) {
			log_vm(LOG_WARNING, v->row.name, v->row.lease, "runs although it is %s; it is shut off",
					state_to_string(v->row.state));
			effect_halt(v);
		}
		break;
	case STATE_PLAIN:
	case STATE_STARTING:
	case STATE_RESETTING:
	case STATE_ADDING:
	case STATE_COUNT:
		break;
	}
}

/*
 * Something is wrong with the VM's files or its domain, or is not any more ("": nothing). Whoever has not got it yet does
 * not get it; a job that runs is let run, because it may be as good as ever, and its end resets the VM anyway. One that is stuck
 * would only sit there until its time is over.
 */
static void judge_trouble(struct keeper_vm *v, const char *trouble, bool stuck)
{
	const bool news = !v->trouble || !str_equal(v->trouble, trouble);

	if (v->row.state == STATE_RESETTING || v->row.state == STATE_BROKEN || v->row.state == STATE_KEPT || v->row.removing)
		return; /* its files are just going, or kept as they are */
	if (!trouble[0]) {
		if (v->trouble)
			log_vm(LOG_NOTICE, v->row.name, v->row.lease, "what was wrong with it is put right");
		free(v->trouble);
		v->trouble = NULL;
		return;
	}
	if (news) {
		free(v->trouble);
		v->trouble = strdup(trouble);
		log_vm(LOG_ALERT, v->row.name, v->row.lease, "%s", trouble);
	}
	if (v->row.state == STATE_STARTING || v->row.state == STATE_READY || v->row.state == STATE_LEASED) {
		keeper_life_ended(v, v->row.generation, HAPPENING_DOUBT, "watch", trouble);
	} else if (stuck && state_has_lease(v->row.state)) {
		keeper_note(v, HAPPENING_DOUBT, trouble);
	} else if (news && state_has_lease(v->row.state)) {
		log_vm(LOG_ALERT, v->row.name, v->row.lease, "goes on with its job and is reset after it");
		keeper_record(v, "trouble", trouble, 0);
	}
}

/* Its disk became its clean state when it was added, so without that it has nothing to start from. */
static const char *trouble_of_stopped(const struct keeper_vm *v, const struct vm_entry *entry)
{
	const bool in_pool = v->row.state != STATE_PLAIN && v->row.state != STATE_ADDING;

	return in_pool && entry->plain ? "its clean state is gone: it cannot be started any more" : entry->trouble;
}

static void judge_stopped(struct keeper_vm *v, bool settled)
{
	if (!settled)
		return;
	v->running = false;
	if (v->row.state == STATE_READY || state_has_lease(v->row.state))
		keeper_life_ended(v, v->row.generation, HAPPENING_STOPPED, NULL, "libvirt does not list it as running");
}

void keeper_reconcile(struct keeper *k, const struct listing *l, uint64_t floor_us)
{
	for (size_t i = 0; i < k->n_vms; i++) {
		struct keeper_vm *v = k->vms[i];
		const struct vm_entry *entry = NULL, *any = NULL;
		unsigned running = 0;
		bool settled = v->entered_us <= floor_us && v->running_us <= floor_us && !v->op;

		for (size_t n = 0; n < l->n; n++) {
			if (!str_equal(l->entries[n].name, v->row.name))
				continue;
			if (l->entries[n].generation > v->seen_generation)
				v->seen_generation = l->entries[n].generation;
			any = &l->entries[n];
			if (!l->entries[n].running)
				continue;
			entry = &l->entries[n];
			running++;
		}
		if (entry)
			judge_running(v, entry, settled);
		else
			judge_stopped(v, settled);
		if (running > 1)
			judge_trouble(v, "more than one domain runs that carries its mark", false);
		else if (entry && entry->generation == v->row.generation)
			judge_trouble(v, entry->trouble, entry->stuck);
		else if (any && settled)
			judge_trouble(v, trouble_of_stopped(v, any), false);
	}
	for (size_t n = 0; n < l->n; n++)
		if (!keeper_find(k, l->entries[n].name))
			stranger(k, &l->entries[n]);
	if (!k->listed)
		log_info("libvirt and the database have been compared: %zu VMs, %zu entries", k->n_vms, l->n);
	k->listed = true;
	libvirt_is(k, true, "");
	keeper_kick(k);
}
