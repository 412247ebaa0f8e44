/*
 * Loaded before libc into boxery-vm: kill -9 right before the Nth call that changes names or folders (BOXERY_KILL_AT=N), which is where
 * a file's world is one thing before and another after.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void count(void)
{
	static unsigned n;
	const char *at = getenv("BOXERY_KILL_AT");

	if (at && strncmp(program_invocation_short_name, "boxery-vm", 9) == 0 && ++n == (unsigned)strtoul(at, NULL, 10))
		(void)raise(SIGKILL);
}

#define NEXT(name_) __typeof__(name_) *next = (__typeof__(name_) *)dlsym(RTLD_NEXT, #name_)

int renameat(int a, const char *from, int b, const char *to)
{
	NEXT(renameat);
	count();
	return next(a, from, b, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	NEXT(renameat2);
	count();
	return next(a, from, b, to, flags);
}

int linkat(int a, const char *from, int b, const char *to, int flags)
{
	NEXT(linkat);
	count();
	return next(a, from, b, to, flags);
}

int unlinkat(int fd, const char *path, int flags)
{
	NEXT(unlinkat);
	count();
	return next(fd, path, flags);
}

int mkdirat(int fd, const char *path, mode_t mode)
{
	NEXT(mkdirat);
	count();
	return next(fd, path, mode);
}
