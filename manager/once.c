/*
 * The process: its loop, its timers, its end. Standard input and output are the link and never block: what the other end does
 * not take waits, and when too much waits the other end counts as gone.
 */
#include "manager/once.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/table.h"
#include "linux/clock.h"
#include "linux/log.h"
#include "linux/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LAST_WORD_MS 1000     /* for what is still to be written when this ends */
#define LEAVING_MS 30000      /* for a keeper that is gone to come back */
#define KEEPER_BACK_MS 60000 /* the same while somebody waits */
#define RESET_TOLD_MS 180000  /* a reset that takes longer than this is not waited for */

static const char *const names[] = {"greeting", "idle", "leasing", "planning", "leased", "delivering", "delivered", "rejoining", "releasing",
		"ended", "over", "leaving"};
STRING_TABLE(once_state, enum once_state, names, ONCE_STATE_COUNT);

uint64_t once_now_ms(void)
{
	return clock_boot_us() / 1000;
}

int once_timer(struct once *o, sd_event_source **s, uint64_t in_ms, sd_event_time_handler_t cb)
{
	struct error e = ERROR_INIT;
	int r = loop_timer(o->ev, s, in_ms, cb, o, &e);

	if (r < 0)
		once_fail(o, &e);
	return r;
}

static void end(struct once *o, int status)
{
	o->status = status;
	(void)sd_event_exit(o->ev, 0);
}

static int on_too_late(sd_event_source *s, uint64_t us, void *userdata)
{
	struct once *o = userdata;

	if (o->state == ONCE_LEAVING)
		end(o, o->status);
	if (o->state == ONCE_REJOINING || o->state == ONCE_RELEASING) {
		struct error e = ERROR_INIT;

		(void)error_set(&e, ENOTCONN, "the keeper of the host has gone away and does not come back");
		once_fail(o, &e);
	}
	if (o->state == ONCE_ENDED) {
		once_send(o, LINK_RESET, json_pack("{s:b,s:s}", "ok", 0, "text", "the host has not finished the reset yet"));
		once_enter(o, ONCE_OVER);
	}
	return 0;
}

void once_enter(struct once *o, enum once_state state)
{
	log_vm(LOG_DEBUG, o->vm, o->lease, "%s -> %s", once_state_to_string(o->state), once_state_to_string(state));
	o->state = state;
	o->due = sd_event_source_disable_unref(o->due);
	if (state == ONCE_ENDED)
		(void)once_timer(o, &o->due, RESET_TOLD_MS, on_too_late);
	if (state == ONCE_REJOINING || state == ONCE_RELEASING)
		(void)once_timer(o, &o->due, KEEPER_BACK_MS, on_too_late);
	if (state == ONCE_LEAVING)
		(void)once_timer(o, &o->due, LEAVING_MS, on_too_late);
}

static int on_writable(sd_event_source *s, int fd, uint32_t events, void *userdata);

static void flush(struct once *o)
{
	struct error e = ERROR_INIT;
	int r = link_flush(&o->out, STDOUT_FILENO, &e);

	if (r < 0) {
		once_leave(o, e.text);
		return;
	}
	if (r == 0)
		o->out_io = sd_event_source_disable_unref(o->out_io);
	else if (!o->out_io)
		(void)sd_event_add_io(o->ev, &o->out_io, STDOUT_FILENO, EPOLLOUT, on_writable, o);
}

static int on_writable(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	flush(userdata);
	return 0;
}

void once_send(struct once *o, enum link_type type, json_t *message)
{
	struct error e = ERROR_INIT;

	if (o->state == ONCE_LEAVING) {
		json_decref(message);
		return;
	}
	if (link_put(&o->out, type, message, &e) < 0)
		once_leave(o, e.text);
	else
		flush(o);
}

void once_tell(struct once *o, const struct error *e)
{
	char text[LINK_TEXT_MAX];

	str_show_n(text, sizeof(text), e->text, strlen(e->text));
	once_send(o, LINK_ERROR, json_pack("{s:i,s:s}", "status", error_exit_status(e), "text", text));
}

void once_fail(struct once *o, const struct error *e)
{
	once_tell(o, e);
	if (o->state != ONCE_LEAVING)
		end(o, error_exit_status(e));
}

