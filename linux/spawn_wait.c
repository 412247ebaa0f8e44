#include "linux/spawn.h"
#include "base/str.h"
#include "linux/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define STDERR_TAIL 2048 /* what is kept of the end of a program's stderr, to find its last line */
#define CHUNK 16384

/* Time left of timeout_ms for poll(), rounded up so that it does not spin in the last millisecond. */
static int left_ms(uint64_t start_us, uint64_t timeout_ms)
{
	uint64_t spent = (clock_boot_us() - start_us) / 1000u;

	if (spent >= timeout_ms)
		return 0;
	return timeout_ms - spent > INT_MAX ? INT_MAX : (int)(timeout_ms - spent);
}

/* The child has ended: takes its status and empties c. */
static int reap(struct child *c, int *ret_status, struct error *e)
{
	int status = 0, r = 0;
	pid_t pid;

	do
		pid = waitpid(c->pid, &status, 0);
	while (pid < 0 && errno == EINTR);
	if (pid < 0)
		r = error_errno(e, errno, "cannot get the result of a child");
	else if (ret_status)
		*ret_status = status;
	c->pid = -1;
	c->pidfd = fd_close(c->pidfd);
	return r;
}

int spawn_wait(struct child *c, uint64_t timeout_ms, int *ret_status, struct error *e)
{
	const uint64_t start = clock_boot_us();
	int status, r;

	for (;;) {
		struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
		int left = left_ms(start, timeout_ms);

		r = poll(&p, 1, left);
		if (r > 0)
			return reap(c, ret_status, e);
		if (r < 0 && errno != EINTR)
			return error_errno(e, errno, "cannot wait for a child");
		if (r == 0 && left_ms(start, timeout_ms) == 0)
			break;
	}
	(void)kill(c->pid, SIGKILL);
	r = reap(c, &status, e);
	if (r < 0)
		return r;
	if (ret_status)
		*ret_status = status;
	return error_set(e, ETIMEDOUT, "a child had not ended after %llu ms and was killed",
		(unsigned long long)timeout_ms);
}

struct capture {
	int out, err; /* read ends, non-blocking; -1 at end of file */
	bool keep_out;
	struct buf text;
	char tail[STDERR_TAIL];
	size_t tail_len;
};

static void capture_done(struct capture *c)
{
	c->out = fd_close(c->out);
	c->err = fd_close(c->err);
	buf_free(&c->text);
}

static void tail_add(struct capture *c, const char *data, size_t len)
{
	if (len >= sizeof(c->tail)) {
		memcpy(c->tail, data + len - sizeof(c->tail), sizeof(c->tail));
		c->tail_len = sizeof(c->tail);
		return;
	}
	if (c->tail_len + len > sizeof(c->tail)) {
		size_t drop = c->tail_len + len - sizeof(c->tail);

		memmove(c->tail, c->tail + drop, c->tail_len - drop);
		c->tail_len -= drop;
	}
	memcpy(c->tail + c->tail_len, data, len);
	c->tail_len += len;
}

/* Takes what is there now. 0, or -E2BIG. */
static int drain(struct capture *c, int *fd)
{
	char chunk[CHUNK];

	while (*fd >= 0) {
		ssize_t n = read(*fd, chunk, sizeof(chunk));
		int r = 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0) {
			*fd = fd_close(*fd);
			return 0;
		}
		if (fd == &c->err)
			tail_add(c, chunk, (size_t)n);
		else if (c->keep_out)
			r = buf_add(&c->text, chunk, (size_t)n);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The last line of stderr that is not blank, made fit to be shown. */
static void last_line(const struct capture *c, char *dst, size_t size)
{
	size_t end = c->tail_len, begin;

	while (end > 0 && (c->tail[end - 1] == '\n' || c->tail[end - 1] == '\r' || c->tail[end - 1] == ' '))
		end--;
	begin = end;
	while (begin > 0 && c->tail[begin - 1] != '\n')
		begin--;
	str_show_n(dst, size, c->tail + begin, end - begin);
}

static int result(const char *program, int status, const struct capture *c, struct error *e)
{
	char line[300];

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	last_line(c, line, sizeof(line));
	if (WIFSIGNALED(status))
		return error_set(e, EIO, "%s was ended by signal %d%s%s", program, WTERMSIG(status),
			line[0] ? ": " : "", line);
	return error_set(e, EIO, "%s failed with status %d%s%s", program, WEXITSTATUS(status),
		line[0] ? ": " : "", line);
}

/* Waits for the end of the child itself: a grandchild that keeps the pipes open does not hold us up. */
static int collect(struct capture *cap, struct child *c, const char *program, uint64_t timeout_ms,
	int *ret_status, struct error *e)
{
	const uint64_t start = clock_boot_us();

	for (;;) {
		struct pollfd p[] = {{.fd = c->pidfd, .events = POLLIN}, {.fd = cap->out, .events = POLLIN},
			{.fd = cap->err, .events = POLLIN}};
		int left = left_ms(start, timeout_ms), r = poll(p, ARRAY_SIZE(p), left);

		if (r < 0 && errno != EINTR)
			return error_errno(e, errno, "cannot wait for %s", program);
		if (r == 0 && left_ms(start, timeout_ms) == 0)
			return error_set(e, ETIMEDOUT, "%s had not ended after %llu ms and was killed",
				program, (unsigned long long)timeout_ms);
		if (r <= 0)
			continue;
		(void)drain(cap, &cap->err);
		r = drain(cap, &cap->out);
		if (r < 0)
			return error_errno(
				e, -r, "%s wrote more than the %zu bytes expected", program, cap->text.max);
		if (p[0].revents)
			return reap(c, ret_status, e);
	}
}

/* A pipe whose read end does not block; the write end goes to the child. */
static int capture_pipe(int *ret_read, int *ret_write, struct error *e)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return error_errno(e, errno, "cannot make a pipe");
	(void)fcntl(p[0], F_SETFL, O_NONBLOCK);
	*ret_read = p[0];
	*ret_write = p[1];
	return 0;
}

int spawn_capture(
	const struct spawn_options *o, uint64_t timeout_ms, size_t max, char **ret_stdout, struct error *e)
{
	CLEANUP(capture_done)
	struct capture cap = {.out = -1, .err = -1, .keep_out = ret_stdout, .text = BUF_INIT(max)};
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	CLEANUP_FD int out = -1, err = -1;
	struct spawn_options mine = *o;
	int status = 0, r = 0;

	if (o->stdout_fd < 0) {
		r = capture_pipe(&cap.out, &out, e);
		mine.stdout_fd = out;
	}
	if (r == 0 && o->stderr_fd < 0) {
		r = capture_pipe(&cap.err, &err, e);
		mine.stderr_fd = err;
	}
	if (r == 0)
		r = spawn(&mine, &c, e);
	out = fd_close(out);
	err = fd_close(err);
	if (r == 0)
		r = collect(&cap, &c, o->program, timeout_ms, &status, e);
	if (r == 0)
		r = result(o->program, status, &cap, e);
	if (r < 0)
		return r;
	if (ret_stdout) {
		if (buf_add(&cap.text, "", 0) < 0)
			return error_errno(e, ENOMEM, "%s", o->program);
		*ret_stdout = TAKE_PTR(cap.text.data);
	}
	return 0;
}
