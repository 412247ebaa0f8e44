#include "manager/logs.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/file.h"
#include "linux/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 4096
#define HINT_TAIL (64 * 1024)

static int read_tail(const char *path, char **ret, size_t *ret_len)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	CLEANUP_FREE char *data = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	data = malloc(LOGS_ONE_MAX);
	if (!data)
		return -ENOMEM;
	n = pread(fd, data, LOGS_ONE_MAX, st.st_size > LOGS_ONE_MAX ? st.st_size - LOGS_ONE_MAX : 0);
	if (n < 0)
		return -errno;
	*ret_len = (size_t)n;
	*ret = TAKE_PTR(data);
	return 0;
}

static int open_folder(const struct hostconf *host, int *ret_fd, struct error *e)
{
	char path[sizeof(host->state_dir) + sizeof(LOGS_FOLDER)];
	int r;

	(void)str_format(path, "%s/" LOGS_FOLDER, host->state_dir);
	r = dir_make(path, 0700, e);
	return r < 0 ? r : dir_open(AT_FDCWD, path, ret_fd, e);
}

enum hint logs_keep(const struct hostconf *host, const struct work *w)
{
	CLEANUP_FREE char *data = NULL;
	CLEANUP_FD int dir = -1;
	struct error e = ERROR_INIT;
	char path[512], name[LEASE_ID_MAX + 8];
	size_t len = 0;

	if (!w->lease[0] || !name_valid(w->vm) || str_format(path, "%s/console/%s.log", host->image_dir, w->vm) < 0 ||
		read_tail(path, &data, &len) < 0 || len == 0)
		return HINT_NONE; /* none is a VM without a console, or somebody else's folder */
	(void)str_format(name, "%s.log", w->lease);
	if (open_folder(host, &dir, &e) < 0 || file_write_atomic(dir, name, data, len, 0600, &e) < 0)
		log_warning("the console of %s is not kept: %s", w->vm, e.text);
	return hint_of_console(len > HINT_TAIL ? data + len - HINT_TAIL : data, len > HINT_TAIL ? HINT_TAIL : len);
}

struct kept {
	char name[LEASE_ID_MAX + 8];
	time_t at;
	uint64_t size;
};

static int newest_first(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	return x->at > y->at ? -1 : x->at < y->at;
}

static size_t list(DIR *d, struct kept *files)
{
	struct dirent *entry;
	size_t n = 0;

	while (n < FILES_MAX && (entry = readdir(d))) {
		struct stat st;
		size_t len = strlen(entry->d_name);

		if (len < 5 || strcmp(entry->d_name + len - 4, ".log") != 0 || str_copy(files[n].name, entry->d_name) < 0 ||
			fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			continue;
		files[n].at = st.st_mtime;
		files[n].size = (uint64_t)st.st_size;
		n++;
	}
	return n;
}

void logs_prune(const struct hostconf *host, uint64_t wall_us, uint64_t keep_ms)
{
	CLEANUP_FREE struct kept *files = calloc(FILES_MAX, sizeof(*files));
	time_t oldest = (time_t)(wall_us / 1000000) - (time_t)(keep_ms / 1000);
	uint64_t sum = 0;
	size_t n;
	int fd = -1;
	DIR *d;

	if (!files || open_folder(host, &fd, NULL) < 0)
		return;
	d = fdopendir(fd);
	if (!d) {
		(void)fd_close(fd);
		return;
	}
	n = list(d, files);
	qsort(files, n, sizeof(*files), newest_first);
	for (size_t i = 0; i < n; i++) {
		sum += files[i].size;
		if (sum > LOGS_ALL_MAX || files[i].at < oldest || i >= FILES_MAX / 2)
			(void)file_remove(dirfd(d), files[i].name, true, NULL);
	}
	(void)closedir(d);
}
