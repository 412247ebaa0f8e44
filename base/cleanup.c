#include "base/cleanup.h"
#include <errno.h>

int fd_close(int fd)
{
	if (fd >= 0) {
		int saved = errno;

		/* Never retried on EINTR: the fd is gone either way, the number may be somebody else's. */
		(void)close(fd);
		errno = saved;
	}
	return -1;
}
