#ifndef BOXERY_VM_PROBE_H
#define BOXERY_VM_PROBE_H
/*
 * KVM or emulation. That /dev/kvm opens proves nothing: inside another hypervisor a guest may abort on its
 * first model specific register, or run a hundred times slower than emulated. So a guest is started once per
 * boot of the host and QEMU version, with a base image's kernel and nothing else, and has to reach its first
 * program in time. The verdict is kept in IMAGE_DIR/virt.env. BOXERY_VIRT=kvm or qemu overrides it.
 */
#include "vm/image.h"

#define PROBE_TIMEOUT_MS 20000

struct virt_choice {
	bool known; /* false: no base image yet to probe with */
	bool kvm;
	char why[200];
};
/* libvirt's word for a domain of that kind. */
const char *virt_type(bool kvm);
int virt_choose(struct host *h, struct virt_choice *ret, struct error *e);
#endif
