#include "linux/loop.h"
#include "base/cleanup.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

/* Sooner than sd-event's quarter of a second: a timer here is a deadline that somebody measures. */
#define TIMER_ACCURACY_US 1000

/* Shared by the two signal sources; freed with the last of them. */
struct stop {
	unsigned refs;
	bool asked;
	void (*on_stop)(void *userdata);
	void *userdata;
};

static void stop_unref(void *p)
{
	struct stop *s = p;

	if (--s->refs == 0)
		free(s);
}

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *si, void *userdata)
{
	struct stop *s = userdata;

	if (s->asked || !s->on_stop)
		return sd_event_exit(sd_event_source_get_event(source), EXIT_STATUS_INTERRUPTED);
	s->asked = true;
	s->on_stop(s->userdata);
	return 0;
}

static int add_signal(sd_event *ev, int signal, struct stop *s)
{
	sd_event_source *source = NULL;
	int r = sd_event_add_signal(ev, &source, signal, on_signal, s);

	if (r < 0)
		return r;
	s->refs++;
	(void)sd_event_source_set_destroy_callback(source, stop_unref);
	/* Floating: it lives and dies with the loop. */
	(void)sd_event_source_set_floating(source, true);
	(void)sd_event_source_unref(source);
	return 0;
}

static void event_unref(sd_event **ev)
{
	*ev = sd_event_unref(*ev);
}

int loop_new(sd_event **ret, void (*on_stop)(void *userdata), void *userdata, struct error *e)
{
	CLEANUP(event_unref) sd_event *ev = NULL;
	struct stop *s;
	sigset_t set;
	int r;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return error_errno(e, errno, "cannot block signals");
	r = sd_event_default(&ev);
	if (r < 0)
		return error_errno(e, -r, "cannot make an event loop");
	s = calloc(1, sizeof(*s));
	if (!s)
		return error_errno(e, ENOMEM, "cannot make an event loop");
	s->on_stop = on_stop;
	s->userdata = userdata;
	s->refs = 1;
	r = add_signal(ev, SIGTERM, s);
	if (r == 0)
		r = add_signal(ev, SIGINT, s);
	stop_unref(s);
	if (r < 0)
		return error_errno(e, -r, "cannot watch for signals");
	*ret = TAKE_PTR(ev);
	return 0;
}

int loop_timer(sd_event *ev, sd_event_source **s, uint64_t in_ms, sd_event_time_handler_t cb, void *userdata,
	struct error *e)
{
	sd_event_source *fresh = NULL;
	uint64_t us = in_ms > UINT64_MAX / 1000u ? UINT64_MAX : in_ms * 1000u;
	int r = sd_event_add_time_relative(ev, &fresh, CLOCK_BOOTTIME, us, TIMER_ACCURACY_US, cb, userdata);

	if (r < 0)
		return error_errno(e, -r, "cannot set a timer");
	/* The old one goes last: a failure leaves it armed, and it may be the one whose callback runs. */
	(void)sd_event_source_disable_unref(*s);
	*s = fresh;
	return 0;
}

#define KILL_WAIT_MS 100 /* the longest that loop_child_kill() holds the loop up */
#define REAP_GRACE_MS 5000 /* from the kill at a deadline until its owner is told without its end */

struct loop_child {
	struct child child;
	sd_event_source *ended, *deadline;
	loop_child_cb cb;
	void *userdata;
	bool timed_out;
};

static void loop_child_free(struct loop_child *lc)
{
	(void)sd_event_source_disable_unref(lc->ended);
	(void)sd_event_source_disable_unref(lc->deadline);
	child_kill(&lc->child);
	free(lc);
}
DEFINE_CLEANUP(struct loop_child *, loop_child_free);

static int on_child_ended(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct loop_child *lc = userdata;
	int status = 0;
	pid_t pid = waitpid(lc->child.pid, &status, WNOHANG);

	if (pid == 0)
		return 0;
	/* Somebody else reaped it: its end is known, its status is not, and no status is a failure. */
	if (pid < 0)
		status = 127 << 8;
	lc->child.pid = -1;
	lc->child.pidfd = fd_close(lc->child.pidfd);
	(void)sd_event_source_set_enabled(lc->ended, SD_EVENT_OFF);
	if (lc->cb)
		lc->cb(lc->userdata, status, lc->timed_out);
	loop_child_free(lc);
	return 0;
}

/*
 * A killed child that hangs in the kernel (a disk that does not answer) cannot be reaped yet. Nobody waits for it: its
 * owner is told, or has gone already, and it stays here until the kernel lets it go.
 */
static void abandon(struct loop_child *lc)
{
	loop_child_cb cb = lc->cb;

	lc->cb = NULL;
	lc->deadline = sd_event_source_disable_unref(lc->deadline);
	if (cb)
		cb(lc->userdata, SIGKILL, lc->timed_out);
}

static int on_child_deadline(sd_event_source *source, uint64_t us, void *userdata)
{
	struct loop_child *lc = userdata;
	siginfo_t si = {0};

	/* It may have ended by itself in this very moment; then that is what happened. */
	if (waitid(P_PID, (id_t)lc->child.pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid != 0)
		return 0;
	if (lc->timed_out) {
		abandon(lc);
		return 0;
	}
	lc->timed_out = true;
	(void)kill(lc->child.pid, SIGKILL); /* not reaped yet, so the number still means this child */
	if (loop_timer(sd_event_source_get_event(source), &lc->deadline, REAP_GRACE_MS, on_child_deadline, lc, NULL) < 0)
		abandon(lc);
	return 0;
}

int loop_child_add(sd_event *ev, struct child *c, uint64_t timeout_ms, loop_child_cb cb, void *userdata,
	struct loop_child **ret, struct error *e)
{
	CLEANUP(loop_child_freep) struct loop_child *lc = calloc(1, sizeof(*lc));
	int r;

	if (!lc)
		return error_errno(e, ENOMEM, "cannot watch a child");
	lc->child = CHILD_INIT;
	lc->cb = cb;
	lc->userdata = userdata;
	r = sd_event_add_io(ev, &lc->ended, c->pidfd, EPOLLIN, on_child_ended, lc);
	if (r < 0)
		return error_errno(e, -r, "cannot watch a child");
	if (timeout_ms > 0) {
		r = loop_timer(ev, &lc->deadline, timeout_ms, on_child_deadline, lc, e);
		if (r < 0)
			return r;
	}
	lc->child = *c;
	*c = CHILD_INIT;
	if (ret)
		*ret = lc;
	lc = NULL;
	return 0;
}

int loop_child_pass(struct loop_child *lc, uint64_t timeout_ms, loop_child_cb cb, void *userdata, struct error *e)
{
	sd_event *ev = sd_event_source_get_event(lc->ended);
	int r = timeout_ms > 0 ? loop_timer(ev, &lc->deadline, timeout_ms, on_child_deadline, lc, e) : 0;

	if (r < 0)
		return r;
	lc->cb = cb;
	lc->userdata = userdata;
	return 0;
}

void loop_child_kill(struct loop_child *lc)
{
	if (!lc)
		return;
	/* A killed process is gone within a millisecond, unless it hangs in the kernel. */
	struct pollfd gone = {.fd = lc->child.pidfd, .events = POLLIN};

	(void)kill(lc->child.pid, SIGKILL);
	(void)poll(&gone, 1, KILL_WAIT_MS);
	if (waitpid(lc->child.pid, NULL, WNOHANG) == 0) {
		lc->cb = NULL;
		abandon(lc);
		return;
	}
	lc->child.pid = -1;
	loop_child_free(lc);
}
