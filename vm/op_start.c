/*
 * A life: lock, refuse a stale generation, record it, overlay, network and filter, domain, then begin and check. The guest
 * counts as started only when all of it has passed; on any failure its domain is destroyed again and the keeper's reset does
 * the rest.
 *
 * The generation is on disk before the domain exists, so that after a crash no two domains of one life can
 * follow each other. What begin returned is kept beside it: a keeper that lost our result may ask again and
 * gets the same answer.
 *
 * A warm start restores the memory image. When there is none, or none that fits, the VM is booted once on a fresh overlay
 * before, as a domain that is no life (generation 0), and captured; so a start is the only time at which a capture can be,
 * and what is captured has no past. A guest that does not come to rest (the host is busy) is not captured: then this start is a
 * cold one, and a later one tries again.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "vm/start.h"
#include <errno.h>
#include <stdlib.h>

/* For a guest to come to rest before its capture. It gives up by itself after half of it (guest/settle.c). */
#define CAPTURE_SETTLE_MS 60000

/* 1: that very life is up and has passed its check before; res is filled. 0: to be started. */
static int running_already(struct start *s, struct vm_result *res, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct generation g;
	struct life life;
	int r, found;

	r = generation_load(s->h, s->q->name, &g, e);
	if (r < 0)
		return r;
	s->was_rated = g.rated;
	found = virt_find(s->h, s->q->name, &d, &life, e);
	if (found < 0)
		return found;
	if (found && life.generation == s->q->generation && g.generation == life.generation && (g.begun || g.standby) &&
		virt_runs(d)) {
		(void)str_copy(res->host_key, g.host_key);
		(void)str_copy(res->address, s->slot.address);
		res->kvm = g.kvm;
		res->warm = g.warm_identity[0] != '\0';
		res->standby = g.standby;
		return 1;
	}
	if (found)
		return error_set(e, ESTALE, "%s is running already in its life %llu; reset it first",
			s->q->name, (unsigned long long)life.generation);
	if (s->q->generation <= g.generation)
		return error_set(e, ESTALE, "%s has had its life %llu already; life %llu is refused",
			s->q->name, (unsigned long long)g.generation, (unsigned long long)s->q->generation);
	return 0;
}

static int run_booted(struct start *s, struct vm_result *res, struct error *e)
{
	int r = start_disk(s, e);

	if (r == 0)
		r = start_network(s, e);
	if (r == 0)
		r = start_domain(s, s->q->generation, NULL, e);
	if (r == 0)
		r = start_boot(s, e);
	if (r == 0 && s->way == START_COLD)
		r = life_check_booted(s, e);
	return r < 0 ? r : life_begin(s, res, e);
}

/* 1: it is at rest, and listed; 0: it did not come to rest, *why says how. */
static int settle(struct start *s, char listing[static BEGIN_SEEN_MAX], struct error *why, struct error *e)
{
	int r;

	host_step_begin(s->h, "settle");
	if (start_list(s, BEGIN_SETTLE, CAPTURE_SETTLE_MS, listing, why) == 0) {
		host_step_done(s->h, "quiet");
		return 1;
	}
	r = virt_runs_check(s->domain, e);
	if (r == 0)
		return error_set(e, ENOTCONN, "%s stopped before it was captured", s->s.name);
	return r < 0 ? r : 0;
}

/* 0: nothing was captured, *why says why, and its domain runs. 1: it was, and has ended. */
static int capture(struct start *s, struct error *why, struct error *e)
{
	CLEANUP_FREE char *listing = malloc(BEGIN_SEEN_MAX);
	const struct warm_want want = start_want(s);
	int r;

	if (!listing)
		return error_errno(e, ENOMEM, "%s", s->s.name);
	s->warm = (struct warm_image){0};
	r = host_free_space_check_for(s->h, s->memory_mib, e);
	if (r == 0)
		r = start_disk(s, e);
	if (r == 0)
		r = start_domain(s, CAPTURE_GENERATION, NULL, e);
	if (r == 0)
		r = start_boot(s, e);
	if (r == 0)
		r = settle(s, listing, why, e);
	if (r <= 0)
		return r;
	r = warm_facts_now(s->h, &want, &s->warm, e);
	if (r == 0)
		r = warm_capture(s->h, s->s.name, s->domain, listing, &s->warm, e);
	start_done(s);
	return r < 0 ? r : 1;
}

/* Instead of a memory image: nothing of the guest that was to be captured is used. */
static int go_cold(struct start *s, const struct error *why, struct error *e)
{
	int r = virt_destroy(s->h, s->domain, e);

	start_done(s);
	if (r < 0)
		return r;
	host_step_done(s->h, "no memory image this time, it boots: %s", why->text);
	s->warm = (struct warm_image){0};
	s->way = START_COLD;
	return 0;
}