void once_leave(struct once *o, const char *why)
{
	bool holds = o->state >= ONCE_LEASING && o->state < ONCE_ENDED, up = keeper_link_is_up(o->keeper);

	if (o->state == ONCE_LEAVING)
		return;
	log_vm(holds ? LOG_INFO : LOG_DEBUG, o->vm, o->lease, "the controller is gone (%s)", why);
	o->in_io = sd_event_source_disable_unref(o->in_io);
	o->out_io = sd_event_source_disable_unref(o->out_io);
	o->status = o->state == ONCE_OVER ? EXIT_STATUS_OK : EXIT_STATUS_UNREACHABLE;
	/* A lease that is held ends with this process, at once, if there is a keeper. */
	if (up ? holds || !o->notes : o->state < ONCE_LEASING || o->state >= ONCE_OVER)
		end(o, o->status);
	else
		once_enter(o, ONCE_LEAVING);
}

static int on_beat(sd_event_source *s, uint64_t us, void *userdata)
{
	struct once *o = userdata;

	once_send(o, LINK_BEAT, NULL);
	(void)once_timer(o, &o->beat, LINK_BEAT_MS, on_beat);
	return 0;
}

static void on_stop(void *userdata)
{
	struct once *o = userdata;
	struct error e = ERROR_INIT;

	/* At the other end nobody has interrupted anything: for them the host is gone. */
	(void)error_set(&e, ENOTCONN, "the host ends boxery's process there (SIGTERM)");
	once_fail(o, &e);
}

/*
 * boxery has children that ignore SIGINT: on this machine a terminal sends Ctrl-C to this process as well, and what it means is for
 * boxery to say. The loop has blocked the signal, and one that is blocked is not ignored.
 */
static void leave_interrupts_alone(void)
{
	struct sigaction now;
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGINT);
	if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
		(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* The fds may be those of a terminal or of somebody's file: then a person has started this by hand. */
static int open_link(struct once *o, struct error *e)
{
	for (int fd = STDIN_FILENO; fd <= STDOUT_FILENO; fd++) {
		int flags = fcntl(fd, F_GETFL);

		if (isatty(fd) || flags < 0)
			return error_set(e, EINVAL, "runners __once is what 'boxery runners once' runs on a host; it talks to nobody else");
		if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
			return error_errno(e, errno, "cannot prepare the link");
	}
	int r = sd_event_add_io(o->ev, &o->in_io, STDIN_FILENO, EPOLLIN, once_on_input, o);

	return r < 0 ? error_errno(e, -r, "standard input is no pipe or socket") : 0;
}

static void last_word(struct once *o)
{
	uint64_t until = once_now_ms() + LAST_WORD_MS;
	struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};

	while (link_flush(&o->out, STDOUT_FILENO, NULL) == 1 && once_now_ms() < until)
		(void)poll(&p, 1, 100);
}

static void once_free(struct once *o)
{
	sd_event_source **const sources[] = {&o->in_io, &o->out_io, &o->beat, &o->silence, &o->due, &o->tail};

	/* First of all the lease. */
	o->keeper = keeper_link_free(o->keeper);
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		(void)sd_event_source_disable_unref(*sources[i]);
	o->jit_fd = fd_close(o->jit_fd);
	o->console = fd_close(o->console);
	link_buffer_free(&o->in);
	link_buffer_free(&o->out);
	(void)sd_event_unref(o->ev);
}

static int run(struct once *o, struct error *e)
{
	static const char *const keeper_argv[] = {"boxery-runners", "--start-keeper", NULL};
	int r = hostconf_load(&o->conf, e);

	if (r == 0)
		r = loop_new(&o->ev, on_stop, o, e);
	leave_interrupts_alone();
	if (r == 0)
		r = open_link(o, e);
	if (r == 0)
		r = keeper_link_new(o->ev, &o->conf, &once_keeper_ops, o, keeper_argv, &o->keeper, e);
	if (r < 0)
		return r;
	r = keeper_link_start(o->keeper, e);
	if (r < 0) {
		/* The person at the other end reads it. */
		once_tell(o, e);
		o->status = error_exit_status(e);
		error_clear(e);
		return 0;
	}
	once_greet(o);
	(void)once_timer(o, &o->beat, LINK_BEAT_MS, on_beat);
	return sd_event_loop(o->ev) < 0 ? error_set(e, EIO, "the event loop has failed") : 0;
}

int once_main(void)
{
	CLEANUP(once_free) struct once o = {.jit_fd = -1, .console = -1, .status = EXIT_STATUS_FAILED};
	struct error e = ERROR_INIT;

	log_open("boxery-once", getenv("BOXERY_DEBUG") ? LOG_DEBUG : LOG_WARNING);
	(void)signal(SIGPIPE, SIG_IGN);
	link_wipe_memory();
	if (secret_init(&e) < 0 || run(&o, &e) < 0) {
		log_error("%s", e.text);
		return error_exit_status(&e);
	}
	/* The lease ends now; the other end may take its time. */
	o.keeper = keeper_link_free(o.keeper);
	last_word(&o);
	return o.status;
}
