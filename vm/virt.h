#ifndef BOXERY_VM_VIRT_H
#define BOXERY_VM_VIRT_H
/* libvirt's domains: which are ours, which life they are, and how they end. */
#include "vm/host.h"
#include "vm/slot.h"

#define SETTLE_TIMEOUT_MS 10000 /* "paused (starting up)" after a libvirtd was killed lasts under a second */
#define DESTROY_TIMEOUT_MS 30000 /* libvirt itself gives QEMU 15 s before SIGKILL */

DEFINE_CLEANUP(virDomainPtr, virDomainFree);

/*
 * Fills e with the sentence and libvirt's own words, and with an errno made from libvirt's code; returns
 * -errno. Macros, because asking libvirt for a name among the arguments makes it forget its last error.
 */
#define virt_error(e, ...) (virt_error_keep(), virt_error_say((e), 0, __VA_ARGS__))
#define virt_error_code(e, code, ...) (virt_error_keep(), virt_error_say((e), (code), __VA_ARGS__))
void virt_error_keep(void);
int virt_error_say(struct error *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Once per process: libvirt does not write to stderr by itself. */
void virt_init(void);

struct life { /* from a domain's metadata */
	char name[VM_NAME_MAX];
	uint64_t generation;
};
/* 1 when the domain carries our metadata of this network, 0 when not (foreign, or gone meanwhile), or -errno.
 */
int virt_life(const struct host *h, virDomainPtr d, struct life *ret, struct error *e);
/* The same whatever the domain is named: 1 also for another domain that somebody gave a copy of our metadata. */
int virt_mark(const struct host *h, virDomainPtr d, struct life *ret, struct error *e);
/* -ESTALE and a sentence when its disk chain, network card or devices are not these. */
int virt_check_devices(virDomainPtr d, const char *const *layers, size_t n_layers, const struct slot *slot,
	struct error *e);
/* 1 and a domain that is ours, 0 when there is none. -EEXIST: a domain of that name is not ours. */
int virt_find(
	const struct host *h, const char *name, virDomainPtr *ret, struct life *ret_life, struct error *e);
/* Waits until libvirt has made up its mind about a domain whose start was interrupted. */
int virt_settle(virDomainPtr d, struct error *e);
bool virt_stuck(virDomainPtr d); /* its guest was stopped by an I/O error */
bool virt_runs(virDomainPtr d);
/* 1 it runs, 0 it has ended, or -errno: libvirt cannot be asked. */
int virt_runs_check(virDomainPtr d, struct error *e);
/* Ends it and waits until libvirt does not know it any more. A domain that is gone already is a success. */
int virt_destroy(const struct host *h, virDomainPtr d, struct error *e);
#endif
