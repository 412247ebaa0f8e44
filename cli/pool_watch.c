/*
 * pool ls --watch. The keeper tells of every change of state; what is drawn is always its list, asked for anew, so nothing
 * here has to follow the states. A terminal is redrawn at most every REDRAW_MS, on its second screen, and is put back
 * however the watching ends. Without a terminal the changes themselves are the output, a line each.
 */
#include "base/str.h"
#include "cli/host.h"
#include "linux/clock.h"
#include "pool/state.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#define REDRAW_MS 500
#define IDLE_REDRAW_MS 5000 /* how long a VM is in its state is shown, too */
#define SCREEN_BEGIN "\x1b[?1049h\x1b[?25l"
#define SCREEN_CLEAR "\x1b[H\x1b[J"
#define SCREEN_END "\x1b[?25h\x1b[?1049l"

struct watch {
	const struct hostconf *conf;
	const char *pool; /* NULL: all */
	struct keeper_client *events, *lists;
	int signals;
	bool terminal, ended, changed;
	json_t *vms; /* the last list */
};

static int ask_list(struct watch *w, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	struct keeper_request r;
	json_error_t fault;
	json_t *document;
	int code;

	keeper_request_init(&r, KEEPER_LIST);
	code = keeper_call(w->lists, &r, -1, CLI_CALL_TIMEOUT_MS, NULL, NULL, NULL, &text, e);
	if (code < 0)
		return code;
	document = text ? json_loads(text, JSON_REJECT_DUPLICATES, &fault) : NULL;
	if (!document)
		return error_set(e, EPROTO, "the keeper's list cannot be read: %s", text ? fault.text : "it sent none");
	json_decref(w->vms);
	w->vms = json_incref(json_object_get(document, "vms"));
	json_decref(document);
	pool_rows_only(w->vms, w->pool);
	return 0;
}

static bool listed(const struct watch *w, const char *name)
{
	json_t *vm;
	size_t i;

	json_array_foreach(w->vms, i, vm)
	{
		const char *other = json_string_value(json_object_get(vm, "name"));

		if (other && str_equal(other, name))
			return true;
	}
	return false;
}

/* A new VM is looked up; one that has just left the pool is still in the list from before. */
static int print_event(struct watch *w, const struct keeper_event *v, struct error *e)
{
	const char *from = state_to_string((enum vm_state)v->from), *to = state_to_string((enum vm_state)v->to);
	const char *what = happening_to_string((enum vm_happening)v->what);
	char at[32], text[KEEPER_TEXT_MAX];
	int code;

	if (!listed(w, v->name)) {
		code = ask_list(w, e);
		if (code < 0)
			return code;
		if (!listed(w, v->name))
			return 0;
	}
	clock_wall_text(clock_wall_us(), at, sizeof(at));
	str_show_n(text, sizeof(text), v->text, strlen(v->text));
	printf("%s %s %s -> %s %s%s%s\n", at, v->name, from ? from : "?", to ? to : "?", what ? what : "?",
			text[0] ? ": " : "", text);
	(void)fflush(stdout);
	return 0;
}

static int print_list(struct watch *w, struct error *e)
{
	char at[32], name[VM_NAME_MAX], state[32];
	int code = ask_list(w, e);
	json_t *vm;
	size_t i;

	if (code < 0)
		return code;
	json_array_foreach(w->vms, i, vm)
	{
		printf("%s %s %s\n", json_text(vm, "since", at, sizeof(at)), json_text(vm, "name", name, sizeof(name)),
				json_text(vm, "state", state, sizeof(state)));
	}
	(void)fflush(stdout);
	return 0;
}

/* The keeper drops who does not read for a while (Ctrl-Z). What was missed is in the list; of a keeper that has ended, e says so. */
static int subscribe_again(struct watch *w, struct error *e)
{
	struct error again = ERROR_INIT;

	w->events = keeper_client_free(w->events);
	if (cli_subscribe(w->conf, false, &w->events, &again) < 0)
		return -e->code;
	error_clear(e);
	w->changed = true;
	return w->terminal ? 0 : print_list(w, e);
}

