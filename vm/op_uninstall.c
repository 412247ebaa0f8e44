/* Takes away what belongs to no VM: the network, the filter, the guard. The folders are left to whoever asked. */
#include "vm/filter.h"
#include "vm/network.h"
#include "vm/op.h"
#include <errno.h>

static int refuse_vm(void *userdata, const struct settings *s, struct error *e)
{
	(void)userdata;
	return error_set(e, EBUSY, "there are files of a VM '%s' that the keeper knows nothing of; say --force to have them removed, too", s->name);
}

int op_uninstall(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP_FD int lock = -1;
	int r;

	(void)res;
	host_step_begin(h, "network");
	r = q->flags & VM_FLAG_FORCE ? 0 : settings_each(h, refuse_vm, NULL, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = host_lock_shared_parts(h, &lock, e);
	if (r == 0)
		r = network_remove(h, e);
	if (r < 0)
		return r;
	host_step_done(h, "network %s %s", h->conf.net_name, r ? "was removed" : "is not there");
	host_step_begin(h, "isolation");
	r = filter_remove(h, e);
	if (r < 0)
		return r;
	host_step_done(h, "the rules around it were removed%s",
		r ? "; libvirt's filter is left, since other guests use it" : "");
	return 0;
}
