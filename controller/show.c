#include "controller/show.h"
#include "base/str.h"
#include "controller/clock.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX 700
#define TURN_MS 100 /* of the spinner */
#define PATIENCE_MS 1000 /* with whoever reads the runner's lines */

static bool spinning;

void show_clear(void)
{
	if (spinning)
		(void)fputs("\r\x1b[K", stderr);
	spinning = false;
}

static void json_line(const struct run *r, const char *event, json_t *more)
{
	json_t *o = json_pack("{s:s,s:i,s:I,s:s,s:s}", "event", event, "runner", (int)r->number, "elapsed_ms",
			(json_int_t)(clock_now_ms() - r->plan->began_ms), "vm", r->vm, "name", r->name);

	if (o && more)
		(void)json_object_update(o, more);
	json_decref(more);
	if (o && json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER) == 0)
		(void)putchar('\n');
	(void)fflush(stdout);
	json_decref(o);
}

static void head(const struct run *r, FILE *to, const char *word)
{
	uint64_t ms = clock_now_ms() - r->plan->began_ms;

	show_clear();
	(void)fprintf(to, "[%6.1f s] ", (double)ms / 1000);
	if (r->plan->count > 1)
		(void)fprintf(to, "#%-2u ", r->number);
	(void)fprintf(to, "%-11s", word);
}

void show_stage(const struct run *r, const char *word, const char *format, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (r->plan->json) {
		json_line(r, word, json_pack("{s:s}", "text", text));
		return;
	}
	head(r, stdout, word);
	(void)printf(" %s\n", text);
	(void)fflush(stdout);
}

void show_note(const struct run *r, const char *format, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (r->plan->json)
		json_line(r, "note", json_pack("{s:s}", "text", text));
	head(r, stderr, "");
	(void)fprintf(stderr, " %s\n", text);
}

static bool is_taken(int fd, int within_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, within_ms) > 0;
}

static void output(const struct run *r, const char *text)
{
	if (r->plan->json) {
		json_line(r, "output", json_pack("{s:s}", "text", text));
		return;
	}
	show_clear();
	if (r->plan->count > 1)
		(void)printf("#%-2u ", r->number);
	(void)printf("| %s\n", text);
	(void)fflush(stdout);
}

/*
 * A reader that stands still (a pager, Ctrl-S) must not stop the heartbeats, since after two minutes without one the host takes the VM
 * back: after a moment lines are left out until it goes on.
 */
void show_output(const struct run *r, const char *text)
{
	static unsigned left_out;
	char note[64];

	if (!is_taken(STDOUT_FILENO, left_out ? 0 : PATIENCE_MS)) {
		left_out++;
		return;
	}
	if (left_out) {
		(void)str_format(note, "(%u lines left out)", left_out);
		output(r, note);
	}
	left_out = 0;
	output(r, text);
}

void show_result(const struct run *r)
{
	const char *word = result_to_string(r->result);

	if (r->plan->json)
		json_line(r, "result", json_pack("{s:s,s:i,s:s,s:s}", "outcome", word, "status", run_exit_status(r), "job", r->job, "text",
				r->why));
	else
		show_stage(r, "result", "%s%s%s%s", word, r->job[0] ? " (" : "", r->job, r->job[0] ? ")" : "");
}

static const char *waiting_for(const struct run *r)
{
	static const char *const texts[RUN_STATE_COUNT] = {
		[RUN_NEW] = "waits for its turn", [RUN_GREETING] = "reaching the host", [RUN_READY] = "asking GitHub about the repository",
		[RUN_LEASING] = "waiting for a clean VM", [RUN_MINTING] = "registering", [RUN_DELIVERING] = "delivering",
		[RUN_STARTING] = "the runner starts", [RUN_LISTENING] = "listening for a job", [RUN_BUSY] = "running",
		[RUN_STOPPING] = "deleting the registration", [RUN_ENDING] = "tidying up", [RUN_DONE] = ""};

	return texts[r->state];
}

void show_spinner(const struct run *runs, unsigned n)
{
	static const char marks[] = "|/-\\";
	static unsigned turn;
	static uint64_t drawn_ms;
	const struct run *first = NULL;

	for (unsigned i = 0; i < n; i++) {
		/* ssh may ask for a passphrase, and says on its own what goes wrong. */
		if (runs[i].state == RUN_GREETING && runs[i].plan->host[0]) {
			show_clear();
			return;
		}
		if (!first && runs[i].state != RUN_DONE)
			first = &runs[i];
	}
	if (!first || (spinning && clock_now_ms() - drawn_ms < TURN_MS) || !is_taken(STDERR_FILENO, 0))
		return;
	drawn_ms = clock_now_ms();
	(void)fprintf(stderr, "\r\x1b[K%c [%6.1f s] %s", marks[turn++ % 4], (double)(drawn_ms - first->plan->began_ms) / 1000,
			waiting_for(first));
	(void)fflush(stderr);
	spinning = true;
}
