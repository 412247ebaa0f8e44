/* VM_PATCH, VM_SETTLE: the clean state on another base image, and what becomes of the one before (patch.c). */
#include "base/str.h"
#include "vm/image.h"
#include "vm/op.h"
#include <errno.h>

/* Those that live from its clean image would be on one that nobody has tried with them. */
static int check_no_clones(const struct host *h, const char *name, struct error *e)
{
	char clone[VM_NAME_MAX];
	int r = clean_clone_find(h, name, clone, e);

	return r == 1 ? error_set(e, EBUSY, "%s lives from the clean image of %s and has to be patched before it", clone, name) : r;
}

int op_patch(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP_FD int lock = -1, settings_lock = -1;
	struct base_image base;
	struct settings s;
	int r;

	(void)res;
	host_step_begin(h, "patch");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = host_lock_settings(h, q->name, false, &settings_lock, e);
	if (r == 0)
		r = settings_load(h, q->name, &s, e);
	if (r == 0)
		r = check_no_clones(h, q->name, e);
	if (r == 0)
		r = host_free_space_check(h, e);
	if (r == 0)
		r = clean_patch_check(h, &s, q->image, &base, e);
	if (r < 0)
		return r;
	/* Everything that could be known before is good: now the life that is on it ends. */
	host_step_begin(h, "destroy");
	r = host_connect(h, e);
	if (r == 0)
		r = op_end_life(h, q->name, q->generation, e);
	return r < 0 ? r : clean_patch(h, &s, &base, e);
}

int op_settle(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP_FD int lock = -1;
	struct settings s;
	int r;

	(void)res;
	host_step_begin(h, "settle");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = settings_load(h, q->name, &s, e);
	if (r == 0)
		r = clean_settle(h, &s, q->image, q->clean_of, e);
	return r < 0 ? r : clean_sweep(h, q->name, e);
}
