#include "base/str.h"
#include "vm/image.h"
#include "vm/op.h"
#include "vm/warm.h"
#include <errno.h>

struct clones {
	struct host *h;
	const char *origin;
};

/* Those that run have the present clean image open; a new one would pull it from under them. */
static int clone_is_off(void *userdata, const struct settings *s, struct error *e)
{
	const struct clones *c = userdata;
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct life life;
	int r;

	if (!str_equal(s->clean_of, c->origin))
		return 0;
	r = virt_find(c->h, s->name, &d, &life, e);
	return r == 1 ? error_set(e, EBUSY, "%s is running on the clean image of %s; it is captured only while none is",
				s->name, c->origin)
		      : r;
}

int op_capture(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	CLEANUP_FD int lock = -1;
	struct clones clones = {.h = h, .origin = q->name};
	struct settings s;
	struct life life;
	int r;

	(void)res;
	host_step_begin(h, "capture");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = settings_load(h, q->name, &s, e);
	if (r == 0 && s.clean_of[0])
		r = error_set(e, EINVAL, "%s has no disk of its own to capture: it lives from the clean image of %s; capture "
					 "that one",
			q->name, s.clean_of);
	if (r == 0)
		r = host_free_space_check(h, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = virt_find(h, q->name, &d, &life, e);
	if (r < 0)
		return r;
	if (r == 1)
		return error_set(
			e, EBUSY, "%s is running; its disk can be captured only while it is off", q->name);
	r = settings_each(h, clone_is_off, &clones, e);
	if (r < 0)
		return r;
	r = clean_capture(h, &s, e);
	/* It is bound to the clean image that has just been replaced. Those of clones go when they are made anew. */
	return r < 0 ? r : warm_drop(h, q->name, e);
}
