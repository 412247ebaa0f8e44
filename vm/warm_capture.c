/*
 * A memory image is made of the first moments of a VM that nobody has used: booted on a fresh overlay, quiet, without key,
 * generation, address or any session of a life, because no life has begun in it. A capture never follows a lease: the overlay
 * is new and the guest has just booted.
 *
 * Everything is made in a folder beside the one in use, synced, hashed, bound, and takes its place in one step.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/disk.h"
#include "vm/folder.h"
#include "vm/memory.h"
#include "vm/warm_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* What libvirt has made of the domain: which machine, which program. */
static int note_machine(virDomainPtr d, struct warm_image *w, struct error *e)
{
	int r = memory_machine(d, w->fact[WARM_MACHINE], w->fact[WARM_EMULATOR], WARM_FACT_MAX, e);

	return r < 0 ? r : image_identity(w->fact[WARM_EMULATOR], w->fact[WARM_EMULATOR_IDENTITY], e);
}

/* The memory file is ours before libvirt, which may be another user, writes to it: memory is nobody else's to read. */
static int make_folder(const struct host *h, const char *folder, struct error *e)
{
	char file[WARM_FOLDER_MAX + 16];
	int r = folder_make(h, folder, e);

	if (r == 0)
		r = str_format(file, "%s/memory", folder);
	return r < 0 ? r : file_write_atomic(h->image_fd, file, "", 0, 0600, e);
}

/* The disk of the guest that has just ended becomes the layer that belongs to the memory. */
static int take_disk(const struct host *h, const char *vm, const struct warm_image *made, const char *layer, struct error *e)
{
	char overlay[64];
	const char *to = made->disk + strlen(h->conf.image_dir) + 1;
	int r;

	(void)str_format(overlay, "run/%s.qcow2", vm);
	if (renameat(h->image_fd, overlay, h->image_fd, to) < 0)
		return error_errno(e, errno, "cannot move the captured disk of %s", vm);
	r = folder_seal_file(made->disk, 0444, e);
	/* The name under which it will be. */
	return r < 0 ? r : disk_create_ahead(made->overlay, layer, made->disk, e);
}

static int bind(const struct host *h, const char *folder, const char *listing, struct warm_image *made, struct error *e)
{
	const char *guest = made->guest + strlen(h->conf.image_dir) + 1;
	int r = folder_seal_file(made->memory, 0400, e);

	if (r == 0)
		r = folder_seal_file(made->overlay, 0444, e);
	if (r == 0)
		r = file_write_atomic(h->image_fd, guest, listing, strlen(listing), 0444, e);
	if (r == 0)
		r = image_sha256(made->disk, made->fact[WARM_DISK_SHA256], e);
	if (r == 0)
		r = image_sha256(made->memory, made->fact[WARM_MEMORY_SHA256], e);
	if (r == 0)
		r = image_identity(made->disk, made->fact[WARM_DISK_IDENTITY], e);
	if (r == 0)
		r = image_identity(made->overlay, made->fact[WARM_OVERLAY_IDENTITY], e);
	if (r == 0)
		r = image_identity(made->memory, made->fact[WARM_MEMORY_IDENTITY], e);
	if (r == 0)
		r = image_identity(made->guest, made->fact[WARM_GUEST_IDENTITY], e);
	clock_wall_text(clock_wall_us(), made->fact[WARM_CAPTURED], sizeof(made->fact[0]));
	return r < 0 ? r : warm_manifest_save(h, folder, made, e);
}

static int capture(struct host *h, const char *vm, virDomainPtr d, const char *listing, struct warm_image *w, struct error *e)
{
	char made[WARM_FOLDER_MAX], final[WARM_FOLDER_MAX], layer[VM_PATH_MAX];
	int r;

	warm_folder(vm, final);
	warm_folder_new(vm, made);
	host_step_begin(h, "save");
	r = note_machine(d, w, e);
	if (r == 0)
		r = warm_paths(h, made, w, e);
	if (r == 0)
		r = HOST_PATH(h, layer, e, "%s/disk.qcow2", final);
	if (r == 0)
		r = make_folder(h, made, e);
	if (r == 0)
		r = memory_save(d, w->memory, e);
	if (r < 0)
		return r;
	host_step_done(h, "memory of %s saved", vm);
	host_step_begin(h, "bind");
	r = take_disk(h, vm, w, layer, e);
	if (r == 0)
		r = bind(h, made, listing, w, e);
	if (r == 0)
		r = folder_swap_in(h, made, final, e);
	if (r == 0)
		r = warm_paths(h, final, w, e);
	if (r == 0)
		host_step_done(h, "%s@" WARM_LABEL " is in place", vm);
	return r;
}

int warm_capture(struct host *h, const char *vm, virDomainPtr d, const char *listing, struct warm_image *w, struct error *e)
{
	int r = capture(h, vm, d, listing, w, e);

	/* Only what was being made; the image in use has another name until the end. */
	if (r < 0)
		(void)warm_sweep(h, vm, NULL);
	return r;
}
