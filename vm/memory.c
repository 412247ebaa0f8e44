#include "vm/memory.h"
#include "base/str.h"
#include "vm/domain.h"
#include <errno.h>
#include <libvirt/virterror.h>

int memory_save(virDomainPtr d, const char *path, struct error *e)
{
	if (virDomainSaveFlags(d, path, NULL, VIR_DOMAIN_SAVE_RUNNING) < 0)
		return virt_error(e, "cannot save the memory of %s", virDomainGetName(d));
	return 0;
}

int memory_restore(const struct host *h, const char *path, const char *xml, bool paused, struct error *e)
{
	if (virDomainRestoreFlags(h->conn, path, xml, paused ? VIR_DOMAIN_SAVE_PAUSED : VIR_DOMAIN_SAVE_RUNNING) < 0)
		return virt_error(e, "cannot restore the memory in %s", path);
	return 0;
}

int memory_machine(virDomainPtr d, char *ret_machine, char *ret_program, size_t size, struct error *e)
{
	CLEANUP_FREE char *xml = virDomainGetXMLDesc(d, 0);
	struct domain_seen seen;
	int r;

	if (!xml)
		return virt_error(e, "cannot read the description of domain %s", virDomainGetName(d));
	r = domain_seen_parse(xml, &seen, e);
	if (r < 0)
		return r;
	if (!seen.machine[0] || !seen.emulator[0])
		return error_set(e, EBADMSG, "libvirt does not say which machine domain %s is, or which program runs it",
			virDomainGetName(d));
	if (str_copy_n(ret_machine, size, seen.machine) < 0 || str_copy_n(ret_program, size, seen.emulator) < 0)
		return error_errno(e, ENAMETOOLONG, "domain %s", virDomainGetName(d));
	return 0;
}

int memory_resume(virDomainPtr d, struct error *e)
{
	const virError *v;

	if (virDomainResume(d) == 0)
		return 0;
	v = virGetLastError();
	if (v && v->code == VIR_ERR_OPERATION_INVALID && virt_runs_check(d, NULL) == 1) {
		int state, reason;

		if (virDomainGetState(d, &state, &reason, 0) == 0 && state == VIR_DOMAIN_RUNNING)
			return 0;
	}
	return virt_error(e, "cannot resume %s", virDomainGetName(d));
}
