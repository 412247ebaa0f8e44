#include "layers/fetch.h"
#include "base/str.h"
#include "layers/check.h"
#include "layers/sha256.h"
#include "linux/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file of that sum, checked again. 1: good; 0: not there, or damaged and removed. */
static int use_cached(int dir, const char *sha256, uint64_t *ret_size, struct error *e)
{
	CLEANUP_FD int fd = openat(dir, sha256, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char sum[LAYER_SHA256_MAX];
	struct stat st;
	int r;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(e, errno, "cannot read the cached %s", sha256);
	r = sha256_fd(fd, sha256, sum, e);
	if (r < 0)
		return r;
	if (str_equal(sum, sha256)) {
		*ret_size = (uint64_t)st.st_size;
		return 1;
	}
	return file_remove(dir, sha256, true, e);
}

/*
 * The file a download is written to, locked and empty. Who waited for another's lock may then hold the file under its
 * final name, so the name is compared with what was locked.
 */
static int open_part(int dir, const char *part, int *ret_fd, struct error *e)
{
	for (;;) {
		CLEANUP_FD int fd = openat(dir, part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		struct stat mine, named;

		if (fd < 0)
			return error_errno(e, errno, "cannot make a file in the cache");
		if (flock(fd, LOCK_EX) < 0)
			return error_errno(e, errno, "cannot lock a file in the cache");
		if (fstat(fd, &mine) < 0)
			return error_errno(e, errno, "cannot look at a file in the cache");
		if (fstatat(dir, part, &named, AT_SYMLINK_NOFOLLOW) < 0 || named.st_ino != mine.st_ino)
			continue;
		if (ftruncate(fd, 0) < 0)
			return error_errno(e, errno, "cannot empty a file in the cache");
		*ret_fd = TAKE_FD(fd);
		return 0;
	}
}

static int download(const struct fetch_request *q, int fd, uint64_t *ret_size, struct error *e)
{
	char sum[LAYER_SHA256_MAX];
	int r = fetch_http(q, fd, sum, ret_size, e);

	if (r < 0)
		return r;
	if (!str_equal(sum, q->sha256))
		return error_set(e, EBADMSG, "%s: its SHA-256 is %s, but %s was expected; nothing was kept", q->url, sum,
				q->sha256);
	if (fchmod(fd, 0644) < 0 || fsync(fd) < 0)
		return error_errno(e, errno, "cannot write the download to disk");
	return 0;
}

static int fetch_into(int dir, const struct fetch_request *q, struct fetch_result *ret, struct error *e)
{
	CLEANUP_FD int fd = -1;
	char part[LAYER_SHA256_MAX + 8];
	int r;

	r = use_cached(dir, q->sha256, &ret->size, e);
	if (r != 0) {
		ret->cached = r > 0;
		return r < 0 ? r : 0;
	}
	if (str_format(part, ".%s.part", q->sha256) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", q->sha256);
	r = open_part(dir, part, &fd, e);
	if (r < 0)
		return r;
	/* Another process may have finished the same download while this one waited for the lock. */
	r = use_cached(dir, q->sha256, &ret->size, e);
	if (r > 0) {
		ret->cached = true;
		return file_remove(dir, part, true, e);
	}
	if (r == 0)
		r = download(q, fd, &ret->size, e);
	if (r == 0 && renameat(dir, part, dir, q->sha256) < 0)
		r = error_errno(e, errno, "cannot put the download in its place");
	if (r < 0) {
		(void)unlinkat(dir, part, 0);
		return r;
	}
	return dir_sync(dir, e);
}

int fetch(const struct fetch_request *q, struct fetch_result *ret, struct error *e)
{
	struct fetch_result result = { .cached = false };
	CLEANUP_FD int dir = -1;
	char folder[480];
	int r;

	r = fetch_url_check(q->url, e);
	if (r < 0)
		return r;
	if (check_sha256(q->sha256, e) < 0)
		return error_set(e, EINVAL, "--sha256: '%.70s' is not a SHA-256: 64 digits of 0-9 a-f", q->sha256);
	if (str_format(folder, "%s/sha256", q->cache_dir) < 0 ||
			str_format(result.path, "%s/%s", folder, q->sha256) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", q->cache_dir);
	r = dir_make(folder, 0755, e);
	if (r == 0)
		r = dir_open(AT_FDCWD, folder, &dir, e);
	if (r == 0)
		r = fetch_into(dir, q, &result, e);
	if (r < 0)
		return r;
	*ret = result;
	return 0;
}
