#include "linux/holder.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define COMM_MAX 64

bool holder_find(const char *path, off_t start, off_t length, struct holder *ret)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
	CLEANUP_FREE char *comm = NULL;
	char proc[32];

	/* 0: of another pid namespace; -1: an OFD lock, which belongs to no process. */
	if (fd < 0 || fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK || lock.l_pid <= 0)
		return false;
	ret->pid = lock.l_pid;
	(void)str_copy(ret->name, "?");
	if (str_format(proc, "/proc/%d/comm", (int)ret->pid) == 0 && file_read(AT_FDCWD, proc, COMM_MAX, &comm, NULL, NULL) == 0)
		str_show_n(ret->name, sizeof(ret->name), comm, strcspn(comm, "\n"));
	return true;
}