/* A memory image that fits, the present one or a new one; or the way is another afterwards. */
static int find_memory(struct start *s, struct error *e)
{
	const struct warm_want want = start_want(s);
	struct error why = ERROR_INIT;
	int r;

	host_step_begin(s->h, "memory");
	r = warm_load(s->h, s->s.name, &s->warm, &why);
	if (r == 0)
		r = warm_fits(s->h, &want, &s->warm, &why);
	if (r == -ECONNREFUSED)
		return error_set(e, why.code, "%s", why.text);
	if (r == 0) {
		host_step_done(s->h, "of %.40s", s->warm.fact[WARM_CAPTURED]);
		return 0;
	}
	host_step_done(s->h, "captured anew: %s", why.text);
	error_clear(&why);
	r = capture(s, &why, e);
	if (r == 0)
		r = go_cold(s, &why, e);
	return r < 0 ? error_wrap(e, "capture") : 0;
}

/* libvirt is there and would not have it: not a matter of the moment. */
static bool memory_is_bad(const struct start *s, int r)
{
	return r != -ECONNREFUSED && r != -ENOMEM && virConnectIsAlive(s->h->conn) == 1;
}

static int stand_by(struct start *s, struct vm_result *res, struct error *e)
{
	int r;

	host_step_begin(s->h, "check");
	r = life_check_outside(s, e);
	s->gen.standby = true;
	s->gen.kvm = s->virt.kvm;
	s->gen.domain_id = virDomainGetID(s->domain);
	if (r == 0)
		r = generation_save(s->h, s->s.name, &s->gen, e);
	if (r < 0)
		return r;
	host_step_done(s->h, "paused, clean from outside");
	(void)str_copy(res->address, s->slot.address);
	res->kvm = s->virt.kvm;
	res->warm = res->standby = 1;
	return 0;
}

static int run_warm(struct start *s, struct vm_result *res, struct error *e)
{
	struct generation blank = s->gen;
	int r = start_network(s, e);

	if (r == 0)
		r = find_memory(s, e);
	if (r < 0)
		return r;
	s->gen = blank;
	if (s->way == START_COLD)
		return run_booted(s, res, e);
	r = start_disk(s, e);
	if (r < 0)
		return r;
	r = start_domain(s, s->q->generation, s->warm.memory, e);
	if (r < 0) {
		if (!s->domain && memory_is_bad(s, r) && warm_drop(s->h, s->s.name, NULL) == 0)
			(void)error_wrap(e, "memory image dropped");
		return r;
	}
	return s->way == START_STANDBY ? stand_by(s, res, e) : life_begin(s, res, e);
}

static int run(struct start *s, struct vm_result *res, struct error *e)
{
	switch (s->way) {
	case START_PLAIN:
	case START_COLD:
		return run_booted(s, res, e);
	case START_WARM:
	case START_STANDBY:
		return run_warm(s, res, e);
	case START_WAY_COUNT:
		break;
	}
	return error_set(e, EINVAL, "%s: no such way to start", s->s.name);
}

static enum start_way way_of(uint32_t flags)
{
	if (flags & VM_FLAG_PLAIN)
		return START_PLAIN;
	if (!(flags & VM_FLAG_WARM))
		return START_COLD;
	return flags & VM_FLAG_STANDBY ? START_STANDBY : START_WARM;
}

int op_start(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP(start_done) struct start s = {.h = h, .q = q, .way = way_of(q->flags)};
	CLEANUP_FD int lock = -1;
	int r;

	s.gen.generation = q->generation;
	s.gen.rated = q->net_kib_per_s > 0;
	s.until_us = clock_boot_us() + (q->timeout_ms ? q->timeout_ms : h->conf.start_timeout_ms) * 1000u;
	host_step_begin(h, "start");
	if (q->generation == 0)
		return error_set(e, EINVAL, "%s: a life has a number from 1 on", q->name);
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = start_load(&s, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = running_already(&s, res, e);
	if (r != 0)
		return r < 0 ? r : 0;
	s.cpus = q->start_cpus ? q->start_cpus : s.s.cpus;
	s.memory_mib = q->start_memory_mib ? q->start_memory_mib : s.s.memory_mib;
	r = host_size_check(s.cpus, s.memory_mib, e);
	if (r == 0)
		r = virt_choose(h, &s.virt, e);
	if (r == 0)
		r = run(&s, res, e);
	if (r < 0)
		start_give_up(&s);
	return r;
}
