#include "base/str.h"
#include "linux/file.h"
#include "vm/disk.h"
#include "vm/image.h"
#include "vm/op.h"
#include "vm/slot.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define GIB (1024ull * 1024 * 1024)

static int check_disk(const struct vm_request *q, const struct base_image *base, struct error *e)
{
	uint64_t size;
	int r = disk_virtual_size(base->disk, &size, e);

	if (r < 0)
		return r;
	if (q->disk_gib * GIB < size)
		return error_set(e, EINVAL,
			"a disk of %u GiB is smaller than the base image %s, which has %llu GiB", q->disk_gib,
			base->name, (unsigned long long)((size + GIB - 1) / GIB));
	return 0;
}

struct slot_use {
	uint32_t slot;
	const char *name;
};

static int slot_is_free(void *userdata, const struct settings *s, struct error *e)
{
	const struct slot_use *u = userdata;

	if (s->slot == u->slot && !str_equal(s->name, u->name))
		return error_set(e, EEXIST, "slot %u is %s's already", u->slot, s->name);
	return 0;
}

static bool same(const struct settings *a, const struct settings *b)
{
	return a->slot == b->slot && a->cpus == b->cpus && a->memory_mib == b->memory_mib &&
	       a->disk_gib == b->disk_gib && str_equal(a->image, b->image);
}

int op_new(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP_FD int lock = -1;
	struct slot_use use = {.slot = q->slot, .name = q->name};
	struct settings s = {.slot = q->slot,
				.cpus = q->cpus,
				.memory_mib = q->memory_mib,
				.disk_gib = q->disk_gib},
			old;
	struct base_image base;
	struct slot place;
	char file[64];
	int r;

	host_step_begin(h, "new");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = slot_derive(&h->conf, q->slot, &place, e);
	if (r == 0)
		r = host_size_check(q->cpus, q->memory_mib, e);
	if (r == 0)
		r = base_load(h, q->image, &base, e);
	if (r == 0)
		r = check_disk(q, &base, e);
	if (r == 0)
		r = settings_each(h, slot_is_free, &use, e);
	if (r < 0)
		return r;
	(void)str_copy(s.name, q->name);
	(void)str_copy(s.image, q->image);
	(void)str_copy(s.base_identity, base.disk_identity);
	r = settings_load(h, q->name, &old, NULL);
	if (r == 0 && !same(&s, &old))
		return error_set(e, EEXIST, "there is a VM named %s already, with other settings", q->name);
	if (r < 0 && r != -ENOENT)
		return settings_load(h, q->name, &old, e);
	(void)str_format(file, "vms/%s.qcow2", q->name);
	/* The settings file comes last: without it there is no VM, and whatever disk lies there is from a try
	 * that ended. */
	if (r == -ENOENT || faccessat(h->image_fd, file, F_OK, 0) < 0) {
		r = overlay_create(h, "vms", q->name, base.disk, q->disk_gib, e);
		if (r == 0)
			r = settings_save(h, &s, e);
		if (r < 0)
			return r;
	}
	(void)str_copy(res->address, place.address);
	host_step_done(h, "%u CPUs, %u MiB, %u GiB on %s, address %s", s.cpus, s.memory_mib, s.disk_gib,
		s.image, place.address);
	return 0;
}
