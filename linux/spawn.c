/*
 * fork + exec, the fork being a clone() that also returns a pidfd (CLOEXEC by itself). Between the two the
 * child makes only system calls that are allowed there: everything that allocates or searches is done before.
 * All signals are blocked over the fork, so that no handler of ours runs in the child; the child sets every
 * signal to its default before it opens the mask.
 *
 * The child reports a failure as {step, errno} through a CLOEXEC pipe; end of file there means that exec
 * succeeded. Fds are first copied above every target number and then put in place, so their order and
 * overlaps do not matter.
 */
#include "linux/spawn.h"
#include "linux/program.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define FIRST_FD 3
#define PLACED_MAX (FIRST_FD + SPAWN_FDS_MAX)
#define SCRATCH_FD (PLACED_MAX + 1) /* above every target and the report pipe */

enum step { STEP_DEATH_SIGNAL, STEP_SESSION, STEP_FDS, STEP_CLOSE, STEP_EXEC, STEP_COUNT };
static const char *const step_names[STEP_COUNT] = {
	"cannot set its death signal",
	"cannot make a session",
	"cannot hand over its files",
	"cannot close the other files",
	"cannot be run",
};

struct report {
	int step, code;
};

struct plan {
	const char *path;
	char *const *argv, *const *env;
	int placed[PLACED_MAX]; /* placed[i] becomes fd i */
	int n_placed, report_fd;
	pid_t parent;
	bool detach;
};

static _Noreturn void child_fail(int report_fd, enum step step)
{
	struct report r = {step, errno};

	(void)!write(report_fd, &r, sizeof(r));
	_exit(127);
}

static void child_reset_signals(void)
{
	struct sigaction sa = {.sa_handler = SIG_DFL};
	sigset_t none;

	/* KILL, STOP and the two that libc keeps for itself refuse; that is as it should be. */
	for (int i = 1; i < NSIG; i++)
		(void)sigaction(i, &sa, NULL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_place_fds(struct plan *p)
{
	int report = fcntl(p->report_fd, F_DUPFD_CLOEXEC, SCRATCH_FD);

	if (report < 0)
		child_fail(p->report_fd, STEP_FDS);
	p->report_fd = report;
	for (int i = 0; i < p->n_placed; i++) {
		p->placed[i] = fcntl(p->placed[i], F_DUPFD_CLOEXEC, SCRATCH_FD);
		if (p->placed[i] < 0)
			child_fail(p->report_fd, STEP_FDS);
	}
	for (int i = 0; i < p->n_placed; i++)
		if (dup2(p->placed[i], i) < 0)
			child_fail(p->report_fd, STEP_FDS);
	report = dup3(p->report_fd, p->n_placed, O_CLOEXEC);
	if (report < 0)
		child_fail(p->report_fd, STEP_FDS);
	p->report_fd = report;
	if (syscall(SYS_close_range, (unsigned)p->n_placed + 1, UINT_MAX, 0) < 0)
		child_fail(p->report_fd, STEP_CLOSE);
}

static _Noreturn void child_main(struct plan *p)
{
	if (p->detach) {
		if (setsid() < 0)
			child_fail(p->report_fd, STEP_SESSION);
	} else {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
			child_fail(p->report_fd, STEP_DEATH_SIGNAL);
		/* The parent may have died before the line above, and then no signal will ever come. */
		if (getppid() != p->parent)
			_exit(127);
	}
	child_reset_signals();
	child_place_fds(p);
	(void)execve(p->path, p->argv, p->env);
	child_fail(p->report_fd, STEP_EXEC);
}

/* Waits for exec or the report of a failure. */
static int read_report(int fd, const char *program, struct error *e)
{
	struct report r;
	ssize_t n;

	do
		n = read(fd, &r, sizeof(r));
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(r) || r.step < 0 || r.step >= STEP_COUNT)
		return error_set(e, EIO, "%s: no word from the new process", program);
	return error_errno(e, r.code, "%s %s", program, step_names[r.step]);
}

static int start(struct plan *p, int report_fd, struct child *ret, struct error *e)
{
	CLEANUP_FD int write_end = p->report_fd;
	struct child c = CHILD_INIT;
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &old);
	p->parent = getpid();
	/* As fork(), and with the pidfd in the same step; libc has no function for it that returns twice. */
	c.pid = (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &c.pidfd, NULL, NULL);
	if (c.pid == 0)
		child_main(p);
	r = errno;
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (c.pid < 0)
		return error_errno(e, r, "cannot make a process for %s", p->path);
	write_end = fd_close(write_end);
	r = read_report(report_fd, p->path, e);
	if (r < 0) {
		child_kill(&c);
		return r;
	}
	*ret = c;
	return 0;
}

/* Ours when it is open, else /dev/null: a child never starts with a hole in 0 to 2. */
static int stdio_or(int given, int ours, int null_fd)
{
	if (given >= 0)
		return given;
	return fcntl(ours, F_GETFD) < 0 ? null_fd : ours;
}

int spawn(const struct spawn_options *o, struct child *ret, struct error *e)
{
	CLEANUP_FD int null_fd = -1, report_fd = -1;
	CLEANUP_FREE char **own_env = NULL;
	char path[PATH_MAX];
	struct plan p = {.detach = o->detach};
	int report[2], r;

	assert(o->program && o->argv && o->argv[0]);
	assert(o->n_fds <= SPAWN_FDS_MAX);
	p.path = o->program;
	if (o->search_path) {
		r = program_search(o->program, path, sizeof(path), e);
		if (r < 0)
			return r;
		p.path = path;
	} else if (o->program[0] != '/') {
		return error_set(e, EINVAL, "%s: the path of a program must be absolute", o->program);
	}
	/* execve takes them as not const for historical reasons only. */
	p.argv = (char *const *)(uintptr_t)o->argv;
	p.env = (char *const *)(uintptr_t)o->env;
	if (!p.env) {
		own_env = spawn_environment();
		if (!own_env)
			return error_errno(e, ENOMEM, "%s", p.path);
		p.env = own_env;
	}
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0)
		return error_errno(e, errno, "cannot open /dev/null");
	p.placed[0] = o->stdin_fd >= 0 ? o->stdin_fd : null_fd;
	p.placed[1] = stdio_or(o->stdout_fd, STDOUT_FILENO, null_fd);
	p.placed[2] = stdio_or(o->stderr_fd, STDERR_FILENO, null_fd);
	for (size_t i = 0; i < o->n_fds; i++)
		p.placed[FIRST_FD + i] = o->fds[i];
	p.n_placed = FIRST_FD + (int)o->n_fds;
	if (pipe2(report, O_CLOEXEC) < 0)
		return error_errno(e, errno, "cannot make a pipe");
	report_fd = report[0];
	p.report_fd = report[1];
	return start(&p, report_fd, ret, e);
}

void child_kill(struct child *c)
{
	if (c->pid > 0) {
		/* Not reaped yet, so the number still means this child. */
		(void)kill(c->pid, SIGKILL);
		while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	c->pid = -1;
	c->pidfd = fd_close(c->pidfd);
}