static int read_events(struct watch *w, struct error *e)
{
	struct keeper_answer a;
	int code;

	while ((code = keeper_receive(w->events, &a, e)) == 1) {
		free(a.document);
		if (a.type != KEEPER_EVENT)
			continue;
		w->changed = true;
		code = w->terminal ? 0 : print_event(w, &a.event, e);
		if (code < 0)
			return code;
	}
	if (code == -ENOTCONN)
		return subscribe_again(w, e);
	if (code != -EAGAIN)
		return code;
	error_clear(e);
	return 0;
}

static void read_signals(struct watch *w)
{
	struct signalfd_siginfo info;

	while (read(w->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGWINCH)
			w->changed = true;
		else
			w->ended = true;
	}
}

static int draw(struct watch *w, struct error *e)
{
	size_t columns = 0, rows = 0;
	char now[32];
	int code = ask_list(w, e);

	if (code < 0)
		return code;
	clock_wall_text(clock_wall_us(), now, sizeof(now));
	printf(SCREEN_CLEAR "%s   %zu VMs   Ctrl-C ends\n", now, json_array_size(w->vms));
	/* One line for the head above, one so that the last newline does not scroll. */
	pool_print_table(w->vms, terminal_size(&columns, &rows) && rows > 3 ? rows - 2 : 1);
	(void)fflush(stdout);
	w->changed = false;
	return 0;
}

static int go_on(struct watch *w, struct error *e)
{
	uint64_t drawn_us = clock_boot_us();
	int code = w->terminal ? draw(w, e) : print_list(w, e);

	while (code == 0 && !w->ended) {
		uint64_t next = drawn_us + (w->changed ? REDRAW_MS : IDLE_REDRAW_MS) * 1000ull;
		struct pollfd p[] = {{.fd = keeper_client_fd(w->events), .events = POLLIN},
				{.fd = w->signals, .events = POLLIN}, {.fd = STDOUT_FILENO}};

		(void)poll(p, ARRAY_SIZE(p), w->terminal ? cli_poll_ms(next) : -1);
		if (p[1].revents)
			read_signals(w);
		if (p[2].revents & (POLLERR | POLLHUP))
			w->ended = true;
		code = read_events(w, e);
		next = drawn_us + (w->changed ? REDRAW_MS : IDLE_REDRAW_MS) * 1000ull;
		if (code == 0 && w->terminal && !w->ended && clock_boot_us() >= next) {
			drawn_us = clock_boot_us();
			code = draw(w, e);
		}
	}
	return code;
}

static void watch_free(struct watch *w)
{
	w->events = keeper_client_free(w->events);
	w->lists = keeper_client_free(w->lists);
	w->signals = fd_close(w->signals);
	json_decref(w->vms);
}

/* The second screen is left before anything else is said. SIGTSTP is blocked, too: it would stop us on that screen. */
int pool_watch(const char *pool)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
	struct watch w = {.pool = pool, .signals = -1, .terminal = isatty(STDOUT_FILENO)};
	struct hostconf conf;
	struct error e = ERROR_INIT;
	sigset_t stop;

	w.conf = &conf;
	if (hostconf_load(&conf, &e) < 0 || cli_subscribe(&conf, true, &w.events, &e) < 0 ||
			keeper_connect(&conf, true, &w.lists, &e) < 0 ||
			cli_signals(signals, ARRAY_SIZE(signals), &w.signals, &e) < 0) {
		watch_free(&w);
		return cli_fail(&e);
	}
	(void)sigemptyset(&stop);
	(void)sigaddset(&stop, SIGTSTP);
	if (w.terminal) {
		(void)sigprocmask(SIG_BLOCK, &stop, NULL);
		(void)setvbuf(stdout, NULL, _IOFBF, BUFSIZ * 8); /* a screen is written at once and does not flicker */
		printf(SCREEN_BEGIN);
	}
	(void)go_on(&w, &e);
	if (w.terminal) {
		printf(SCREEN_END);
		(void)fflush(stdout);
	}
	watch_free(&w);
	return e.code ? cli_fail(&e) : EXIT_STATUS_INTERRUPTED;
}
