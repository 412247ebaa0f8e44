/*
 * Is libvirt there? While it is not, nothing new is started. What fails in the first KEEPER_OUTAGE_MS without it is nobody's
 * failure: it waits, and is done when libvirt answers.
 */
#include "linux/clock.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>

/* Libvirt is back: what waited for it, or had failed without it, is done now. */
static void go_on(struct keeper_vm *v)
{
	if (!v->retry || (v->row.state != STATE_RESETTING && v->row.state != STATE_KEPT && !v->row.removing))
		return;
	keeper_retry(v, 0);
	keeper_settle(v);
}

void libvirt_is(struct keeper *k, bool connected, const char *why)
{
	if (k->connected != connected) {
		if (connected)
			log_info("libvirt answers");
		else
			log_warning("libvirt does not answer (%s); nothing is started until it does", why);
	}
	k->connected = connected;
	if (connected)
		spares_fill(k, KEEPER_SPARE_DELAY_MS);
	if (!connected && !k->outage_us)
		k->outage_us = clock_boot_us();
	if (connected && k->outage_us) {
		k->outage_us = 0;
		for (size_t i = 0; i < k->n_vms; i++)
			go_on(k->vms[i]);
	}
	keeper_kick(k);
}

void libvirt_lost(struct keeper *k, const char *why)
{
	libvirt_is(k, false, why);
}

bool libvirt_to_blame(struct keeper_vm *v, struct error *e)
{
	if (e->code == ECONNREFUSED)
		libvirt_lost(v->k, e->text);
	if (!e->code || libvirt_grace_ms(v->k) == 0)
		return false;
	if (v->blamed < KEEPER_BLAME_MAX) {
		v->blamed++;
		return true;
	}
	(void)error_wrap(e, "libvirt lists its domains, but has refused this VM more than %d times in a row", KEEPER_BLAME_MAX);
	return false;
}

uint64_t libvirt_grace_ms(const struct keeper *k)
{
	uint64_t spent = (clock_boot_us() - k->outage_us) / 1000;

	return k->outage_us && spent < KEEPER_OUTAGE_MS ? KEEPER_OUTAGE_MS - spent : 0;
}
