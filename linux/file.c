#include "linux/file.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

/* The temporary file and the sync belong into the folder that really holds the name. */
static int open_parent(int dirfd, const char *name, const char **ret_last, int *ret_fd, struct error *e)
{
	const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
	char parent[PATH_MAX] = ".";
	int fd;

	if (last[0] == '\0' || str_equal(last, ".") || str_equal(last, ".."))
		return error_set(e, EINVAL, "'%s' does not name a file", name);
	if (slash && str_format(parent, "%.*s", slash == name ? 1 : (int)(slash - name), name) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", name);
	fd = openat(dirfd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(e, errno, "cannot open the folder of %s", name);
	*ret_last = last;
	*ret_fd = fd;
	return 0;
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int open_temporary(int dir, const char *last, char *dst, size_t size, int *ret_fd)
{
	for (unsigned attempt = 0;; attempt++) {
		uint32_t r;
		int fd;

		if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r))
			return -EIO;
		if (str_format_n(dst, size, ".%s.%08x", last, r) < 0)
			return -ENAMETOOLONG;
		fd = openat(dir, dst, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd >= 0) {
			*ret_fd = fd;
			return 0;
		}
		if (errno != EEXIST || attempt == 16)
			return -errno;
	}
}

/* Takes fd. The close is checked as well: a network file system may report a failed write only there. */
static int fill_and_close(int fd, const void *data, size_t len, mode_t mode, bool sync)
{
	int r = write_all(fd, data, len);

	if (r == 0 && fchmod(fd, mode) < 0)
		r = -errno;
	if (r == 0 && sync && fsync(fd) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	return r;
}

static int replace(int dirfd, const char *name, const void *data, size_t len, mode_t mode, bool sync, struct error *e)
{
	CLEANUP_FD int dir = -1;
	char temporary[NAME_MAX + 1];
	const char *last;
	int fd = -1, r;

	r = open_parent(dirfd, name, &last, &dir, e);
	if (r < 0)
		return r;
	r = open_temporary(dir, last, temporary, sizeof(temporary), &fd);
	if (r < 0)
		return error_errno(e, -r, "cannot create a new file beside %s", name);
	r = fill_and_close(fd, data, len, mode, sync);
	if (r == 0 && renameat(dir, temporary, dir, last) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dir, temporary, 0);
		return error_errno(e, -r, "cannot write %s", name);
	}
	r = sync ? dir_sync(dir, e) : 0;
	return r < 0 ? error_wrap(e, "%s", name) : 0;
}

int file_write_atomic(int dirfd, const char *name, const void *data, size_t len, mode_t mode, struct error *e)
{
	return replace(dirfd, name, data, len, mode, true, e);
}

int file_write_unsynced(int dirfd, const char *name, const void *data, size_t len, mode_t mode, struct error *e)
{
	return replace(dirfd, name, data, len, mode, false, e);
}

struct content {
	char *data;
	size_t len, cap;
};

/* What is read may be a secret, so nothing is handed back to the allocator unwiped; realloc would do that. */
static void content_free(struct content *c)
{
	if (c->data)
		explicit_bzero(c->data, c->cap);
	free(c->data);
}

static int content_grow(struct content *c, size_t cap)
{
	char *p = malloc(cap);

	if (!p)
		return -ENOMEM;
	if (c->len > 0)
		memcpy(p, c->data, c->len);
	content_free(c);
	c->data = p;
	c->cap = cap;
	return 0;
}

/* Reads one byte more than the limit would allow, so that a file that grows meanwhile is noticed. */
static int read_all(int fd, size_t size_hint, size_t max, struct content *c)
{
	int r = content_grow(c, (size_hint < max ? size_hint : max) + 2);

	while (r == 0) {
		ssize_t n;

		if (c->len > max)
			return -EFBIG;
		if (c->len + 1 == c->cap) {
			r = content_grow(c, c->cap * 2);
			continue;
		}
		n = read(fd, c->data + c->len, c->cap - c->len - 1);
		if (n == 0) {
			c->data[c->len] = '\0';
			return 0;
		}
		if (n > 0)
			c->len += (size_t)n;
		else if (errno != EINTR)
			r = -errno;
	}
	return r;
}

static int check_private(const struct stat *st, const char *name, struct error *e)
{
	if (st->st_uid != geteuid())
		return error_set(e, EACCES,
			"%s belongs to user %u, not to user %u who is to read it; change its owner", name,
			(unsigned)st->st_uid, (unsigned)geteuid());
	if (st->st_mode & 077)
		return error_set(e, EACCES, "%s has mode %04o, so others can reach it; run: chmod 600 %s",
			name, (unsigned)(st->st_mode & 07777), name);
	return 0;
}

static int read_file(
	int dirfd, const char *name, size_t max, bool private, char **ret, size_t *ret_len, struct error *e)
{
	/* O_NONBLOCK: opening a FIFO that somebody put there must not hang. */
	CLEANUP_FD int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	CLEANUP(content_free) struct content c = {0};
	struct stat st;
	int r;

	if (fd < 0)
		return error_errno(e, errno, "cannot open %s", name);
	if (fstat(fd, &st) < 0)
		return error_errno(e, errno, "cannot look at %s", name);
	if (!S_ISREG(st.st_mode))
		return error_set(e, S_ISDIR(st.st_mode) ? EISDIR : EBADMSG, "%s is not a regular file", name);
	if (private) {
		r = check_private(&st, name, e);
		if (r < 0)
			return r;
	}
	if (st.st_size > 0 && (uint64_t)st.st_size > max)
		return error_set(e, EFBIG, "%s is larger than %zu bytes", name, max);
	r = read_all(fd, (size_t)st.st_size, max, &c);
	if (r == -EFBIG)
		return error_set(e, EFBIG, "%s is larger than %zu bytes", name, max);
	if (r < 0)
		return error_errno(e, -r, "cannot read %s", name);
	*ret = TAKE_PTR(c.data);
	if (ret_len)
		*ret_len = c.len;
	return 0;
}

int file_read(int dirfd, const char *name, size_t max, char **ret, size_t *ret_len, struct error *e)
{
	return read_file(dirfd, name, max, false, ret, ret_len, e);
}

int file_read_private(int dirfd, const char *name, size_t max, char **ret, size_t *ret_len, struct error *e)
{
	return read_file(dirfd, name, max, true, ret, ret_len, e);
}

/* The mode is set through an fd that follows no link: mkdir's own mode is cut by the umask. */
static int make_one(const char *path, mode_t mode, bool last, struct error *e)
{
	CLEANUP_FD int fd = -1;

	if (mkdir(path, last ? mode : 0755) < 0)
		return errno == EEXIST ? 0 : error_errno(e, errno, "cannot make the folder %s", path);
	if (!last)
		return 0;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, mode) < 0)
		return error_errno(e, errno, "cannot set the mode of the folder %s", path);
	return 0;
}

