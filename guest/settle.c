/*
 * Before a capture. A memory image holds what is not zero, so its size, and with it the time of every restore, is what this
 * leaves: caches are dropped, free memory is blanked (a page that is given to a program is zeroed by the kernel), and what
 * the beginning of a life and the delivery read is read again, so that they find it in memory.
 */
#include "guest/begin.h"
#include "guest/quiet.h"
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

/*
 * All of it together. A guest of a busy host may never be quiet: then it is captured all the same when what is there does not change
 * any more, and if it does, there is no capture. The host waits longer (CAPTURE_SETTLE_MS in vm/op_start.c).
 */
#define SETTLE_MS 30000
#define QUIET_FIRST_MS 8000 /* of that, before caches are dropped */
#define BLANK_MS 10000	    /* for blanking: what is not blanked makes the image larger, and nothing else */
#define LISTING_MS 5000	    /* kept for the listing at the end */
#define BLANK_CHUNK (32ul << 20)
#define BLANK_SPARE (64ul << 20)

static const struct quiet_times times = {.interval_ms = 200, .looks = 8};

/* In large pages where there are any: on an emulated CPU each page fault costs. */
static void *blank_chunk(void)
{
	/* cppcheck-suppress invalidFunctionArg ; no file: -1 */
	void *at = mmap(NULL, BLANK_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	(void)madvise(at, BLANK_CHUNK, MADV_HUGEPAGE);
	return madvise(at, BLANK_CHUNK, MADV_POPULATE_WRITE) == 0 ? at : NULL;
}

/* As much as is free; this process, which then ends, is the first to go if it was too much. */
static void blank_free_memory(void)
{
	const uint64_t until = quiet_now_ms() + BLANK_MS;
	struct sysinfo si;

	while (quiet_now_ms() < until && sysinfo(&si) == 0 && (unsigned long)si.freeram * si.mem_unit > BLANK_SPARE)
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

int settle(struct buf *ret, struct error *e)
{
	const uint64_t began = quiet_now_ms();
	CLEANUP_FILE FILE *f = NULL;
	bool quiet;
	int r = quiet_wait("/proc", &times, began + QUIET_FIRST_MS, &quiet, e);

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
	r = quiet_wait("/proc", &times, began + SETTLE_MS - LISTING_MS, &quiet, e);
	return r < 0 ? r : quiet_listing(listing, LISTING_MAX, &times, began + SETTLE_MS, ret, e);
}
