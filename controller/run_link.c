/* The host's side of a run: ssh, or a local child, and what comes from it. */
#include "base/str.h"
#include "controller/clock.h"
#include "controller/forward.h"
#include "controller/run.h"
#include "controller/show.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEER "boxery on the host"
#define NAME_PREFIX "boxery-local-"
#define EXIT_NOT_FOUND 127
#define EXIT_SSH 255
#define LAST_WORDS_MAX 64 /* KiB */
#define PROGRESS_PER_SECOND 20 /* lines of one run; a host that is well says one now and then */

void run_link_open(struct run *r)
{
	static const char *const once[] = {"runners", "__once", NULL};
	CLEANUP_BUF struct buf line = BUF_INIT(FORWARD_LINE_MAX);
	const char *argv[FORWARD_ARGV_MAX];
	struct error e = ERROR_INIT;

	r->heard_ms = clock_now_ms();
	if (forward_command(r->plan->host, false, once, argv, &line, &e) == 0 &&
			process_start(argv, PROCESS_IN | PROCESS_OUT | PROCESS_ERR | PROCESS_NO_TOKENS, &r->link, &e) == 0) {
		run_send(r, LINK_HELLO, json_pack("{s:i,s:i,s:s}", "protocol", LINK_PROTOCOL, "oldest", LINK_OLDEST, "version",
				forward_version()));
		return;
	}
	forward_explain(r->plan->host, &e);
	r->link_lost = true;
	run_end(r, RESULT_NOT_DELIVERED, true, error_exit_status(&e), e.text);
}

void run_link_close(struct run *r)
{
	r->link.in = fd_close(r->link.in);
}

/* What became of a run whose host is not there any more: the host has taken the VM back by then, or will. */
static void lost(struct run *r, const char *why)
{
	char text[ERROR_TEXT_MAX];

	if (r->link_lost)
		return;
	r->link_lost = true;
	run_link_close(r);
	r->link.out = fd_close(r->link.out);
	if (r->state >= RUN_ENDING)
		return;
	(void)snprintf(text, sizeof(text), "%.300s%s", why, r->leased ? "; the host resets the VM by itself" : "");
	if (r->state >= RUN_STARTING && (r->busy || r->hint_running))
		run_end(r, RESULT_UNKNOWN, false, -1, text);
	else
		run_end(r, r->leased ? RESULT_GUEST_DIED : RESULT_NOT_DELIVERED, true, EXIT_STATUS_UNREACHABLE, text);
}

static void on_hello(struct run *r, json_t *m)
{
	struct error e = ERROR_INIT;

	if (r->state != RUN_GREETING)
		return;
	if (link_agree(m, "this boxery", PEER, &e) < 0 || link_arch(m, r->arch, &e) < 0) {
		run_end(r, RESULT_NOT_DELIVERED, true, error_exit_status(&e), e.text);
		return;
	}
	run_enter(r, RUN_READY, 0);
}

static bool is_own_name(const char *name)
{
	return str_starts(name, NAME_PREFIX) && strlen(name) < RUN_NAME_MAX && strlen(name) > strlen(NAME_PREFIX) &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name);
}

static void on_leased(struct run *r, json_t *m)
{
	if (r->state != RUN_LEASING) {
		r->leased = true;
		run_send(r, LINK_RELEASE, NULL);
		return;
	}
	/* Under this name a runner is looked for and deleted later: the host must not choose one that somebody else has. */
	if (!is_own_name(link_text(m, "runner"))) {
		lost(r, "the host wants a runner of a name that is not boxery-local-...");
		return;
	}
	link_shown(m, "vm", r->vm, sizeof(r->vm));
	link_shown(m, "runner", r->name, sizeof(r->name));
	r->leased = true;
	show_stage(r, "leased", "%s", r->vm);
	run_enter(r, RUN_MINTING, 0);
	run_mint(r);
}

