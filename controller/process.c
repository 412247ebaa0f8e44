#include "controller/process.h"
#include "base/str.h"
#include "controller/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

/* What gh takes a token from. */
static const char *const token_variables[] = {"GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"};
/* What makes gh colour its JSON, take a pipe for a terminal (and give a JIT config to a pager), or say more than it is asked for. */
static const char *const show_variables[] = {"CLICOLOR_FORCE", "GH_FORCE_TTY", "GH_DEBUG", "DEBUG"};

/* The child that ends with this process; -1: there is none, or children are to outlive a signal. */
static volatile sig_atomic_t running = -1;
static bool ends_with_us;
static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/* Asked first: ssh at its question turns the echo on again. It is waited for, so that whoever comes back finds the terminal as it was. */
static void on_ending(int number)
{
	pid_t pid = running;

	if (pid > 0) {
		(void)kill(pid, SIGTERM);
		for (int i = 0; i < PROCESS_END_MS / 10 && pid > 0; i++) {
			(void)poll(NULL, 0, 10);
			pid = waitpid(pid, NULL, WNOHANG) == 0 ? pid : -1;
		}
		if (pid > 0)
			(void)kill(pid, SIGKILL);
	}
	(void)signal(number, SIG_DFL);
	(void)raise(number);
}

void process_end_with_us(void)
{
	struct sigaction act = {.sa_handler = on_ending}, before;

	(void)sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(ending); i++)
		(void)sigaddset(&act.sa_mask, ending[i]);
	for (size_t i = 0; i < ARRAY_SIZE(ending); i++)
		/* What nohup or a shell's & has turned off stays so. */
		if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			(void)sigaction(ending[i], &act, NULL);
	ends_with_us = true;
}

/* Between a fork or a wait and what is noted of it. */
static void hold_signals(sigset_t *kept)
{
	sigset_t held;

	(void)sigemptyset(&held);
	for (size_t i = 0; i < ARRAY_SIZE(ending); i++)
		(void)sigaddset(&held, ending[i]);
	(void)sigprocmask(SIG_BLOCK, &held, kept);
}

static int open_pipe(int ret[2], struct error *e)
{
	if (pipe(ret) < 0)
		return error_errno(e, errno, "cannot make a pipe");
	for (int i = 0; i < 2; i++)
		if (fcntl(ret[i], F_SETFD, FD_CLOEXEC) < 0)
			return error_errno(e, errno, "cannot prepare a pipe");
	return 0;
}

struct pipes {
	int in[2], out[2], err[2], failed[2];
};

static void pipes_free(struct pipes *p)
{
	int *const all[] = {p->in, p->out, p->err, p->failed};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		for (int k = 0; k < 2; k++)
			all[i][k] = fd_close(all[i][k]);
}

/* In the child. fd: its end of a pipe, or -1 and then the fallback. */
static void become(int fd, int as, const char *fallback)
{
	if (fd < 0 && fallback)
		fd = open(fallback, O_RDWR);
	if (fd >= 0)
		(void)dup2(fd, as);
}

static void child(const char *const *argv, unsigned pipes, const struct pipes *p)
{
	sigset_t none;
	int code;

	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGQUIT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	become(p->in[0], STDIN_FILENO, "/dev/null");
	become(p->out[1], STDOUT_FILENO, NULL);
	become(p->err[1], STDERR_FILENO, NULL);
	for (size_t i = 0; pipes & PROCESS_NO_TOKENS && i < ARRAY_SIZE(token_variables); i++)
		(void)unsetenv(token_variables[i]);
	for (size_t i = 0; i < ARRAY_SIZE(show_variables); i++)
		(void)unsetenv(show_variables[i]);
	(void)execvp(argv[0], (char *const *)argv);
	code = errno;
	(void)!write(p->failed[1], &code, sizeof(code));
	_exit(127);
}

static int take_end(int *end, int *ret, struct error *e)
{
	if (*end >= 0 && fcntl(*end, F_SETFL, fcntl(*end, F_GETFL) | O_NONBLOCK) < 0)
		return error_errno(e, errno, "cannot prepare a pipe");
	*ret = TAKE_FD(*end);
	return 0;
}

