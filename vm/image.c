#include "vm/image.h"
#include "base/str.h"
#include "linux/file.h"
#include "linux/spawn.h"
#include "vm/disk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define OUTPUT_MAX (64 * 1024)

int image_identity(const char *path, char ret[static IDENTITY_MAX], struct error *e)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return error_errno(e, errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(e, EINVAL, "%s is not a regular file", path);
	return str_format_n(ret, IDENTITY_MAX, "%llu:%llu:%lld.%09ld", (unsigned long long)st.st_ino,
		(unsigned long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

static bool is_sha256(const char *s)
{
	return strspn(s, "0123456789abcdef") >= SHA256_TEXT - 1;
}

int image_sha256(const char *path, char ret[static SHA256_TEXT], struct error *e)
{
	static const char *const argv[] = {"sha256sum", NULL};
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	CLEANUP_FREE char *out = NULL;
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return error_errno(e, errno, "cannot read %s", path);
	o.program = argv[0];
	o.argv = argv;
	o.search_path = true;
	o.stdin_fd = fd;
	r = spawn_capture(&o, HASH_TIMEOUT_MS, OUTPUT_MAX, &out, e);
	if (r < 0)
		return error_wrap(e, "checksum of %s", path);
	if (!is_sha256(out))
		return error_set(e, EIO, "sha256sum answered nonsense for %s", path);
	memcpy(ret, out, SHA256_TEXT - 1);
	ret[SHA256_TEXT - 1] = '\0';
	return 0;
}

struct manifest {
	char arch[16], kernel[128], initrd[128], cmdline[1024], sha256[SHA256_TEXT];
};

static int on_manifest(void *userdata, const char *key, const char *value, struct error *e)
{
	struct manifest *m = userdata;
	int r = 0;

	if (str_equal(key, "ARCH"))
		r = str_copy(m->arch, value);
	else if (str_equal(key, "KERNEL"))
		r = str_copy(m->kernel, value);
	else if (str_equal(key, "INITRD"))
		r = str_copy(m->initrd, value);
	else if (str_equal(key, "CMDLINE"))
		r = str_copy(m->cmdline, value);
	else if (str_equal(key, "DISK_SHA256"))
		r = str_copy(m->sha256, value);
	/* The builder records more than is needed here. */
	return r < 0 ? error_set(e, EINVAL, "%s is too long", key) : 0;
}

/* Debian and GitHub have names of their own for the two architectures. */
static const char *arch_name(const char *s)
{
	if (str_equal(s, "amd64") || str_equal(s, "x64"))
		return "x86_64";
	return str_equal(s, "arm64") ? "aarch64" : s;
}

static int manifest_check(const struct manifest *m, const char *shown, struct error *e)
{
	struct utsname u;

	if (!m->arch[0] || !m->kernel[0] || !m->initrd[0] || !m->cmdline[0] || !is_sha256(m->sha256))
		return error_set(e, EBADMSG,
			"%s: one of ARCH, KERNEL, INITRD, CMDLINE and DISK_SHA256 is missing; build the "
			"image again",
			shown);
	if (strchr(m->kernel, '/') || strchr(m->initrd, '/') || m->kernel[0] == '.' || m->initrd[0] == '.')
		return error_set(e, EBADMSG, "%s: KERNEL and INITRD are names of files beside it", shown);
	if (uname(&u) == 0 && !str_equal(arch_name(m->arch), u.machine))
		return error_set(
			e, EOPNOTSUPP, "%s: the image is for %s, this host is %s", shown, m->arch, u.machine);
	return 0;
}

int base_load(const struct host *h, const char *name, struct base_image *ret, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	struct error local = ERROR_INIT;
	struct base_image b = {0};
	struct manifest m = {0};
	char path[VM_PATH_MAX];
	size_t len;
	int r;

	r = name_check(name, "image name", e);
	if (r == 0)
		r = HOST_PATH(h, path, e, "base/%s/manifest.env", name);
	if (r < 0)
		return r;
	r = file_read(AT_FDCWD, path, ENVFILE_MAX, &data, &len, &local);
	if (r == -ENOENT)
		return error_set(e, ENOENT,
			"there is no base image named %s in %s/base; make it with boxery-host build-base",
			name, h->conf.image_dir);
	if (r < 0)
		return error_set(e, local.code, "%s", local.text);
	r = envfile_parse(path, data, len, on_manifest, &m, e);
	if (r == 0)
		r = manifest_check(&m, path, e);
	if (r == 0)
		r = HOST_PATH(h, b.disk, e, "base/%s/disk.qcow2", name);
	if (r == 0)
		r = HOST_PATH(h, b.kernel, e, "base/%s/%s", name, m.kernel);
	if (r == 0)
		r = HOST_PATH(h, b.initrd, e, "base/%s/%s", name, m.initrd);
	if (r == 0)
		r = image_identity(b.disk, b.disk_identity, e);
	if (r < 0)
		return r;
	(void)str_copy(b.name, name);
	(void)str_copy(b.arch, arch_name(m.arch));
	(void)str_copy(b.cmdline, m.cmdline);
	(void)str_copy(b.sha256, m.sha256);
	*ret = b;
	return 0;
}

int base_intact(const struct base_image *base, char ret_sha256[static SHA256_TEXT], struct error *e)
{
	int r = image_sha256(base->disk, ret_sha256, e);

	if (r == 0 && !str_equal(ret_sha256, base->sha256))
		return error_set(e, EBADMSG,
			"the base image %s is damaged: its checksum is %s, its manifest says %s; build it again", base->name,
			ret_sha256, base->sha256);
	return r;
}

int base_load_any(const struct host *h, struct base_image *ret, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	CLEANUP_FD int fd = -1;
	struct dirent *entry;
	int r;

	r = dir_open(h->image_fd, "base", &fd, e);
	if (r < 0)
		return r;
	d = fdopendir(fd);
	if (!d)
		return error_errno(e, errno, "cannot list %s/base", h->conf.image_dir);
	(void)TAKE_FD(fd);
	while ((entry = readdir(d)))
		if (name_valid(entry->d_name) && base_load(h, entry->d_name, ret, NULL) == 0)
			return 0;
	return error_set(e, ENOENT, "there is no base image yet; make one with boxery-host build-base");
}

int overlay_create(const struct host *h, const char *folder, const char *name, const char *backing,
	uint32_t size_gib, struct error *e)
{
	char temporary[64], final[64], path[VM_PATH_MAX];
	int r;

	(void)str_format(temporary, "%s/.%s.qcow2.new", folder, name);
	(void)str_format(final, "%s/%s.qcow2", folder, name);
	r = HOST_PATH(h, path, e, "%s", temporary);
	if (r == 0)
		r = file_remove(h->image_fd, temporary, true, e);
	if (r == 0)
		r = disk_create(path, backing, size_gib, e);
	if (r == 0 && renameat(h->image_fd, temporary, h->image_fd, final) < 0)
		r = error_errno(e, errno, "cannot move the new disk to %s/%s", h->conf.image_dir, final);
	return r < 0 ? error_wrap(e, "new disk of %s", name) : 0;
}

#define EMPTY_OVERLAY_MAX (8 * 1024 * 1024)
static int copy_file(int from, int to)
{
	ssize_t n = 0;
	size_t total = 0;

	while (total < EMPTY_OVERLAY_MAX && (n = copy_file_range(from, NULL, to, NULL, EMPTY_OVERLAY_MAX, 0)) > 0)
		total += (size_t)n;
	if (n < 0)
		return -errno;
	return total == EMPTY_OVERLAY_MAX ? -EFBIG : 0;
}

int overlay_copy(const struct host *h, const char *folder, const char *name, const char *empty, struct error *e)
{
	CLEANUP_FD int from = open(empty, O_RDONLY | O_CLOEXEC), to = -1;
	char temporary[64], final[64];
	int r;

	(void)str_format(temporary, "%s/.%s.qcow2.new", folder, name);
	(void)str_format(final, "%s/%s.qcow2", folder, name);
	if (from < 0)
		return error_errno(e, errno, "%s", empty);
	r = file_remove(h->image_fd, temporary, true, e);
	if (r < 0)
		return r;
	to = openat(h->image_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	r = to < 0 ? -errno : copy_file(from, to);
	if (r == 0 && renameat(h->image_fd, temporary, h->image_fd, final) < 0)
		r = -errno;
	return r < 0 ? error_errno(e, -r, "new disk of %s", name) : 0;
}

int overlay_remove(const struct host *h, const char *folder, const char *name, struct error *e)
{
	char file[64];
	int r;

	(void)str_format(file, "%s/.%s.qcow2.new", folder, name);
	r = file_remove(h->image_fd, file, true, e);
	if (r < 0)
		return error_wrap(e, "cannot drop a disk of %s in %s", name, h->conf.image_dir);
	(void)str_format(file, "%s/%s.qcow2", folder, name);
	r = file_remove(h->image_fd, file, true, e);
	return r < 0 ? error_wrap(e, "cannot drop a disk of %s in %s", name, h->conf.image_dir) : 0;
}
