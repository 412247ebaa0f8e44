/*
 * When is a guest quiet? Nothing here waits without end: on a host that has other things to do a guest may never be, and then the
 * answer is that it is not. All times are the guest's own monotonic clock, which goes on while it is not served.
 */
#include "guest/quiet.h"
#include "base/parse.h"
#include "base/str.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KTHREADD 2
#define STAT_MAX 512
#define FIELD_PARENT 1 /* after the name, which is in brackets: STATE PARENT ... */
#define FIELD_USER 11
#define FIELD_SYSTEM 12

struct activity {
	uint64_t pids, used; /* sums over all programs but us and the agent: who is there, CPU time in ticks */
};

uint64_t quiet_now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static void pause_ms(unsigned ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000L};

	(void)nanosleep(&t, NULL);
}

/* "PID (COMM) STATE PARENT ... UTIME STIME ..."; false: not understood. */
static bool parse_stat(char *text, uint64_t *ret_parent, uint64_t *ret_used)
{
	char *rest = strrchr(text, ')'), *save = NULL;
	uint64_t user = 0, system = 0;
	unsigned i = 0;

	if (!rest)
		return false;
	for (char *field = strtok_r(rest + 1, " ", &save); field && i <= FIELD_SYSTEM; field = strtok_r(NULL, " ", &save), i++) {
		uint64_t *into = i == FIELD_PARENT ? ret_parent : i == FIELD_USER ? &user : i == FIELD_SYSTEM ? &system : NULL;

		if (into && parse_u64(field, "stat", 0, UINT64_MAX, into, NULL) < 0)
			return false;
	}
	*ret_used = user + system;
	return i > FIELD_SYSTEM;
}

/* Kernel threads come and go as they like. */
static void add_process(struct activity *a, int proc, const char *name)
{
	uint64_t pid, parent, used;
	char path[64], text[STAT_MAX];
	CLEANUP_FD int fd = -1;
	ssize_t n;

	if (parse_u64(name, "pid", 1, INT32_MAX, &pid, NULL) < 0 || str_format(path, "%s/stat", name) < 0 ||
		(pid_t)pid == getpid() || (pid_t)pid == getppid())
		return;
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return;
	text[n] = '\0';
	if (!parse_stat(text, &parent, &used) || parent == KTHREADD || pid == KTHREADD)
		return;
	a->pids += pid;
	a->used += used;
}

static int see_activity(const char *proc, struct activity *ret, struct error *e)
{
	CLEANUP_DIR DIR *d = opendir(proc);
	struct activity a = {0};
	struct dirent *entry;

	if (!d)
		return error_errno(e, errno, "%s", proc);
	while ((entry = readdir(d)))
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
			add_process(&a, dirfd(d), entry->d_name);
	*ret = a;
	return 0;
}

int quiet_wait(const char *proc, const struct quiet_times *t, uint64_t until_ms, bool *ret_quiet, struct error *e)
{
	struct activity before, now;
	unsigned quiet = 0;
	int r = see_activity(proc, &before, e);

	while (r == 0 && quiet < t->looks && quiet_now_ms() < until_ms) {
		pause_ms(t->interval_ms);
		r = see_activity(proc, &now, e);
		if (r < 0)
			break;
		quiet = now.pids == before.pids && now.used == before.used ? quiet + 1 : 0;
		before = now;
	}
	*ret_quiet = quiet >= t->looks;
	return r;
}

int quiet_listing(int (*take)(struct buf *ret, struct error *e), size_t max, const struct quiet_times *t, uint64_t until_ms,
	struct buf *ret, struct error *e)
{
	CLEANUP_BUF struct buf before = BUF_INIT(max);
	int r = take(&before, e);

	while (r == 0) {
		CLEANUP_BUF struct buf now = BUF_INIT(max);

		pause_ms(t->interval_ms);
		r = take(&now, e);
		if (r < 0)
			break;
		if (before.data && now.data && str_equal(before.data, now.data)) {
			*ret = now;
			now = BUF_INIT(max);
			return 0;
		}
		if (quiet_now_ms() >= until_ms)
			return error_set(e, EBUSY, "the guest does not come to rest: what is there has changed until the end");
		buf_free(&before);
		before = now;
		now = BUF_INIT(max);
	}
	return r;
}
