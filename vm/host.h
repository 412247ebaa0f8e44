#ifndef BOXERY_VM_HOST_H
#define BOXERY_VM_HOST_H
/*
 * The context of one run of boxery-vm: settings, the image folder, the connection to libvirt, the keeper.
 *
 *   base/NAME/{disk.qcow2,vmlinuz,initrd,manifest.env}  read-only, made by the image builder
 *   images/VM@LABEL/{disk.qcow2,manifest.env}           read-only, made by VM_CAPTURE
 *   images/VM@boxery-before/                           the clean image before a patch that is not proven yet
 *   images/VM@boxery-warm/                              the same with memory: see warm.h
 *   vms/NAME.env, vms/NAME.qcow2                        a VM's settings and its own (plain) disk
 *   run/NAME.qcow2, run/NAME.gen                        this life's overlay and generation
 *   broken/NAME.qcow2                                   the overlay of a life that was kept as evidence
 *   run/NAME.lock                                       the lock of a VM
 *   run/guard.seen                                      which rules of the kernel were found good (vm/guard.c)
 *   console/NAME.log, console/NAME.log.1                this life's console and the one before
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "linux/hostconf.h"
#include "vm/proto.h"
#include <libvirt/libvirt.h>

#define CLEAN_LABEL "boxery-clean"
#define VM_PATH_MAX 512
#define LOCK_TIMEOUT_MS 10000
#define SHARED_LOCK_TIMEOUT_MS 45000 /* one of them may be probing for KVM */
#define CONNECT_TIMEOUT_MS 3000	     /* tolerates a libvirtd that is just being restarted */
#define MEMORY_MIN_MIB 128
#define MEMORY_SPARE_MIB 128   /* what QEMU itself needs, and the host beside it */
#define FREE_SPACE_MIN_MIB 512 /* below this nothing is started: a full disk pauses or corrupts guests */

struct host {
	struct hostconf conf;
	int image_fd;	    /* the image folder */
	virConnectPtr conn; /* NULL until host_connect() */
	bool ahead;	    /* it was made by host_connect_ahead() and nobody has used it since */
	char ahead_uri[sizeof(((struct hostconf *)0)->libvirt_uri)];
	int report_fd;	    /* the keeper; -1: nobody listens */
	uint32_t seq;
	char step[VM_STEP_MAX]; /* stage under way, for the result of a failure */
	uint64_t step_since_us;
	struct error filter_refused; /* why BOXERY_NET_FILTER=auto is not nft here; no text: it is */
};
#define HOST_INIT ((struct host){.image_fd = -1, .report_fd = -1})

/* Reads the settings and opens the image folder; its parts are made when missing. */
int host_open(struct host *h, struct error *e);
void host_close(struct host *h);
int host_connect(struct host *h, struct error *e);
/* Before host_open(), for a request that will come some day: connects if that can be done now. host_connect() finds out whether
 * the connection still is one, and to the libvirt of the settings of then. */
void host_connect_ahead(struct host *h);

/* IMAGE_DIR/part/NAME+suffix */
int host_path(const struct host *h, char *dst, size_t size, struct error *e, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
#define HOST_PATH(h, dst, e, ...) host_path((h), (dst), sizeof(dst), (e), __VA_ARGS__)

/* One operation per VM at a time, also across a keeper that was killed. -EBUSY after LOCK_TIMEOUT_MS. Closed
 * = unlocked. */
int host_lock(const struct host *h, const char *name, int *ret_fd, struct error *e);
/*
 * Shared: the VM stays one of this host's while another is made from its clean state, whatever operation it has itself (its
 * start may take minutes). Else: it is removed. -ENOENT: there is no such VM.
 */
int host_lock_settings(const struct host *h, const char *name, bool shared, int *ret_fd, struct error *e);
/* -EBUSY when an operation on it is under way; else 0, and the lock is held, or there is none yet and *ret_fd is -1. */
int host_lock_try(const struct host *h, const char *name, int *ret_fd);
/* Removes the lock of a name that is no VM of this host, when nobody holds it. */
void host_lock_sweep(const struct host *h, const char *name);
/*
 * With the VM's lock held: drops what a process that was killed had begun to write for it (".NAME.*" of file_write_atomic()
 * and overlay_create()).
 */
int host_sweep(const struct host *h, const char *name, struct error *e);
/* The lock under which network, filter, guard and probe are changed. */
int host_lock_shared_parts(const struct host *h, int *ret_fd, struct error *e);
int host_free_space_check(const struct host *h, struct error *e);
/* And `mib` more than that, for something that is about to be written. */
int host_free_space_check_for(const struct host *h, uint64_t mib, struct error *e);
/* Has this host that many CPUs and that much memory at all? */
int host_size_check(uint32_t cpus, uint32_t memory_mib, struct error *e);
/* Is that much memory free now? */
int host_free_memory_check(uint32_t memory_mib, struct error *e);

/* Stages. host_step_begin names what is being done; host_step_done reports it with its time. */
void host_step_begin(struct host *h, const char *step);
void host_step_done(struct host *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Waits without holding anything up but this process. */
void host_sleep_ms(unsigned ms);
#endif
