#include "base/str.h"
#include "linux/file.h"
#include "vm/connections.h"
#include "vm/disk.h"
#include "vm/image.h"
#include "vm/op.h"
#include "vm/rate.h"
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
	       a->disk_gib == b->disk_gib && str_equal(a->image, b->image) && str_equal(a->clean_of, b->clean_of);
}

/* With a disk of its own, on a base image. */
static int plan_own(struct host *h, const struct vm_request *q, struct settings *s, struct base_image *base, struct error *e)
{
	int r = base_load(h, q->image, base, e);

	if (r == 0)
		r = check_disk(q, base, e);
	if (r < 0)
		return r;
	s->disk_gib = q->disk_gib;
	(void)str_copy(s->image, q->image);
	return str_copy(s->base_identity, base->disk_identity);
}

/*
 * From another VM's clean image: that VM's lock is held as well, so that it is not removed meanwhile. Clones have no
 * clones, so nobody takes two locks the other way round.
 */
static int plan_clone(struct host *h, const struct vm_request *q, struct settings *s, int *ret_lock, struct error *e)
{
	struct settings origin;
	struct clean_image clean;
	int r;

	if (str_equal(q->clean_of, q->name))
		return error_set(e, EINVAL, "%s cannot live from its own clean image only", q->name);
	r = settings_load(h, q->clean_of, &origin, e);
	if (r == 0)
		r = host_lock_settings(h, q->clean_of, true, ret_lock, e);
	if (r == 0)
		r = settings_load(h, q->clean_of, &origin, e);
	if (r < 0)
		return error_wrap(e, "the VM whose clean image %s is to use", q->name);
	if (clean_load(h, q->clean_of, &clean, NULL) == 0) { /* of a patched VM the settings follow later */
		(void)str_copy(origin.image, clean.image);
		(void)str_copy(origin.base_identity, clean.base_identity);
	}
	if (origin.clean_of[0])
		return error_set(e, EINVAL, "%s lives from the clean image of %s itself; name that one", q->clean_of,
			origin.clean_of);
	if (q->image[0] && !str_equal(q->image, origin.image))
		return error_set(e, EINVAL, "%s is on the base image %s, not %s", q->clean_of, origin.image, q->image);
	s->disk_gib = origin.disk_gib;
	(void)str_copy(s->image, origin.image);
	(void)str_copy(s->base_identity, origin.base_identity);
	return str_copy(s->clean_of, q->clean_of);
}

/* 1: there is that very VM already. */
static int made_already(struct host *h, const struct settings *s, struct error *e)
{
	struct settings old;
	char file[64];
	int r = settings_load(h, s->name, &old, NULL);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return settings_load(h, s->name, &old, e);
	if (!same(s, &old))
		return error_set(e, EEXIST, "there is a VM named %s already, with other settings", s->name);
	(void)str_format(file, "vms/%s.qcow2", s->name);
	return s->clean_of[0] || faccessat(h->image_fd, file, F_OK, 0) == 0;
}

/* What is there may be a VM that the keeper's database does not know: never taken over, and never removed. */
static int nothing_there(struct host *h, const char *name, struct error *e)
{
	static const struct {
		const char *folder, *suffix;
	} places[] = {{"vms", ".env"}, {"vms", ".qcow2"}, {"images", "@" CLEAN_LABEL}, {"run", ".qcow2"}, {"broken", ".qcow2"}};
	char file[64];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		(void)str_format(file, "%s/%s%s", places[i].folder, name, places[i].suffix);
		if (fstatat(h->image_fd, file, &st, AT_SYMLINK_NOFOLLOW) == 0)
			return error_set(e, EEXIST,
				"%s/%s is there already, of a VM %s that is not in the database; it was left as it is: choose another "
				"name, or move what is there aside",
				h->conf.image_dir, file, name);
		if (errno != ENOENT)
			return error_errno(e, errno, "cannot look at %s/%s", h->conf.image_dir, file);
	}
	return 0;
}

/* From here on whatever is there of this name is ours, and may be removed when this fails. */
static void say_making(struct host *h)
{
	host_step_begin(h, VM_STEP_MAKING);
	host_step_done(h, "nothing of that name was there");
	host_step_begin(h, "new");
}

int op_new(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP_FD int lock = -1, origin_lock = -1;
	struct slot_use use = {.slot = q->slot, .name = q->name};
	struct settings s = {.slot = q->slot, .cpus = q->cpus, .memory_mib = q->memory_mib};
	struct base_image base;
	struct slot place;
	int r;

	host_step_begin(h, "new");
	(void)str_copy(s.name, q->name);
	r = host_lock(h, q->name, &lock, e);
	if (r == 0 && q->flags & VM_FLAG_FRESH)
		r = nothing_there(h, q->name, e);
	if (r == 0)
		r = slot_derive(&h->conf, q->slot, &place, e);
	if (r == 0)
		r = host_size_check(q->cpus, q->memory_mib, e);
	if (r == 0)
		r = q->clean_of[0] ? plan_clone(h, q, &s, &origin_lock, e) : plan_own(h, q, &s, &base, e);
	if (r == 0)
		r = settings_each(h, slot_is_free, &use, e);
	if (r == 0)
		r = made_already(h, &s, e);
	if (r < 0)
		return r;
	/* The settings file comes last: without it there is no VM, and whatever disk lies there is from a try
	 * that ended. */
	if (r == 0) {
		if (q->flags & VM_FLAG_FRESH)
			say_making(h);
		/* Of a VM that had the slot and whose files were taken away. */
		(void)rate_clear(h, &place, NULL);
		(void)connections_forget(&place, NULL);
		if (!s.clean_of[0])
			r = overlay_create(h, "vms", q->name, base.disk, q->disk_gib, e);
		if (r == 0)
			r = settings_save(h, &s, e);
		if (r < 0)
			return r;
	}
	(void)str_copy(res->address, place.address);
	if (s.clean_of[0])
		host_step_done(h, "%u CPUs, %u MiB, from %s@" CLEAN_LABEL ", address %s", s.cpus, s.memory_mib, s.clean_of,
			place.address);
	else
		host_step_done(h, "%u CPUs, %u MiB, %u GiB on %s, address %s", s.cpus, s.memory_mib, s.disk_gib, s.image,
			place.address);
	return 0;
}
