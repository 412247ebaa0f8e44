/*
 * What this host can bear. Before a start: the VMs that run or are starting, with all the memory they may use, and the new one
 * fit into the host's memory (a guest that has not touched its memory yet will); what is free right now is enough for the new
 * one and for those that are just starting; and the image folder has some room for overlays.
 */
#include "base/parse.h"
#include "base/str.h"
#include "linux/file.h"
#include "pool/keeper.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>

#define MEMINFO_MAX (64 * 1024)

/* "KEY:   123 kB" of /proc/meminfo, in MiB. */
static int meminfo_mib(const char *text, const char *key, uint64_t *ret, struct error *e)
{
	const char *at = strstr(text, key);
	char digits[24] = "";
	uint64_t kib = 0;
	size_t n;

	if (at) {
		at += strlen(key);
		at += strspn(at, " \t");
		n = strspn(at, "0123456789");
		if (n < sizeof(digits))
			memcpy(digits, at, n);
	}
	if (parse_u64(digits, key, 1, UINT64_MAX, &kib, NULL) < 0)
		return error_set(e, EIO, "/proc/meminfo has no %s", key);
	*ret = kib / 1024;
	return 0;
}

static int memory_mib(uint64_t *ret_total, uint64_t *ret_available, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	int r = file_read(AT_FDCWD, KEEPER_MEMINFO, MEMINFO_MAX, &text, NULL, e);

	if (r == 0)
		r = meminfo_mib(text, "MemTotal:", ret_total, e);
	if (r == 0 && ret_available)
		r = meminfo_mib(text, "MemAvailable:", ret_available, e);
	return r;
}

int host_memory_total_mib(uint64_t *ret, struct error *e)
{
	return memory_mib(ret, NULL, e);
}

int host_disk_mib(const struct keeper *k, uint64_t *ret_free, uint64_t *ret_total, struct error *e)
{
	struct statvfs fs;

	if (statvfs(k->conf.image_dir, &fs) < 0)
		return error_errno(e, errno == ENOENT ? ENODEV : errno, "%s (the image folder; 'boxery-host init' makes it)",
				k->conf.image_dir);
	*ret_free = (uint64_t)fs.f_bavail * fs.f_frsize / (1024 * 1024);
	*ret_total = (uint64_t)fs.f_blocks * fs.f_frsize / (1024 * 1024);
	return 0;
}

static uint64_t needs_mib(const struct keeper_vm *v)
{
	const struct pool_settings *set = pool_settings(v->k, v->row.pool);

	return set->memory_mib ? set->memory_mib : v->row.memory_mib;
}

/* Libvirt's test driver has no guests, and so none that use memory. */
static bool has_real_guests(const struct keeper *k)
{
	return !str_starts(k->conf.libvirt_uri, "test:") && !str_starts(k->conf.libvirt_uri, "test+");
}

static int memory_room(const struct keeper_vm *v, struct error *e)
{
	const struct keeper *k = v->k;
	uint64_t total = 0, available = 0, running = 0, starting = 0, mine = needs_mib(v);
	unsigned n = 0;
	int r = memory_mib(&total, &available, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < k->n_vms; i++) {
		const struct keeper_vm *other = k->vms[i];
		bool starts = other->row.state == STATE_STARTING ||
				(other->op && other->op->request.head.type == VM_START);

		if (other == v || (!starts && !other->running))
			continue;
		running += needs_mib(other);
		n++;
		if (starts && !other->running)
			starting += needs_mib(other);
	}
	if (running + mine + KEEPER_MEMORY_SPARE_MIB > total)
		return error_set(e, ENOMEM, "the host has %" PRIu64 " MiB of memory: %u VMs that run may use %" PRIu64
				" of it, this one needs %" PRIu64 ", and %d are left to the host", total, n, running, mine,
				KEEPER_MEMORY_SPARE_MIB);
	if (starting + mine + KEEPER_MEMORY_SPARE_MIB > available)
		return error_set(e, ENOMEM, "the host has %" PRIu64 " MiB of memory free: this VM needs %" PRIu64
				", those that are starting %" PRIu64 ", and %d are left to the host", available, mine, starting,
				KEEPER_MEMORY_SPARE_MIB);
	return 0;
}

int host_room(const struct keeper_vm *v, struct error *e)
{
	uint64_t free_mib, total_mib;
	int r = has_real_guests(v->k) ? memory_room(v, e) : 0;

	if (r == 0)
		r = host_disk_mib(v->k, &free_mib, &total_mib, e);
	if (r == 0 && free_mib < KEEPER_DISK_SPARE_MIB)
		r = error_set(e, ENOSPC, "the host has %" PRIu64 " MiB of disk free in %s; no VM is started with less than %d",
				free_mib, v->k->conf.image_dir, KEEPER_DISK_SPARE_MIB);
	return r;
}
