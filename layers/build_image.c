/* From a root folder to the files of an image, and the last look at what is in it. */
#include "base/str.h"
#include "layers/build.h"
#include "layers/sha256.h"
#include "linux/file.h"
#include "linux/spawn.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define SECTOR_SIZE 512u
#define PACKAGES_FILE "packages.txt"
#define PACKAGES_MAX (4u << 20)

/* The one file in root/boot whose name starts so. */
static int find_boot_file(struct build *b, const char *prefix, char *dst, size_t size, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	struct dirent *entry;
	char folder[440], found[256] = "";

	if (str_format(folder, "%s/boot", b->root) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->root);
	d = opendir(folder);
	if (!d)
		return error_set(e, ENOENT, "the image has no /boot: no layer installs a kernel");
	while ((entry = readdir(d)) != NULL) {
		if (!str_starts(entry->d_name, prefix))
			continue;
		if (found[0])
			return error_set(e, EINVAL, "two kernels in the image: %s and %s; one layer must install one", found,
					entry->d_name);
		if (str_copy(found, entry->d_name) < 0)
			return error_errno(e, ENAMETOOLONG, "%s", entry->d_name);
	}
	if (!found[0])
		return error_set(e, ENOENT, "no %s* in the image's /boot: no layer installs a kernel", prefix);
	return str_format_n(dst, size, "%s/%s", folder, found);
}

static int copy_file(struct build *b, const char *from, const char *name, struct error *e)
{
	char to[440];
	const char *const argv[] = { "install", "-m", "0644", "--", from, to, NULL };

	if (str_format(to, "%s/%s", b->work, name) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->work);
	return build_run(b, argv[0], argv, BUILD_TOOL_TIMEOUT_MS, e);
}

int build_kernel(struct build *b, struct error *e)
{
	struct error why = ERROR_INIT;
	char path[700], unpacked[440];
	int r = find_boot_file(b, "vmlinuz-", path, sizeof(path), e);

	if (r < 0)
		return r;
	if (str_format(unpacked, "%s/vmlinuz", b->work) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->work);
	r = b->q->plan.arch == LAYER_AMD64 ? kernel_unpack(path, unpacked, &why) : -EOPNOTSUPP;
	if (r == 0) {
		build_say(b, "kernel", "%s, unpacked", strrchr(path, '/') + 1);
	} else {
		r = copy_file(b, path, "vmlinuz", e);
		if (r < 0)
			return r;
		build_say(b, "kernel", "%s%s%s", strrchr(path, '/') + 1, why.code ? ", as it is: " : "", why.text);
	}
	r = find_boot_file(b, "initrd.img-", path, sizeof(path), e);
	return r < 0 ? r : copy_file(b, path, "initrd", e);
}

/* begin compares this with the disk it finds, and grows the file system when a VM was given a larger one. */
static int write_disk_sectors(struct build *b, struct error *e)
{
	char folder[440], text[32];
	CLEANUP_FD int fd = -1;
	int r;

	if (str_format(folder, "%s/var/lib/boxery", b->root) < 0 ||
			str_format(text, "%llu\n", (unsigned long long)b->manifest.disk_size / SECTOR_SIZE) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->root);
	r = dir_make(folder, 0755, e);
	if (r == 0)
		r = dir_open(AT_FDCWD, folder, &fd, e);
	return r < 0 ? r : file_write_atomic(fd, "disk-sectors", text, strlen(text), 0644, e);
}

static int make_raw(struct build *b, const char *raw, struct error *e)
{
	/* Everything is written now: a guest that finishes this in the background would fill every overlay with zeros. */
	const char *const argv[] = { "mkfs.ext4", "-q", "-F", "-L", "root", "-m", "0", "-E",
		"lazy_itable_init=0,lazy_journal_init=0", "-d", b->root, raw, NULL };
	CLEANUP_FD int fd = open(raw, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)b->manifest.disk_size) < 0)
		return error_errno(e, errno, "cannot make %s", raw);
	return build_run(b, argv[0], argv, BUILD_TOOL_TIMEOUT_MS, e);
}