static void on_hint(struct run *r, json_t *m)
{
	const char *state = link_text(m, "state");

	if (str_equal(state, "running") && !r->hint_running) {
		r->hint_running = true;
		link_shown(m, "text", r->hint, sizeof(r->hint));
		r->ask_ms = 0;
	}
	if (str_equal(state, "listening") && r->state == RUN_STARTING) {
		show_stage(r, "listening", "%s", r->name);
		run_enter(r, RUN_LISTENING, r->plan->idle_ms);
		r->ask_ms = clock_now_ms() + 5000;
	}
}

static void on_ended(struct run *r, json_t *m)
{
	char text[LINK_TEXT_MAX];

	link_shown(m, "text", text, sizeof(text));
	r->ended = true;
	r->clean = link_true(m, "clean");
	r->ended_ms = clock_now_ms();
	if (r->state == RUN_DELIVERING)
		run_end(r, RESULT_DELIVERY_FAILED, true, -1, text);
	else if (r->state < RUN_STARTING)
		run_end(r, RESULT_NOT_DELIVERED, true, RUN_EXIT_VM_LOST, text);
	else
		run_end(r, RESULT_UNKNOWN, false, -1, r->clean ? NULL : text);
}

static void on_reset(struct run *r, json_t *m)
{
	char text[LINK_TEXT_MAX];

	if (r->reset_told)
		return;
	link_shown(m, "text", text, sizeof(text));
	r->reset_told = true;
	if (link_true(m, "ok"))
		show_stage(r, "reset", "%s", r->vm);
	else
		show_note(r, "%s was not reset: %s", r->vm, text);
}

static void on_error(struct run *r, json_t *m)
{
	char text[LINK_TEXT_MAX];
	int status = (int)link_number(m, "status", 255);

	/* The others say something of a job, or of this end. */
	if (status < EXIT_STATUS_FAILED || status > EXIT_STATUS_TIMEOUT)
		status = EXIT_STATUS_FAILED;
	link_shown(m, "text", text, sizeof(text));
	/* It holds nothing any more, and goes. */
	r->ended = true;
	r->reset_told = true;
	if (r->state >= RUN_STARTING && (r->busy || r->hint_running))
		run_end(r, RESULT_UNKNOWN, false, -1, text);
	else
		run_end(r, r->state >= RUN_STARTING ? RESULT_GUEST_DIED : RESULT_NOT_DELIVERED, true, status, text);
}

static void tell_left_out(struct run *r)
{
	if (r->left_out)
		show_note(r, "(%u more lines left out)", r->left_out);
	r->left_out = 0;
}

static void on_progress(struct run *r, const char *text)
{
	uint64_t now = clock_now_ms();

	if (now - r->progress_ms >= 1000) {
		tell_left_out(r);
		r->progress_ms = now;
		r->n_progress = 0;
	}
	if (r->n_progress < PROGRESS_PER_SECOND) {
		r->n_progress++;
		show_note(r, "%s", text);
	} else {
		r->left_out++;
	}
}

static void on_message(struct run *r, enum link_type type, json_t *m)
{
	char text[LINK_TEXT_MAX];

	link_shown(m, "text", text, sizeof(text));
	switch (type) {
	case LINK_HELLO:
		on_hello(r, m);
		return;
	case LINK_PROGRESS:
		on_progress(r, text);
		return;
	case LINK_LEASED:
		on_leased(r, m);
		return;
	case LINK_DELIVERED:
		if (r->state == RUN_DELIVERING) {
			show_stage(r, "delivered", "%s", r->vm);
			run_enter(r, RUN_STARTING, RUN_STARTING_MS);
		}
		return;
	case LINK_HINT:
		on_hint(r, m);
		return;
	case LINK_OUTPUT:
		if (r->plan->follow)
			show_output(r, text);
		return;
	case LINK_ENDED:
		on_ended(r, m);
		return;
	case LINK_RESET:
		on_reset(r, m);
		return;
	case LINK_ERROR:
		on_error(r, m);
		return;
	case LINK_BEAT:
	case LINK_LEASE:
	case LINK_DELIVER:
	case LINK_BUSY:
	case LINK_RELEASE:
	case LINK_OUTCOME:
	case LINK_TYPE_COUNT:
		return; /* a beat, or what only this end says */
	}
}