int dir_make(const char *path, mode_t mode, struct error *e)
{
	char part[PATH_MAX];
	struct stat st;
	size_t n;
	int r;

	if (path[0] == '\0')
		return error_set(e, EINVAL, "a folder without a name cannot be made");
	if (str_copy(part, path) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", path);
	n = strlen(part);
	while (n > 1 && part[n - 1] == '/')
		part[--n] = '\0';
	for (size_t i = 1; i < n; i++) {
		if (part[i] != '/' || part[i - 1] == '/')
			continue;
		part[i] = '\0';
		r = make_one(part, mode, false, e);
		part[i] = '/';
		if (r < 0)
			return r;
	}
	r = make_one(part, mode, true, e);
	if (r < 0)
		return r;
	if (stat(part, &st) < 0)
		return error_errno(e, errno, "cannot look at %s", path);
	if (!S_ISDIR(st.st_mode))
		return error_set(e, ENOTDIR, "%s exists and is not a folder", path);
	return 0;
}

int dir_open(int dirfd, const char *path, int *ret_fd, struct error *e)
{
	int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return error_errno(e, errno, "cannot open the folder %s", path);
	*ret_fd = fd;
	return 0;
}

int dir_sync(int dirfd, struct error *e)
{
	return fsync(dirfd) < 0 ? error_errno(e, errno, "cannot write a folder to disk") : 0;
}

int file_remove(int dirfd, const char *name, bool missing_ok, struct error *e)
{
	if (unlinkat(dirfd, name, 0) == 0 || (errno == ENOENT && missing_ok))
		return 0;
	return error_errno(e, errno, "cannot remove %s", name);
}
