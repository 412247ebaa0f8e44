#ifndef BOXERY_VM_WARM_H
#define BOXERY_VM_WARM_H
/*
 * The warm clean state of one VM: images/NAME@boxery-warm/ with the memory of a guest that has booted and in which nothing of
 * a life has been, and the disk it had then.
 *
 *   overlay run/NAME.qcow2  ->  warm layer disk.qcow2  ->  clean layer of NAME or CLEAN_OF  ->  base
 *
 *   memory         what libvirt saved; restored as often as wanted
 *   disk.qcow2     the overlay of the capture, read-only from then on
 *   overlay.qcow2  an empty overlay on it: the disk of a life is a copy of this file
 *   guest.txt      the listing of the guest at the capture (listing.h)
 *   manifest.env   what all of it is bound to
 *
 * libvirt restores any memory onto any disk without a word, and a memory image onto another QEMU at best not at all. So the
 * manifest names everything that has to be as it was: the files by inode, size and time (checked at every start) and by
 * SHA-256 (made at the capture), the QEMU program, machine, CPU, size, uuid and network card. What does not fit is no fault:
 * the VM boots and is captured again. The image is private to its VM, and readable for its owner only: memory is memory.
 */
#include "vm/image.h"
#include "vm/probe.h"
#include "vm/slot.h"

#define WARM_LABEL "boxery-warm"
#define WARM_FACT_MAX 320
#define WARM_MANIFEST_MAX (16 * 1024)

enum warm_fact { /* in the order in which they are compared */
	WARM_FORMAT,
	WARM_BASE,
	WARM_CLEAN,
	WARM_VIRT,
	WARM_CPU,
	WARM_CPUS,
	WARM_MEMORY_MIB,
	WARM_QEMU,
	WARM_EMULATOR,
	WARM_EMULATOR_IDENTITY,
	WARM_MACHINE,
	WARM_UUID,
	WARM_MAC,
	WARM_TAP,
	WARM_DISK_IDENTITY,
	WARM_OVERLAY_IDENTITY,
	WARM_MEMORY_IDENTITY,
	WARM_GUEST_IDENTITY,
	WARM_DISK_SHA256,
	WARM_MEMORY_SHA256,
	WARM_CAPTURED,
	WARM_FACT_COUNT
};

struct warm_image {
	char disk[VM_PATH_MAX], overlay[VM_PATH_MAX], memory[VM_PATH_MAX], guest[VM_PATH_MAX];
	char fact[WARM_FACT_COUNT][WARM_FACT_MAX];
};

/* What a memory image would have to be for this start. */
struct warm_want {
	const struct settings *s;
	const struct slot *slot;
	const struct base_image *base;
	const struct clean_image *clean;
	const struct virt_choice *virt;
	uint32_t cpus, memory_mib;
};

/* -ENOENT: there is none; -EBADMSG: its manifest cannot be read. */
int warm_load(const struct host *h, const char *vm, struct warm_image *ret, struct error *e);
/* Fills what can be known before a capture, and the same at a start: WARM_FORMAT to WARM_TAP but for emulator and machine. */
int warm_facts_now(struct host *h, const struct warm_want *want, struct warm_image *w, struct error *e);
/* -ESTALE and a sentence: something is not as at the capture. */
int warm_fits(struct host *h, const struct warm_want *want, const struct warm_image *w, struct error *e);
/* The files only: what a life that runs on it depends on. */
int warm_check(const struct host *h, const char *vm, const struct warm_image *w, struct error *e);
int warm_read_listing(const struct warm_image *w, char **ret, struct error *e);
/* It is not used again; the next warm start captures anew. None: a success. */
int warm_drop(const struct host *h, const char *vm, struct error *e);
/* What a capture that was killed has left. */
int warm_sweep(const struct host *h, const char *vm, struct error *e);

/*
 * The end of a capture: the running domain is saved, and its disk run/NAME.qcow2, the memory and the listing become the warm
 * image of the VM. w has its facts. Whatever happens, the domain has ended or is still ours to end; the image in use before
 * stays until the new one takes its place.
 */
int warm_capture(struct host *h, const char *vm, virDomainPtr d, const char *listing, struct warm_image *w, struct error *e);
#endif