int process_start(const char *const *argv, unsigned pipes, struct process *ret, struct error *e)
{
	CLEANUP(pipes_free) struct pipes p = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	struct process made = PROCESS_INIT;
	sigset_t kept;
	int code = 0, r;
	ssize_t n;

	r = open_pipe(p.failed, e);
	if (r == 0 && pipes & PROCESS_IN)
		r = open_pipe(p.in, e);
	if (r == 0 && pipes & PROCESS_OUT)
		r = open_pipe(p.out, e);
	if (r == 0 && pipes & PROCESS_ERR)
		r = open_pipe(p.err, e);
	if (r < 0)
		return r;
	(void)fflush(NULL);
	hold_signals(&kept);
	made.pid = fork();
	code = errno;
	if (made.pid == 0)
		child(argv, pipes, &p);
	if (made.pid > 0 && ends_with_us)
		running = made.pid;
	(void)sigprocmask(SIG_SETMASK, &kept, NULL);
	if (made.pid < 0)
		return error_errno(e, code, "cannot start %s", argv[0]);
	p.failed[1] = fd_close(p.failed[1]);
	do
		n = read(p.failed[0], &code, sizeof(code));
	while (n < 0 && errno == EINTR);
	r = n == (ssize_t)sizeof(code) ? error_errno(e, code, "cannot run %s", argv[0]) : take_end(&p.in[1], &made.in, e);
	if (r == 0)
		r = take_end(&p.out[0], &made.out, e);
	if (r == 0)
		r = take_end(&p.err[0], &made.err, e);
	if (r < 0) {
		process_free(&made);
		return r;
	}
	*ret = made;
	return 0;
}

bool process_reap(struct process *p)
{
	sigset_t kept;

	if (p->pid < 0 || p->ended)
		return true;
	hold_signals(&kept);
	p->ended = waitpid(p->pid, &p->status, WNOHANG) == p->pid;
	if (p->ended && running == p->pid)
		running = -1;
	(void)sigprocmask(SIG_SETMASK, &kept, NULL);
	return p->ended;
}

/* ssh at its question has turned a terminal's echo off: asked to end it turns it on again, killed it does not. */
static void end(struct process *p)
{
	(void)kill(p->pid, SIGTERM);
	for (int i = 0; i < PROCESS_END_MS / 10 && !process_reap(p); i++)
		(void)poll(NULL, 0, 10);
	if (p->ended)
		return;
	(void)kill(p->pid, SIGKILL);
	while (!process_reap(p))
		(void)poll(NULL, 0, 10);
}

void process_free(struct process *p)
{
	p->in = fd_close(p->in);
	p->out = fd_close(p->out);
	p->err = fd_close(p->err);
	if (!process_reap(p))
		end(p);
	*p = PROCESS_INIT;
}

int process_capture(const char *const *argv, unsigned pipes, int timeout_ms, char *dst, size_t size, struct error *e)
{
	CLEANUP(process_free) struct process p = PROCESS_INIT;
	uint64_t until = clock_now_ms() + (uint64_t)timeout_ms;
	struct pollfd f;
	size_t len = 0;
	int r = process_start(argv, pipes | PROCESS_OUT, &p, e);

	if (r < 0)
		return r;
	dst[0] = '\0';
	for (;;) {
		char rest[256];
		bool full = len + 1 >= size;
		ssize_t n = read(p.out, full ? rest : dst + len, full ? sizeof(rest) : size - 1 - len);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			break;
		if (n > 0 && !full) {
			len += (size_t)n;
			dst[len] = '\0';
		}
		if (clock_now_ms() >= until)
			return error_set(e, ETIMEDOUT, "%s takes more than %d s", argv[0], timeout_ms / 1000);
		f = (struct pollfd){.fd = p.out, .events = POLLIN};
		if (n < 0)
			(void)poll(&f, 1, 100);
	}
	while (!process_reap(&p) && clock_now_ms() < until)
		(void)poll(NULL, 0, 10);
	if (!p.ended)
		return error_set(e, ETIMEDOUT, "%s does not end", argv[0]);
	return WIFEXITED(p.status) ? WEXITSTATUS(p.status) : 128 + WTERMSIG(p.status);
}
