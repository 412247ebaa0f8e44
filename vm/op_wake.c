/*
 * The second half of a start: a life in standby is resumed, begins and is checked again. Killed between any two of these and
 * asked again it ends the same, or with a guest in which a life has begun already: then it fails, and is reset.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "vm/memory.h"
#include "vm/start.h"
#include <errno.h>

#define WAKE_TIMEOUT_MS 60000

/* 1: awake already, res is filled. 0: s has its domain and what it should consist of. */
static int find(struct start *s, struct vm_result *res, struct error *e)
{
	struct life life = {0};
	int r = generation_load(s->h, s->q->name, &s->gen, e);

	if (r == 0)
		r = virt_find(s->h, s->q->name, &s->domain, &life, e);
	if (r < 0)
		return r;
	if (r == 0 || !virt_runs(s->domain))
		return error_set(e, ENOTCONN, "%s is not running", s->q->name);
	if (life.generation != s->q->generation || s->gen.generation != s->q->generation)
		return error_set(e, ESTALE, "%s runs in its life %llu, not %llu", s->q->name,
			(unsigned long long)life.generation, (unsigned long long)s->q->generation);
	if (s->gen.begun) {
		(void)str_copy(res->host_key, s->gen.host_key);
		(void)str_copy(res->address, s->slot.address);
		res->kvm = s->gen.kvm;
		res->warm = s->gen.warm_identity[0] != '\0';
		return 1;
	}
	if (!s->gen.standby)
		return error_set(e, ESTALE, "%s is not waiting in standby", s->q->name);
	r = warm_load(s->h, s->q->name, &s->warm, e);
	s->chain[0] = s->overlay;
	s->chain[1] = s->warm.disk;
	s->chain[2] = s->clean.disk;
	s->chain[3] = s->base.disk;
	s->n_chain = 4;
	s->virt.kvm = s->gen.kvm;
	return r;
}

int op_wake(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP(start_done) struct start s = {.h = h, .q = q, .way = START_STANDBY};
	CLEANUP_FD int lock = -1;
	int r;

	s.until_us = clock_boot_us() + (q->timeout_ms ? q->timeout_ms : WAKE_TIMEOUT_MS) * 1000ull;
	host_step_begin(h, "wake");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = start_load(&s, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = find(&s, res, e);
	if (r != 0)
		return r < 0 ? r : 0;
	host_step_done(h, "in standby");
	host_step_begin(h, "resume");
	s.created = true;
	r = memory_resume(s.domain, e);
	if (r == 0) {
		host_step_done(h, "it runs");
		r = life_begin(&s, res, e);
	}
	if (r < 0)
		start_give_up(&s);
	return r;
}
