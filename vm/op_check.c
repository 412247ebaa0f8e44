#include "base/str.h"
#include "vm/filter.h"
#include "vm/network.h"
#include "vm/op.h"
#include "vm/probe.h"
#include <errno.h>
#include <string.h>

int op_network(struct host *h, struct error *e)
{
	CLEANUP_FD int lock = -1;
	int r;

	r = host_lock_shared_parts(h, &lock, e);
	if (r == 0)
		r = network_ensure(h, e);
	return r < 0 ? r : filter_ensure(h, e);
}

static int check_libvirt(struct host *h, struct error *e)
{
	unsigned long libvirt, qemu;
	int r;

	host_step_begin(h, "libvirt");
	r = host_connect(h, e);
	if (r < 0)
		return r;
	if (virConnectGetLibVersion(h->conn, &libvirt) < 0 || virConnectGetVersion(h->conn, &qemu) < 0)
		return virt_error(e, "cannot ask libvirt at %s for versions", h->conf.libvirt_uri);
	host_step_done(h, "libvirt %lu.%lu.%lu at %s, QEMU %lu.%lu.%lu", libvirt / 1000000,
		libvirt / 1000 % 1000, libvirt % 1000, h->conf.libvirt_uri, qemu / 1000000,
		qemu / 1000 % 1000, qemu % 1000);
	return 0;
}

static int check_network(struct host *h, struct error *e)
{
	CLEANUP_FD int lock = -1;
	int r;

	host_step_begin(h, "network");
	r = host_lock_shared_parts(h, &lock, e);
	if (r == 0)
		r = network_ensure(h, e);
	if (r < 0)
		return r;
	host_step_done(h, "network %s is up: %s.0/24, NAT, bridge virbr-%s", h->conf.net_name,
		h->conf.net_subnet, h->conf.net_name);
	host_step_begin(h, "isolation");
	r = filter_ensure(h, e);
	if (r < 0)
		return r;
	if (h->conf.net_isolation) {
		const char *why = h->filter_refused.text;

		host_step_done(h, "on: per guest by %s, around the bridge by nftables%s%.200s",
			filter_implementation(h)->name, why[0] ? "; not by nft: " : "", why);
	} else {
		host_step_done(h, "OFF by BOXERY_NET_ISOLATION in host.env: guests reach this host and its "
				  "networks, and no "
				  "secret is delivered to them");
	}
	return 0;
}

int op_check(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	struct virt_choice c;
	int r;

	(void)q;
	host_step_begin(h, "folders");
	r = host_free_space_check(h, e);
	if (r < 0)
		return r;
	host_step_done(h, "image folder %s", h->conf.image_dir);
	r = check_libvirt(h, e);
	if (r == 0)
		r = check_network(h, e);
	if (r < 0)
		return r;
	host_step_begin(h, "virtualisation");
	r = virt_choose(h, &c, e);
	if (r < 0)
		return r;
	res->kvm = c.kvm;
	host_step_done(h, "%s: %s",
		!c.known ? "undecided"
		: c.kvm	 ? "KVM"
			 : "software emulation (slow)",
		c.why);
	return 0;
}
