#include "guest/begin.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int read_all(int fd, char **ret, size_t max, struct error *e)
{
	CLEANUP_FREE char *data = calloc(1, max + 1);
	size_t len = 0;
	ssize_t n;

	if (!data)
		return error_errno(e, ENOMEM, "cannot read");
	while (len < max && (n = read(fd, data + len, max - len)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(e, errno, "cannot read");
		len += (size_t)n;
	}
	if (len == max)
		return error_set(e, EFBIG, "more than %zu bytes", max);
	if (strlen(data) != len)
		return error_set(e, EBADMSG, "a NUL byte");
	*ret = TAKE_PTR(data);
	return 0;
}

int read_path(const char *path, char **ret, size_t max, struct error *e)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(e, errno, "%s", path);
	return read_all(fd, ret, max, e) < 0 ? error_wrap(e, "%s", path) : 0;
}

int put_file(const char *path, const void *data, size_t len, unsigned mode, struct error *e)
{
	CLEANUP_FD int fd = -1;
	char beside[256];

	if (str_format(beside, "%s.new", path) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", path);
	(void)unlink(beside);
	fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, len) != (ssize_t)len || fchmod(fd, mode) < 0 || rename(beside, path) < 0)
		return error_errno(e, errno, "cannot write %s", path);
	return 0;
}

int put_text(const char *path, const char *text, struct error *e)
{
	CLEANUP_FREE char *old = NULL;
	struct stat st;

	/* A link to elsewhere is replaced, whatever it leads to. */
	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)strlen(text) &&
		read_path(path, &old, strlen(text) + 1, NULL) == 0 && str_equal(old, text))
		return 0;
	return put_file(path, text, strlen(text), 0644, e);
}
