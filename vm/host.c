#include "vm/host.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/virt.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <time.h>

#define POLL_MS 50
#define MEMINFO_MAX (64 * 1024)

/* QEMU's own user must be able to pass through, and needs no listing. */
static const struct {
	const char *name;
	mode_t mode;
} parts[] = {{"base", 0755}, {"images", 0755}, {"vms", 0711}, {"run", 0711}, {"console", 0711},
	{"broken", 0700}};

int host_path(const struct host *h, char *dst, size_t size, struct error *e, const char *format, ...)
{
	char rest[VM_PATH_MAX];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(rest, sizeof(rest), format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(rest) ||
		str_format_n(dst, size, "%s/%s", h->conf.image_dir, rest) < 0)
		return error_set(e, ENAMETOOLONG,
			"a path below %s is too long; choose a shorter BOXERY_IMAGE_DIR", h->conf.image_dir);
	return 0;
}

int host_open(struct host *h, struct error *e)
{
	char path[VM_PATH_MAX];
	int r;

	r = hostconf_load(&h->conf, e);
	if (r < 0)
		return r;
	r = dir_make(h->conf.image_dir, 0755, e);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(parts); i++) {
		r = HOST_PATH(h, path, e, "%s", parts[i].name);
		if (r == 0)
			r = dir_make(path, parts[i].mode, e);
	}
	if (r == 0)
		r = dir_open(AT_FDCWD, h->conf.image_dir, &h->image_fd, e);
	return r < 0 ? error_wrap(e, "image folder") : 0;
}

static void disconnect(struct host *h)
{
	if (h->conn)
		(void)virConnectClose(h->conn);
	h->conn = NULL;
	h->ahead = false;
}

void host_close(struct host *h)
{
	disconnect(h);
	h->image_fd = fd_close(h->image_fd);
}

void host_connect_ahead(struct host *h)
{
	if (hostconf_load(&h->conf, NULL) < 0)
		return;
	h->conn = virConnectOpen(h->conf.libvirt_uri);
	h->ahead = h->conn != NULL;
	(void)str_copy(h->ahead_uri, h->conf.libvirt_uri);
}

/* A connection of which libvirt's end has gone looks well until it is used. */
static bool ahead_is_good(const struct host *h)
{
	unsigned long version;

	return str_equal(h->ahead_uri, h->conf.libvirt_uri) && virConnectGetLibVersion(h->conn, &version) == 0;
}

int host_connect(struct host *h, struct error *e)
{
	const uint64_t until = clock_boot_us() + CONNECT_TIMEOUT_MS * 1000u;

	if (h->ahead && !ahead_is_good(h))
		disconnect(h);
	h->ahead = false;
	while (!h->conn) {
		h->conn = virConnectOpen(h->conf.libvirt_uri);
		if (!h->conn && clock_boot_us() >= until)
			return virt_error_code(
				e, ECONNREFUSED, "cannot reach libvirt at %s", h->conf.libvirt_uri);
		if (!h->conn)
			host_sleep_ms(POLL_MS);
	}
	return 0;
}

