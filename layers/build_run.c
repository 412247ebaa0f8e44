/* Children of a build: their output, their end, and what it means. */
#include "base/str.h"
#include "layers/build.h"
#include "linux/file.h"
#include "linux/spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LOG_FILE "log"
#define LOG_MAX (64u << 20)
#define LOG_SHOWN_LINES 15
#define FETCH_TIMEOUT_MS (2ull * 60 * 60 * 1000)
#define ENV_MAX 16
#define ENV_TEXT_MAX 1024
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static volatile sig_atomic_t cancelled, running_pidfd = -1;

void build_cancel(void)
{
	cancelled = 1;
	/* A number that is no pidfd any more is refused by the kernel. */
	if (running_pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, running_pidfd, SIGKILL, NULL, 0);
}

static void environment(const char *dst[static ENV_MAX], char text[static ENV_MAX][ENV_TEXT_MAX])
{
	static const char *const passed[] = { "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY" };
	const char *path = getenv("PATH");
	size_t n = 0;

	/* The administrator's own PATH may lack the folders of chroot and mkfs. */
	if (path && str_format_n(text[0], ENV_TEXT_MAX, "PATH=%s:" DEFAULT_PATH, path) == 0)
		dst[n++] = text[0];
	else
		dst[n++] = "PATH=" DEFAULT_PATH;
	dst[n++] = "HOME=/root";
	dst[n++] = "LANG=C.UTF-8";
	for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
		const char *value = getenv(passed[i]);

		if (value && str_format_n(text[n], ENV_TEXT_MAX, "%s=%s", passed[i], value) == 0) {
			dst[n] = text[n];
			n++;
		}
	}
	dst[n] = NULL;
}

static int start(const char *const *argv, int out, int err, struct child *ret, struct error *e)
{
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	const char *env[ENV_MAX];
	char text[ENV_MAX][ENV_TEXT_MAX];
	int r;

	environment(env, text);
	o.program = argv[0];
	o.argv = argv;
	o.env = env;
	o.search_path = argv[0][0] != '/';
	o.stdout_fd = out;
	o.stderr_fd = err;
	r = spawn(&o, ret, e);
	if (r < 0)
		return r;
	running_pidfd = ret->pidfd;
	if (cancelled)
		build_cancel(); /* the signal came before the number was there */
	return 0;
}

static int finish(struct child *c, const char *program, uint64_t timeout_ms, int *ret_status, struct error *e)
{
	int status = 0, r = spawn_wait(c, timeout_ms, &status, e);

	running_pidfd = -1;
	if (cancelled)
		return error_set(e, ECANCELED, "interrupted");
	if (r < 0)
		return error_wrap(e, "%s", program);
	*ret_status = status;
	return 0;
}

int build_run(struct build *b, const char *what, const char *const *argv, uint64_t timeout_ms, struct error *e)
{
	CLEANUP_FD int log = openat(b->work_fd, LOG_FILE, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	int status, r;

	if (log < 0)
		return error_errno(e, errno, "cannot write %s/" LOG_FILE, b->work);
	r = start(argv, log, log, &c, e);
	if (r == 0)
		r = finish(&c, what, timeout_ms, &status, e);
	if (r < 0)
		return r;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	build_show_log(b);
	if (WIFSIGNALED(status))
		return error_set(e, EIO, "%s was ended by signal %d", what, WTERMSIG(status));
	return error_set(e, EIO, "%s failed with status %d; its last words are above", what,
			WEXITSTATUS(status));
}

void build_show_log(struct build *b)
{
	CLEANUP_FREE char *text = NULL;
	size_t len, from;
	unsigned lines = 0;

	(void)fflush(stdout);
	if (file_read(b->work_fd, LOG_FILE, LOG_MAX, &text, &len, NULL) < 0)
		return;
	for (from = len; from > 0; from--)
		if (text[from - 1] == '\n' && from < len && ++lines == LOG_SHOWN_LINES)
			break;
	for (char *p = text + from; *p;) {
		size_t n = strcspn(p, "\n");
		char shown[400];

		str_show_n(shown, sizeof(shown), p, n);
		(void)fprintf(stderr, "    | %s\n", shown);
		p += n + (p[n] == '\n');
	}
}

/* What a program of ours said by its exit status (base/error.h). */
static int code_of(int status)
{
	switch (WIFEXITED(status) ? WEXITSTATUS(status) : -1) {
	case EXIT_STATUS_USAGE:
		return EINVAL;
	case EXIT_STATUS_NOT_FOUND:
		return ENOENT;
	case EXIT_STATUS_CONFIG:
		return EBADMSG;
	case EXIT_STATUS_DENIED:
		return EPERM;
	case EXIT_STATUS_HOST:
		return ENOSPC;
	case EXIT_STATUS_UNREACHABLE:
		return ENOTCONN;
	case EXIT_STATUS_TIMEOUT:
		return ETIMEDOUT;
	case EXIT_STATUS_INTERRUPTED:
		return ECANCELED;
	default:
		return EIO;
	}
}

/* Passes the child's words on as they come and keeps the last line for the error. */
static void follow(int fd, char *last, size_t size)
{
	char chunk[512], line[480] = "";
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return;
		(void)fwrite(chunk, 1, (size_t)n, stderr);
		for (ssize_t i = 0; i < n; i++) {
			if (chunk[i] != '\n' && chunk[i] != '\r') {
				if (len + 1 < sizeof(line))
					line[len++] = chunk[i];
				continue;
			}
			if (len)
				str_show_n(last, size, line, len);
			len = 0;
		}
	}
}

int build_fetch(struct build *b, const struct layer *l, char *ret_path, size_t size, struct error *e)
{
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	CLEANUP_FD int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	CLEANUP_FD int words = -1;
	const char *sum = l->download.sha256[b->q->plan.arch];
	char program[400] = "", url[1024] = "", last[ERROR_TEXT_MAX - 40] = "";
	int pipes[2], status, r;

	r = layer_download_url(l, b->q->plan.arch, url, sizeof(url), e);
	if (r == 0)
		r = program_path("boxery-fetch", program, sizeof(program), e);
	if (r < 0)
		return r;
	if (null < 0 || pipe2(pipes, O_CLOEXEC) < 0)
		return error_errno(e, errno, "cannot start boxery-fetch");
	words = pipes[0];
	const char *const argv[] = { program, "--url", url, "--sha256", sum, "--out-dir", b->q->cache_dir, NULL };
	r = start(argv, null, pipes[1], &c, e);
	(void)fd_close(pipes[1]);
	if (r == 0) {
		follow(words, last, sizeof(last));
		r = finish(&c, "boxery-fetch", FETCH_TIMEOUT_MS, &status, e);
	}
	if (r < 0)
		return r;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return error_set(e, code_of(status), "layer %s: %s", l->name, last[0] ? last : "boxery-fetch failed");
	return str_format_n(ret_path, size, "%s/sha256/%s", b->q->cache_dir, sum) < 0 ?
			error_errno(e, ENAMETOOLONG, "%s", b->q->cache_dir) :
			0;
}
