#include "vm/folder.h"
#include "base/str.h"
#include "linux/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

int folder_drop(const struct host *h, const char *folder, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	CLEANUP_FD int fd = -1;
	struct dirent *entry;
	int r = 0;

	if (faccessat(h->image_fd, folder, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	r = dir_open(h->image_fd, folder, &fd, e);
	if (r < 0)
		return r;
	d = fdopendir(fd);
	if (!d)
		return error_errno(e, errno, "cannot list %s/%s", h->conf.image_dir, folder);
	(void)TAKE_FD(fd);
	while (r == 0 && (entry = readdir(d)))
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			r = file_remove(dirfd(d), entry->d_name, true, e);
	if (r == 0 && unlinkat(h->image_fd, folder, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = error_errno(e, errno, "cannot remove %s/%s", h->conf.image_dir, folder);
	return r;
}

int folder_make(const struct host *h, const char *folder, struct error *e)
{
	int r = folder_drop(h, folder, e);

	if (r == 0 && mkdirat(h->image_fd, folder, 0755) < 0)
		r = error_errno(e, errno, "cannot make %s/%s", h->conf.image_dir, folder);
	return r;
}

int folder_seal_file(const char *path, mode_t mode, struct error *e)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fchmod(fd, mode) < 0 || fsync(fd) < 0)
		return error_errno(e, errno, "cannot write %s to the disk", path);
	return 0;
}

int folder_swap_in(const struct host *h, const char *made, const char *final, struct error *e)
{
	CLEANUP_FD int images = -1;
	int r;

	if (renameat2(h->image_fd, made, h->image_fd, final, RENAME_EXCHANGE) < 0) {
		if (errno != ENOENT)
			return error_errno(e, errno, "cannot put the new image in place at %s/%s",
				h->conf.image_dir, final);
		if (renameat2(h->image_fd, made, h->image_fd, final, RENAME_NOREPLACE) < 0)
			return error_errno(e, errno, "cannot put the new image in place at %s/%s",
				h->conf.image_dir, final);
	}
	r = dir_open(h->image_fd, "images", &images, e);
	if (r == 0)
		r = dir_sync(images, e);
	/* What has the temporary name now is the old one, or nothing. */
	return r < 0 ? r : folder_drop(h, made, e);
}
