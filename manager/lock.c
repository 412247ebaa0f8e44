#include "manager/lock.h"
#include "base/cleanup.h"
#include "linux/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int lock_take(const char *runtime_dir, int *ret_fd, struct error *e)
{
	/* Ends with the open file and not, as the older kind does, with any close in the process. */
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	CLEANUP_FD int dir = -1, fd = -1;
	char text[32];
	ssize_t n;
	int r;

	r = dir_make(runtime_dir, 0700, e);
	if (r == 0)
		r = dir_open(AT_FDCWD, runtime_dir, &dir, e);
	if (r < 0)
		return r;
	fd = openat(dir, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(e, errno, "cannot open %s/" LOCK_NAME, runtime_dir);
	if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
		if (errno != EAGAIN && errno != EACCES)
			return error_errno(e, errno, "cannot lock %s/" LOCK_NAME, runtime_dir);
		n = pread(fd, text, sizeof(text) - 1, 0);
		text[n > 0 ? n : 0] = '\0';
		text[strspn(text, "0123456789")] = '\0';
		return error_set(e, EALREADY,
			"the runner service runs already (process %s); there can be one",
			text[0] ? text : "unknown");
	}
	n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
		return error_errno(e, errno, "cannot write %s/" LOCK_NAME, runtime_dir);
	*ret_fd = TAKE_FD(fd);
	return 0;
}
