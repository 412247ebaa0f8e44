#ifndef BOXERY_LINUX_HOSTCONF_H
#define BOXERY_LINUX_HOSTCONF_H
/*
 * Where things are, and host.env. User install: XDG folders. System install (BOXERY_SYSTEM=1, or, with that variable
 * unset, when /etc/boxery/host.env exists and neither BOXERY_CONFIG_DIR nor XDG_CONFIG_HOME is set): /etc/boxery,
 * /var/lib/boxery/state, /run/boxery. Without XDG_RUNTIME_DIR a user's runtime folder is /run/boxery for root, else
 * /run/user/UID/boxery.
 * BOXERY_CONFIG_DIR, BOXERY_STATE_DIR, BOXERY_RUNTIME_DIR override each.
 *
 * host.env keys (unknown ones are errors with file and line):
 *   BOXERY_LIBVIRT_URI     default qemu:///system
 *   BOXERY_IMAGE_DIR       default /var/lib/boxery
 *   BOXERY_CACHE_DIR       default $XDG_CACHE_HOME/boxery or /var/cache/boxery
 *   BOXERY_NET_ISOLATION   on | off       default on; off: nothing secret is ever delivered
 *   BOXERY_NET_FILTER      auto | nft | nwfilter  default auto: nft where it can be installed and is seen in force
 *   BOXERY_NET_SUBNET      a.b.c          default 192.168.130 (a /24; host .1, VMs .10 to .249)
 *   BOXERY_NET_NAME        default boxery (libvirt network, bridge virbr-NAME, at most 9 characters)
 *   BOXERY_GUEST_PROXY     a.b.c.d:port   default none: a proxy in a closed range that guests may reach, that port only
 *   BOXERY_VIRT            auto | kvm | qemu  default auto (probed by starting a guest once)
 *   BOXERY_PARALLEL        1..64          default 2: starts and resets at once
 *   BOXERY_START_TIMEOUT   duration       default 180s: STARTING to READY
 *   BOXERY_CONSOLE_MAX     size           default 8M per VM
 *   BOXERY_EVIDENCE_MAX    size           default 2G: a broken VM's disk is kept up to this size; 0: never
 */
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct hostconf {
	char config_dir[256], state_dir[256], runtime_dir[256], image_dir[256], cache_dir[256];
	char keeper_socket[300]; /* runtime_dir/keeper.sock; at most 107 bytes or an error that says so */
	char libvirt_uri[256];
	char net_name[10], net_subnet[16];
	bool net_isolation;
	char guest_proxy[16]; /* address; "": none */
	uint32_t guest_proxy_port;
	enum net_filter_mode { NET_FILTER_AUTO, NET_FILTER_NFT, NET_FILTER_NWFILTER } net_filter;
	enum virt_mode { VIRT_AUTO, VIRT_KVM, VIRT_QEMU } virt;
	uint32_t parallel, console_max_mib, evidence_max_mib;
	uint64_t start_timeout_ms;
};
/* Reads the environment and host.env (missing: defaults). -EBADMSG with "FILE:LINE: ..." on a bad setting. */
int hostconf_load(struct hostconf *ret, struct error *e);
#endif
