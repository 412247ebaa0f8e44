#ifndef BOXERY_LINUX_HOLDER_H
#define BOXERY_LINUX_HOLDER_H
/*
 * Who holds a POSIX lock (fcntl F_SETLK) on a file: what the kernel says, so a pid that is true at this moment. Not for a file
 * that this process has locked itself: closing any descriptor of it drops those locks.
 */
#include <stdbool.h>
#include <sys/types.h>

#define HOLDER_NAME_MAX 68 /* the kernel's 15 bytes, escaped */

struct holder {
	pid_t pid;
	char name[HOLDER_NAME_MAX]; /* of its program, printable; "?" when that cannot be read */
};
/* From byte `start` on, `length` bytes (0: to the end). false: nobody that can be named, or no such file. */
bool holder_find(const char *path, off_t start, off_t length, struct holder *ret);
#endif
