/*
 * Starting a keeper for a command that found none. Two commands may do this at once: the second keeper loses the lock
 * and ends, and both commands find the first; or one that is just ending still has the lock, so another try is made every now and
 * then. So the end of the child that was started is no failure by itself; it is one
 * when nobody answers. Then the last line of the log says why, because the person who typed the command did not see it.
 */
#include "pool/client_start.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "linux/spawn.h"
#include "pool/log_file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_WAIT_MS 15000 /* a keeper that is ending may take 10 s */
#define START_AGAIN_MS 200
#define START_POLL_MS 20
#define LOG_TAIL 1024
#define KEEPER "boxery-keeper"

static int log_open_file(const struct hostconf *conf, int *ret_fd, off_t *ret_begin, struct error *e)
{
	CLEANUP_FD int dir = -1, fd = -1;
	struct stat st;
	int r = dir_make(conf->state_dir, 0700, e);

	if (r == 0)
		r = dir_open(AT_FDCWD, conf->state_dir, &dir, e);
	if (r < 0)
		return r;
	if (fstatat(dir, KEEPER_LOG, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > KEEPER_LOG_MAX)
		(void)renameat(dir, KEEPER_LOG, dir, KEEPER_LOG_OLD);
	fd = openat(dir, KEEPER_LOG, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(e, errno, "%s/" KEEPER_LOG, conf->state_dir);
	*ret_begin = st.st_size;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* The last line after `begin`, or "" */
static void log_last_line(int fd, off_t begin, char *dst, size_t size)
{
	char tail[LOG_TAIL + 1];
	struct stat st;
	off_t from = begin;
	char *line, *said;
	ssize_t n;

	dst[0] = '\0';
	if (fstat(fd, &st) < 0)
		return;
	if (st.st_size - from > LOG_TAIL)
		from = st.st_size - LOG_TAIL;
	n = pread(fd, tail, LOG_TAIL, from);
	while (n > 0 && tail[n - 1] == '\n')
		n--;
	if (n <= 0)
		return;
	tail[n] = '\0';
	line = memrchr(tail, '\n', (size_t)n);
	line = line ? line + 1 : tail;
	/* Time and level are the log's; the room is wanted for the sentence. */
	said = strstr(line, " " KEEPER ": ");
	if (said)
		line = said + strlen(" " KEEPER ": ");
	str_show_n(dst, size, line, strlen(line));
}

static int run_keeper(int log_fd, struct child *ret, struct error *e)
{
	const char *const argv[] = {KEEPER, NULL};
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	char path[PATH_MAX];
	int r = program_path(KEEPER, path, sizeof(path), e);

	if (r < 0)
		return r;
	o.program = path;
	o.argv = argv;
	o.stdout_fd = o.stderr_fd = log_fd;
	o.detach = true;
	return spawn(&o, ret, e);
}

/* Its last line whole if that fits, because the remedy stands at its end; else where the rest is to be found. */
static int say_ended(const struct hostconf *conf, int log_fd, off_t begin, struct error *e)
{
	static const char say[] = "a keeper was started and has ended: ";
	char line[ERROR_TEXT_MAX], place[PATH_MAX], cut[ERROR_TEXT_MAX];
	size_t room = ERROR_TEXT_MAX - sizeof(say);

	log_last_line(log_fd, begin, line, sizeof(line));
	if (str_format(place, " (%s/" KEEPER_LOG ")", conf->state_dir) < 0)
		place[0] = '\0';
	if (!line[0])
		return error_set(e, ENOTCONN, "%sit said nothing%s", say, place);
	if (strlen(line) + strlen(place) <= room)
		return error_set(e, ENOTCONN, "%s%s%s", say, line, place);
	if (strlen(line) <= room)
		return error_set(e, ENOTCONN, "%s%s", say, line);
	(void)snprintf(cut, sizeof(cut), "... (whole in %s/" KEEPER_LOG ")", conf->state_dir);
	return error_set(e, ENOTCONN, "%s%.*s%s", say, (int)(room > strlen(cut) ? room - strlen(cut) : 0), line, cut);
}

/* 1: it has ended because another keeper has the lock; 0: it runs; -ENOTCONN: ended otherwise. */
static int look(const struct hostconf *conf, struct child *c, int log_fd, off_t begin, struct error *e)
{
	int status;

	if (c->pid <= 0)
		return 1;
	if (waitpid(c->pid, &status, WNOHANG) != c->pid)
		return 0;
	c->pid = -1;
	c->pidfd = fd_close(c->pidfd);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_STATUS_CONFLICT)
		return 1;
	return say_ended(conf, log_fd, begin, e);
}

bool keeper_holder(const struct hostconf *conf, struct holder *ret)
{
	char path[PATH_MAX];

	return str_format(path, "%s/keeper.lock", conf->runtime_dir) == 0 && holder_find(path, 0, 0, ret);
}

/* Another one has the lock and is silent, in start-up or at its end for too long, or without a socket. */
static int say_silent(const struct hostconf *conf, struct error *e)
{
	struct holder other;

	if (!keeper_holder(conf, &other))
		return error_set(e, ENOTCONN, "a keeper runs that does not answer at %s and has not ended within %d s; see %s/" KEEPER_LOG,
				conf->keeper_socket, START_WAIT_MS / 1000, conf->state_dir);
	return error_set(e, ENOTCONN, "a keeper (pid %d) runs, but %s; 'boxery-host keeper stop' ends it, and the next command starts"
			" another; see %s/" KEEPER_LOG, (int)other.pid, access(conf->keeper_socket, F_OK) < 0 ?
			"its socket is gone" : "does not answer", conf->state_dir);
}

static int await(const struct hostconf *conf, struct child *c, int log_fd, off_t begin, int *ret_fd, struct error *e)
{
	uint64_t now = clock_boot_us(), again = now + START_AGAIN_MS * 1000;
	const uint64_t until = now + (uint64_t)START_WAIT_MS * 1000;

	for (;; now = clock_boot_us()) {
		struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
		int r = keeper_client_try(conf, ret_fd, e), lost;

		if (r != -ENOTCONN)
			return r;
		/* A negative fd makes this a plain wait: the child has lost to another one that is still coming up, or going down. */
		(void)poll(&p, 1, START_POLL_MS);
		lost = look(conf, c, log_fd, begin, e);
		if (lost < 0)
			return lost;
		if (now > until)
			return lost ? say_silent(conf, e) :
				      error_set(e, ENOTCONN, "a keeper was started, but does not answer at %s within %d s; see %s/"
							KEEPER_LOG, conf->keeper_socket, START_WAIT_MS / 1000, conf->state_dir);
		if (lost && now > again) {
			again = now + START_AGAIN_MS * 1000;
			r = run_keeper(log_fd, c, e);
			if (r < 0)
				return r;
		}
	}
}

int keeper_client_start(const struct hostconf *conf, int *ret_fd, struct error *e)
{
	CLEANUP_FD int log_fd = -1;
	struct child c = CHILD_INIT;
	off_t begin = 0;
	int r = log_open_file(conf, &log_fd, &begin, e);

	if (r == 0)
		r = run_keeper(log_fd, &c, e);
	if (r < 0)
		return error_wrap(e, "cannot start a keeper");
	r = await(conf, &c, log_fd, begin, ret_fd, e);
	/* It lives on in every case: it may just be slow, and the next command then finds it. */
	c.pidfd = fd_close(c.pidfd);
	return r;
}