static int lock_file(const struct host *h, const char *file, int create, int how, const char *what, uint64_t timeout_ms,
	int *ret_fd, struct error *e)
{
	const uint64_t until = clock_boot_us() + timeout_ms * 1000u;
	CLEANUP_FD int fd = -1;

	for (;;) {
		struct stat ours, named;

		if (fd < 0)
			fd = openat(h->image_fd, file, O_RDWR | create | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return error_errno(e, errno, "cannot open %s/%s", h->conf.image_dir, file);
		if (flock(fd, how | LOCK_NB) == 0) {
			/* Whoever removes a VM removes its lock too: one without its name locks nothing. */
			if (fstat(fd, &ours) == 0 && fstatat(h->image_fd, file, &named, 0) == 0 &&
				ours.st_ino == named.st_ino)
				break;
			fd = fd_close(fd);
			continue;
		}
		if (errno != EWOULDBLOCK && errno != EINTR)
			return error_errno(e, errno, "cannot lock %s/%s", h->conf.image_dir, file);
		if (clock_boot_us() >= until)
			return error_set(e, EBUSY, "another operation on %s has been running for %llu s",
				what, (unsigned long long)(timeout_ms / 1000));
		host_sleep_ms(POLL_MS);
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int host_lock(const struct host *h, const char *name, int *ret_fd, struct error *e)
{
	char file[64];
	int r = str_format(file, "run/%s.lock", name);

	return r < 0 ? error_errno(e, -r, "%s", name)
		     : lock_file(h, file, O_CREAT, LOCK_EX, name, LOCK_TIMEOUT_MS, ret_fd, e);
}

int host_lock_settings(const struct host *h, const char *name, bool shared, int *ret_fd, struct error *e)
{
	char file[64];
	int r = str_format(file, "vms/%s.env", name);

	return r < 0 ? error_errno(e, -r, "%s", name)
		     : lock_file(h, file, 0, shared ? LOCK_SH : LOCK_EX, name, LOCK_TIMEOUT_MS, ret_fd, e);
}

int host_lock_try(const struct host *h, const char *name, int *ret_fd)
{
	CLEANUP_FD int fd = -1;
	struct stat ours, named;
	char file[64];

	*ret_fd = -1;
	if (str_format(file, "run/%s.lock", name) < 0)
		return 0;
	fd = openat(h->image_fd, file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -EBUSY;
	/* Removed meanwhile, and perhaps made again by somebody else. */
	if (fd >= 0 && (fstat(fd, &ours) < 0 || fstatat(h->image_fd, file, &named, 0) < 0 || ours.st_ino != named.st_ino))
		return -EBUSY;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

void host_lock_sweep(const struct host *h, const char *name)
{
	CLEANUP_FD int fd = -1;
	char file[64];

	if (host_lock_try(h, name, &fd) < 0 || fd < 0)
		return;
	if (str_format(file, "vms/%s.env", name) < 0 || faccessat(h->image_fd, file, F_OK, 0) == 0)
		return;
	if (str_format(file, "run/%s.gen", name) < 0 || faccessat(h->image_fd, file, F_OK, 0) == 0)
		return;
	if (str_format(file, "run/%s.lock", name) == 0)
		(void)unlinkat(h->image_fd, file, 0);
}

static int sweep_folder(const struct host *h, const char *folder, const char *start, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	CLEANUP_FD int fd = -1;
	struct dirent *entry;
	int r = dir_open(h->image_fd, folder, &fd, e);

	if (r < 0)
		return r;
	d = fdopendir(fd);
	if (!d)
		return error_errno(e, errno, "cannot list %s/%s", h->conf.image_dir, folder);
	(void)TAKE_FD(fd);
	while ((entry = readdir(d)))
		if (str_starts(entry->d_name, start) && unlinkat(dirfd(d), entry->d_name, 0) < 0 && errno != ENOENT)
			return error_errno(e, errno, "cannot drop %s/%s/%s", h->conf.image_dir, folder, entry->d_name);
	return 0;
}

int host_sweep(const struct host *h, const char *name, struct error *e)
{
	static const char *const folders[] = {"run", "vms", "console"};
	char start[64];
	int r = str_format(start, ".%s.", name);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(folders); i++)
		r = sweep_folder(h, folders[i], start, e);
	return r;
}

int host_lock_shared_parts(const struct host *h, int *ret_fd, struct error *e)
{
	/* No VM's name starts with a dot. */
	return lock_file(h, "run/.network.lock", O_CREAT, LOCK_EX, "the network", SHARED_LOCK_TIMEOUT_MS, ret_fd, e);
}

int host_free_space_check_for(const struct host *h, uint64_t needed_mib, struct error *e)
{
	struct statvfs s;
	uint64_t mib;

	if (fstatvfs(h->image_fd, &s) < 0)
		return error_errno(e, errno, "cannot ask for the free space of %s", h->conf.image_dir);
	mib = (uint64_t)s.f_bavail * s.f_frsize / (1024 * 1024);
	if (mib < FREE_SPACE_MIN_MIB + needed_mib)
		return error_set(e, ENOSPC, "%s has %llu MiB free; at least %llu MiB are needed to %s a VM", h->conf.image_dir,
			(unsigned long long)mib, (unsigned long long)(FREE_SPACE_MIN_MIB + needed_mib),
			needed_mib ? "capture" : "start");
	return 0;
}

int host_free_space_check(const struct host *h, struct error *e)
{
	return host_free_space_check_for(h, 0, e);
}

int host_size_check(uint32_t cpus, uint32_t memory_mib, struct error *e)
{
	struct sysinfo si;
	uint64_t mib;

	if (sysinfo(&si) < 0)
		return error_errno(e, errno, "cannot ask for this host's memory");
	mib = (uint64_t)si.totalram * si.mem_unit / (1024 * 1024);
	if (memory_mib < MEMORY_MIN_MIB)
		return error_set(e, EINVAL, "a VM with %u MiB of memory would not boot; give it at least %d",
			memory_mib, MEMORY_MIN_MIB);
	if (memory_mib > mib)
		return error_set(e, ENOMEM, "a VM with %u MiB of memory does not fit: this host has %llu MiB",
			memory_mib, (unsigned long long)mib);
	if (cpus == 0 || cpus > (uint32_t)get_nprocs())
		return error_set(e, EINVAL, "a VM with %u CPUs: this host has %d, so 1 to %d are possible",
			cpus, get_nprocs(), get_nprocs());
	return 0;
}

int host_free_memory_check(uint32_t memory_mib, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	uint64_t free_mib;
	const char *line;

	if (file_read(AT_FDCWD, "/proc/meminfo", MEMINFO_MAX, &text, NULL, e) < 0)
		return error_wrap(e, "free memory of this host");
	line = strstr(text, "\nMemAvailable:");
	if (!line)
		return error_set(e, ENODATA, "/proc/meminfo of this host has no line MemAvailable");
	line += strcspn(line, "0123456789");
	for (free_mib = 0; *line >= '0' && *line <= '9'; line++)
		free_mib = free_mib * 10 + (uint64_t)(*line - '0');
	free_mib /= 1024;
	if (free_mib < (uint64_t)memory_mib + MEMORY_SPARE_MIB)
		return error_set(e, ENOMEM,
			"a VM with %u MiB does not fit now: this host has %llu MiB of memory free and %d are kept; "
			"end other VMs first, or give it less",
			memory_mib, (unsigned long long)free_mib, MEMORY_SPARE_MIB);
	return 0;
}

void host_step_begin(struct host *h, const char *step)
{
	(void)str_copy(h->step, step);
	h->step_since_us = clock_boot_us();
}

void host_step_done(struct host *h, const char *format, ...)
{
	struct vm_step m = {.head = MSG_HEAD(VM_STEP, struct vm_step, h->seq)};
	va_list ap;

	if (h->report_fd < 0)
		return;
	(void)str_copy(m.step, h->step);
	m.took_us = clock_boot_us() - h->step_since_us;
	va_start(ap, format);
	(void)vsnprintf(m.text, sizeof(m.text), format, ap);
	va_end(ap);
	/* A keeper that is gone ends this process; a stage nobody hears of is no reason to stop half-way. */
	(void)msg_send(h->report_fd, &m, NULL, 0, NULL);
}

void host_sleep_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	(void)nanosleep(&t, NULL);
}