static void on_out(void *userdata, int fd)
{
	struct run *r = userdata;
	struct error e = ERROR_INIT;
	enum link_type type;
	json_t *m;
	int n;

	if (fd != r->link.out)
		return;
	n = link_read(&r->in, fd, &e);
	if (n == -EAGAIN)
		return;
	if (n == 0) {
		/* Why is for the exit status to say, see run_link_tick(). */
		r->link.out = fd_close(r->link.out);
		return;
	}
	r->heard_ms = clock_now_ms();
	while (n > 0 && (n = link_next(&r->in, &type, &m, &e)) == 1) {
		on_message(r, type, m);
		json_decref(m);
	}
	if (n < 0)
		lost(r, e.text);
}

/* What ssh, or the host's end on this machine, says to people: shown by this process, or a stopped terminal would stop them. */
static bool take_err(struct run *r)
{
	char text[1024];
	ssize_t n = read(r->link.err, text, sizeof(text));

	if (n > 0)
		show_others(text, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		r->link.err = fd_close(r->link.err);
	return n > 0;
}

static void on_err(void *userdata, int fd)
{
	struct run *r = userdata;

	if (fd == r->link.err)
		(void)take_err(r);
}

void run_link_last_words(struct run *r)
{
	for (int i = 0; i < LAST_WORDS_MAX && r->link.err >= 0 && take_err(r); i++)
		;
	tell_left_out(r);
}

static void on_in(void *userdata, int fd)
{
	struct run *r = userdata;

	/* EPIPE: the other direction says more. */
	if (fd == r->link.in && link_flush(&r->out, fd, NULL) < 0)
		run_link_close(r);
}

void run_link_poll(struct run *r, struct poller *p)
{
	if (r->link.pid < 0)
		return;
	poller_add(p, r->link.out, POLLIN, on_out, r);
	poller_add(p, r->link.err, POLLIN, on_err, r);
	if (r->out.len)
		poller_add(p, r->link.in, POLLOUT, on_in, r);
}

void run_send(struct run *r, enum link_type type, json_t *message)
{
	if (r->link.in < 0) {
		json_decref(message);
		return;
	}
	if (link_put(&r->out, type, message, NULL) < 0 || link_flush(&r->out, r->link.in, NULL) < 0)
		run_link_close(r);
}

/* The link's program has ended before the run was over. */
static void explain(struct run *r)
{
	int code = WIFEXITED(r->link.status) ? WEXITSTATUS(r->link.status) : -1;
	const char *host = r->plan->host[0] ? r->plan->host : "this machine";
	char text[ERROR_TEXT_MAX];

	if (r->plan->host[0] && code == EXIT_SSH)
		(void)snprintf(text, sizeof(text), r->heard_ms && r->state > RUN_GREETING ? "the connection to %.200s is lost" :
				"%.200s cannot be reached; what ssh says is above", host);
	else if (r->state == RUN_GREETING && code == EXIT_NOT_FOUND)
		(void)snprintf(text, sizeof(text), "boxery-host is not installed on %.200s, or not in PATH there", host);
	else if (r->state == RUN_GREETING)
		(void)snprintf(text, sizeof(text), "boxery-host on %.200s ended without a word (exit status %d); is it of the same version? "
				"'boxery setup' looks", host, code);
	else
		(void)snprintf(text, sizeof(text), "boxery's process on %.200s has ended (exit status %d)", host, code);
	lost(r, text);
}

void run_link_tick(struct run *r)
{
	uint64_t now = clock_now_ms();

	if (r->link.pid < 0 || r->link_lost || r->state == RUN_DONE)
		return;
	if (r->link.out < 0) {
		if (process_reap(&r->link)) {
			run_link_last_words(r);
			explain(r);
		} else if (!r->lost_ms) {
			r->lost_ms = now + PROCESS_LOST_MS;
		} else if (now >= r->lost_ms) {
			lost(r, "the host has closed the connection");
		}
		return;
	}
	if (now - r->heard_ms >= LINK_SILENT_MS) {
		lost(r, "the host has been silent for two minutes");
		return;
	}
	if (now >= r->beat_ms) {
		r->beat_ms = now + LINK_BEAT_MS;
		run_send(r, LINK_BEAT, NULL);
	}
}
