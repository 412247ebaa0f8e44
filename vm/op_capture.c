#include "base/str.h"
#include "vm/image.h"
#include "vm/op.h"
#include <errno.h>

int op_capture(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	CLEANUP_FD int lock = -1;
	struct settings s;
	struct life life;
	int r;

	(void)res;
	host_step_begin(h, "capture");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = settings_load(h, q->name, &s, e);
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
	return clean_capture(h, &s, e);
}