int build_disk(struct build *b, struct error *e)
{
	char raw[440], disk[440];
	const char *const convert[] = { "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk, NULL };
	CLEANUP_FD int fd = -1;
	struct stat st;
	int r;

	if (str_format(raw, "%s/disk.raw", b->work) < 0 || str_format(disk, "%s/%s", b->work, MANIFEST_DISK) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->work);
	r = write_disk_sectors(b, e);
	if (r == 0)
		r = make_raw(b, raw, e);
	if (r == 0)
		r = build_run(b, convert[0], convert, BUILD_TOOL_TIMEOUT_MS, e);
	if (r < 0)
		return r;
	fd = open(disk, O_RDONLY | O_CLOEXEC);
	if (unlink(raw) < 0 || fd < 0 || fstat(fd, &st) < 0 || fchmod(fd, 0644) < 0 || fsync(fd) < 0)
		return error_errno(e, errno, "cannot finish %s", disk);
	b->manifest.disk_file_size = (uint64_t)st.st_size;
	return sha256_fd(fd, disk, b->manifest.disk_sha256, e);
}

static int refuse_matching(struct build *b, const char *folder, const char *prefix, const char *why, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	struct dirent *entry;
	char path[700];

	if (str_format(path, "%s%s", b->root, folder) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->root);
	d = opendir(path);
	while (d && (entry = readdir(d)) != NULL)
		if (str_starts(entry->d_name, prefix) && entry->d_name[0] != '.')
			return error_set(e, EINVAL, "%s/%s is in the image; %s", folder, entry->d_name, why);
	return 0;
}

static int refuse_homes(struct build *b, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	struct dirent *entry;
	char path[440];
	int r = refuse_matching(b, "/root/.ssh", "", "keys come with each life", e);

	if (str_format(path, "%s/home", b->root) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->root);
	d = opendir(path);
	while (r == 0 && d && (entry = readdir(d)) != NULL) {
		char folder[300];

		if (entry->d_name[0] != '.' && str_format(folder, "/home/%s/.ssh", entry->d_name) == 0)
			r = refuse_matching(b, folder, "", "keys come with each life", e);
	}
	return r;
}

/* Layers are free to do what they like; these are what no image may have, and what every image must. */
int build_check(struct build *b, struct error *e)
{
	CLEANUP_FREE char *id = NULL;
	char path[440];
	struct stat st;
	int r = refuse_matching(b, "/etc/ssh", "ssh_host_", "each life gets a host key of its own from the host", e);

	if (r == 0)
		r = refuse_homes(b, e);
	if (r < 0)
		return r;
	if (str_format(path, "%s/usr/lib/boxery/begin", b->root) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->root);
	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IXUSR))
		return error_set(e, EINVAL, "/usr/lib/boxery/begin is not in the image; one of the layers must be debian");
	if (str_format(path, "%s/etc/machine-id", b->root) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->root);
	r = file_read(AT_FDCWD, path, 256, &id, NULL, NULL);
	if (r == 0 && id[0] && !str_starts(id, "uninitialized"))
		return error_set(e, EINVAL, "/etc/machine-id in the image is not empty; all its VMs would be one machine");
	return 0;
}

int build_record(struct build *b, struct error *e)
{
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	CLEANUP_FREE char *text = NULL;
	char admin[460];
	const char *const argv[] = { "dpkg-query", admin, "-W", "-f", "${binary:Package} ${Version}\n", NULL };
	int r;

	if (str_format(admin, "--admindir=%s/var/lib/dpkg", b->root) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->root);
	o.program = argv[0];
	o.argv = argv;
	o.search_path = true;
	r = spawn_capture(&o, BUILD_TOOL_TIMEOUT_MS, PACKAGES_MAX, &text, e);
	return r < 0 ? r : file_write_atomic(b->work_fd, PACKAGES_FILE, text, strlen(text), 0644, e);
}
