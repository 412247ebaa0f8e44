/*
 * A clock that a test sets, for programs that are built as the product is: LD_PRELOADed, with nothing of it inside them.
 *
 * BOXERY_TEST_CLOCK names a file of 24 bytes that all share: what is added to CLOCK_BOOTTIME, in microseconds; a number that
 * grows with every change; that number as it was last acted upon; what is added to the wall clock, in microseconds.
 * CLOCK_BOOTTIME is what clock_gettime() and timerfds of this clock say (with BOXERY_TEST_CLOCK_MONOTONIC what clock_gettime()
 * says of that clock, too), the wall clock what clock_gettime(), time() and gettimeofday() say; everything else stays real, times
 * of files included. A timerfd is in the kernel and knows nothing of this, so it is set anew whenever the offset changes, by a
 * thread that waits on the number. Nothing here waits for the wall clock, so that needs none.
 */
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define TIMERS_MAX 16

static struct shared {
	_Atomic int64_t offset_us;
	_Atomic uint32_t changes, seen;
	_Atomic int64_t wall_us;
} *shared;

static struct timer {
	int fd;
	struct itimerspec at; /* in the test's time, absolute; all zero: not armed */
} timers[TIMERS_MAX];
static unsigned n_timers;
static bool monotonic_too;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int real_settime(int fd, int flags, const struct itimerspec *new_value, struct itimerspec *old_value)
{
	return (int)syscall(SYS_timerfd_settime, fd, flags, new_value, old_value);
}

static struct timespec moved(struct timespec t, int64_t us)
{
	int64_t ns = (int64_t)t.tv_nsec + us % 1000000 * 1000;

	t.tv_sec += us / 1000000 + ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	if (t.tv_nsec < 0) {
		t.tv_nsec += 1000000000;
		t.tv_sec--;
	}
	return t;
}

static bool armed(const struct itimerspec *at)
{
	return at->it_value.tv_sec || at->it_value.tv_nsec;
}

static int set(const struct timer *t, struct itimerspec *old)
{
	struct itimerspec real = t->at;

	if (armed(&real))
		real.it_value = moved(real.it_value, -atomic_load(&shared->offset_us));
	/* Long over: as soon as can be. All zero would disarm it. */
	if (armed(&t->at) && real.it_value.tv_sec < 0)
		real.it_value = (struct timespec){.tv_nsec = 1};
	return real_settime(t->fd, TFD_TIMER_ABSTIME, &real, old);
}

static void *follow(void *unused)
{
	(void)unused;
	for (;;) {
		uint32_t changes = atomic_load(&shared->changes);

		(void)pthread_mutex_lock(&lock);
		for (unsigned i = 0; i < n_timers; i++)
			(void)set(&timers[i], NULL);
		(void)pthread_mutex_unlock(&lock);
		atomic_store(&shared->seen, changes);
		(void)syscall(SYS_futex, &shared->changes, FUTEX_WAIT, changes, NULL, NULL, 0);
	}
	return NULL;
}

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("BOXERY_TEST_CLOCK");
	sigset_t all, old;
	pthread_t thread;
	int fd;

	if (!path)
		return;
	monotonic_too = getenv("BOXERY_TEST_CLOCK_MONOTONIC");
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		err(1, "%s", path);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		err(1, "%s", path);
	(void)close(fd);
	/* Signals are the program's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	errno = pthread_create(&thread, NULL, follow, NULL);
	if (errno)
		err(1, "the test's clock");
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, id, ret);

	if (r == 0 && shared && (id == CLOCK_BOOTTIME || id == CLOCK_BOOTTIME_ALARM || (id == CLOCK_MONOTONIC && monotonic_too)))
		*ret = moved(*ret, atomic_load(&shared->offset_us));
	else if (r == 0 && shared && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		*ret = moved(*ret, atomic_load(&shared->wall_us));
	return r;
}

time_t time(time_t *ret)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	*ret = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
	return 0;
}

int timerfd_create(int id, int flags)
{
	int fd = (int)syscall(SYS_timerfd_create, id, flags);

	if (fd < 0 || !shared || id != CLOCK_BOOTTIME)
		return fd;
	(void)pthread_mutex_lock(&lock);
	if (n_timers == TIMERS_MAX)
		abort();
	timers[n_timers++] = (struct timer){.fd = fd};
	(void)pthread_mutex_unlock(&lock);
	return fd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *new_value, struct itimerspec *old_value)
{
	int r = -1;

	(void)pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < n_timers; i++) {
		if (timers[i].fd != fd)
			continue;
		if (!(flags & TFD_TIMER_ABSTIME) && armed(new_value))
			abort(); /* sd-event has no such timers */
		timers[i].at = *new_value;
		r = set(&timers[i], old_value);
		(void)pthread_mutex_unlock(&lock);
		return r;
	}
	(void)pthread_mutex_unlock(&lock);
	return real_settime(fd, flags, new_value, old_value);
}
