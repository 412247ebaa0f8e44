#ifndef BOXERY_BASE_CLEANUP_H
#define BOXERY_BASE_CLEANUP_H
/*
 * Scope-bound release. A destructor takes NULL and half-built objects and returns NULL. DEFINE_CLEANUP(type *, fn)
 * makes fnp(), to be used as `CLEANUP(fnp) type *x = NULL;`. File descriptors are born -1.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define DEFINE_CLEANUP(type, fn)                                                                                       \
	static inline void fn##p(type *p)                                                                              \
	{                                                                                                              \
		if (*p)                                                                                                \
			fn(*p);                                                                                        \
	}                                                                                                              \
	struct fn##p_needs_semicolon

/* Move ownership out of a variable. */
#define TAKE_PTR(p)                                                                                                    \
	({                                                                                                             \
		__typeof__(p) *_pp = &(p);                                                                             \
		__typeof__(p) _v = *_pp;                                                                               \
		*_pp = NULL;                                                                                           \
		_v;                                                                                                    \
	})
#define TAKE_FD(fd)                                                                                                    \
	({                                                                                                             \
		int *_pfd = &(fd);                                                                                     \
		int _vfd = *_pfd;                                                                                      \
		*_pfd = -1;                                                                                            \
		_vfd;                                                                                                  \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}
/* Closes if open, keeps errno; returns -1 so that `fd = fd_close(fd)` works. */
int fd_close(int fd);
static inline void cleanup_fd(int *fd)
{
	*fd = fd_close(*fd);
}
static inline void cleanup_file(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}
static inline void cleanup_dir(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}
#define CLEANUP_FREE CLEANUP(cleanup_free)
#define CLEANUP_FD CLEANUP(cleanup_fd)
#define CLEANUP_FILE CLEANUP(cleanup_file)
#define CLEANUP_DIR CLEANUP(cleanup_dir)
#endif
