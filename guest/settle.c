/*
 * Before a capture. A memory image holds what is not zero, so its size, and with it the time of every restore, is what this
 * leaves: caches are dropped, free memory is blanked (a page that is given to a program is zeroed by the kernel), and what
 * the beginning of a life and the delivery read is read again, so that they find it in memory.
 */
#include "guest/begin.h"
#include "base/parse.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QUIET_INTERVAL_MS 200
#define QUIET_LOOKS 8 /* so many in a row */
#define QUIET_TIMEOUT_S 20
#define KTHREADD 2
#define BLANK_CHUNK (32ul << 20)
#define BLANK_SPARE (64ul << 20)

struct activity {
	unsigned long long pids, used; /* sums over all programs but us and the agent: who is there, CPU time in ticks */
};

/* "PID (COMM) STATE PARENT ... UTIME STIME ...", fields 14 and 15. Kernel threads come and go as they like. */
static void add_process(struct activity *a, int proc, const char *name)
{
	unsigned long long user, system;
	uint64_t pid;
	long parent;
	char path[64], text[512];
	CLEANUP_FD int fd = -1;
	const char *rest;
	ssize_t n;

	if (parse_u64(name, "pid", 1, INT32_MAX, &pid, NULL) < 0 || str_format(path, "%s/stat", name) < 0 ||
		(pid_t)pid == getpid() || (pid_t)pid == getppid())
		return;
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return;
	text[n] = '\0';
	rest = strrchr(text, ')');
	if (!rest || sscanf(rest, ") %*c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu", &parent, &user, &system) != 3)
		return;
	if (parent == KTHREADD || pid == KTHREADD)
		return;
	a->pids += (unsigned long long)pid;
	a->used += user + system;
}

static int see_activity(struct activity *ret, struct error *e)
{
	CLEANUP_DIR DIR *d = opendir("/proc");
	struct activity a = {0};
	struct dirent *entry;

	if (!d)
		return error_errno(e, errno, "/proc");
	while ((entry = readdir(d)))
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
			add_process(&a, dirfd(d), entry->d_name);
	*ret = a;
	return 0;
}

/*
 * No program is started and none has used the CPU. Not a share of CPU time: on a busy host the timer alone takes much of a
 * guest's; and not the agent, which the host keeps asking whether we have ended. It is not waited for without end: what is
 * still under way is in the listing, and then the first restore says so.
 */
static int wait_until_quiet(struct error *e)
{
	const struct timespec interval = {.tv_nsec = QUIET_INTERVAL_MS * 1000000l};
	int left = QUIET_TIMEOUT_S * 1000 / QUIET_INTERVAL_MS, quiet = 0;
	struct activity before, now = {0};
	int r = see_activity(&before, e);

	while (r == 0 && quiet < QUIET_LOOKS && left-- > 0) {
		(void)nanosleep(&interval, NULL);
		r = see_activity(&now, e);
		quiet = now.pids == before.pids && now.used == before.used ? quiet + 1 : 0;
		before = now;
	}
	return r;
}

/* In large pages where there are any: on an emulated CPU each page fault costs. */
static void *blank_chunk(void)
{
	void *at = mmap(NULL, BLANK_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	(void)madvise(at, BLANK_CHUNK, MADV_HUGEPAGE);
	return madvise(at, BLANK_CHUNK, MADV_POPULATE_WRITE) == 0 ? at : NULL;
}

/* As much as is free; this process, which then ends, is the first to go if it was too much. */
static void blank_free_memory(void)
{
	struct sysinfo si;

	while (sysinfo(&si) == 0 && (unsigned long)si.freeram * si.mem_unit > BLANK_SPARE)
		if (!blank_chunk())
			return;
}

static int blank_in_child(struct error *e)
{
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return error_errno(e, errno, "fork");
	if (pid == 0) {
		CLEANUP_FILE FILE *f = fopen("/proc/self/oom_score_adj", "we");

		if (!f || fputs("1000", f) < 0 || fflush(f) != 0)
			_exit(1);
		blank_free_memory();
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return error_errno(e, errno, "wait");
	return 0;
}

static void read_again(void)
{
	static const char *const wanted[] = {"/usr/sbin/sshd", "/usr/lib/*-linux-gnu/libcrypto.so.3", "/usr/lib/*-linux-gnu/libc.so.6",
		"/usr/lib/*-linux-gnu/libcrypt.so.1", "/usr/lib/*-linux-gnu/libwrap.so.0", "/usr/lib/*-linux-gnu/libsystemd.so.0",
		"/usr/lib/*-linux-gnu/libz.so.1", "/usr/bin/dash", "/usr/bin/bash", "/usr/bin/systemctl", "/usr/bin/head",
		"/usr/bin/wc", "/usr/bin/setpriv", "/usr/lib/boxery/*", "/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*"};
	char room[64 * 1024];
	glob_t g = {0};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		(void)glob(wanted[i], i ? GLOB_APPEND : 0, NULL, &g);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		CLEANUP_FD int fd = open(g.gl_pathv[i], O_RDONLY | O_CLOEXEC);

		while (fd >= 0 && read(fd, room, sizeof(room)) > 0)
			;
	}
	globfree(&g);
}

int settle(struct error *e)
{
	CLEANUP_FILE FILE *f = NULL;
	int r = wait_until_quiet(e);

	if (r < 0)
		return r;
	sync();
	f = fopen("/proc/sys/vm/drop_caches", "we");
	if (!f || fputs("3", f) < 0 || fflush(f) != 0)
		return error_errno(e, errno, "/proc/sys/vm/drop_caches");
	r = blank_in_child(e);
	if (r < 0)
		return r;
	read_again();
	sync();
	return wait_until_quiet(e);
}
