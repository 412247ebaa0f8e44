#ifndef BOXERY_LINUX_SPAWN_H
#define BOXERY_LINUX_SPAWN_H
/*
 * Children. A child gets exactly the listed fds, numbered from 3; 0 is /dev/null unless given, 1 and 2 are ours
 * unless given; signals and mask are reset; it dies with its parent (PR_SET_PDEATHSIG) unless `detach`; the parent
 * holds a pidfd. Deadlines are the caller's timer on the pidfd (loop) or spawn_wait's argument.
 * posix_spawn cannot set a death signal, so a small fork+exec is used; argv[0] is the program.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SPAWN_FDS_MAX 8
struct spawn_options {
	const char *program;     /* absolute path, or a name found by program_path() or PATH when search_path */
	const char *const *argv; /* NULL-terminated, argv[0] included */
	const char *const *env;  /* NULL-terminated, NULL: a minimal one, see spawn_environment() */
	const int *fds;          /* become 3, 4, ... in the child */
	size_t n_fds;
	int stdin_fd, stdout_fd, stderr_fd; /* -1: the default named above */
	bool search_path;
	bool detach;             /* a daemon: new session, no death signal */
};
#define SPAWN_OPTIONS_INIT ((struct spawn_options){.stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1})
struct child {
	pid_t pid;
	int pidfd;
};
#define CHILD_INIT ((struct child){.pid = -1, .pidfd = -1})
/* An exec failure is reported here (through a CLOEXEC pipe), not as an exit status. */
int spawn(const struct spawn_options *o, struct child *ret, struct error *e);
/* Waits until the deadline (milliseconds from now), then SIGKILLs and reaps. *ret_status as from waitpid.
 * -ETIMEDOUT when it had to be killed. Not for use in a service's loop. */
int spawn_wait(struct child *c, uint64_t timeout_ms, int *ret_status, struct error *e);
void child_kill(struct child *c); /* SIGKILL, reap, close; takes an empty one */
/* Runs a program to its end with a deadline, its stdout captured up to max bytes (may be NULL); non-zero exit is an
 * error whose text has the last line of its stderr. */
int spawn_capture(const struct spawn_options *o, uint64_t timeout_ms, size_t max, char **ret_stdout, struct error *e);
/* PATH, HOME, JOURNAL_STREAM, CREDENTIALS_DIRECTORY, BOXERY_* and XDG_* of ours, and LANG=C.UTF-8; NULL-terminated, one free(). NULL: no memory. */
char **spawn_environment(void);
/* Path of one of our own programs: beside the running one (a build tree), else BOXERY_LIBEXECDIR, else bindir. */
int program_path(const char *name, char *dst, size_t size, struct error *e);
#endif
