#include "controller/show.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "controller/clock.h"
#include "controller/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX 700
#define LINE_MAX_ (TEXT_MAX + 100)
#define TURN_MS 100 /* of the spinner */
#define OUTPUT_WAITING (64 * 1024) /* of the runner's lines; more than that waits for whoever reads them */

static bool spinning;

static void add(int fd, const char *text)
{
	screen_add(fd, text, strlen(text));
}

void show_clear(void)
{
	if (spinning)
		add(STDERR_FILENO, "\r\x1b[K");
	spinning = false;
}

static void json_line(const struct run *r, const char *event, json_t *more)
{
	json_t *o = json_pack("{s:s,s:i,s:I,s:s,s:s}", "event", event, "runner", (int)r->number, "elapsed_ms",
			(json_int_t)(clock_now_ms() - r->plan->began_ms), "vm", r->vm, "name", r->name);
	char *text;
	size_t len;

	if (o && more)
		(void)json_object_update(o, more);
	json_decref(more);
	text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER) : NULL;
	json_decref(o);
	if (!text)
		return;
	len = strlen(text);
	text[len] = '\n'; /* no string any more */
	screen_add(STDOUT_FILENO, text, len + 1);
	link_memory_free(text);
}

static void line(const struct run *r, int to, const char *word, const char *text)
{
	CLEANUP_BUF struct buf b = BUF_INIT(LINE_MAX_);

	show_clear();
	(void)buf_addf(&b, "[%6.1f s] ", (double)(clock_now_ms() - r->plan->began_ms) / 1000);
	if (r->plan->count > 1)
		(void)buf_addf(&b, "#%-2u ", r->number);
	if (buf_addf(&b, "%-11s %s\n", word, text) == 0)
		screen_add(to, b.data, b.len);
}

void show_stage(const struct run *r, const char *word, const char *format, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (r->plan->json)
		json_line(r, word, json_pack("{s:s}", "text", text));
	else
		line(r, STDOUT_FILENO, word, text);
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
	line(r, STDERR_FILENO, "", text);
}

static void output(const struct run *r, const char *text)
{
	CLEANUP_BUF struct buf b = BUF_INIT(LINE_MAX_);

	if (r->plan->json) {
		json_line(r, "output", json_pack("{s:s}", "text", text));
		return;
	}
	show_clear();
	if (r->plan->count > 1)
		(void)buf_addf(&b, "#%-2u ", r->number);
	if (buf_addf(&b, "| %s\n", text) == 0)
		screen_add(STDOUT_FILENO, b.data, b.len);
}

/* A reader that stands still gets no more of them, until it goes on. */
void show_output(const struct run *r, const char *text)
{
	static unsigned left_out;
	char note[64];

	if (screen_waiting() > OUTPUT_WAITING) {
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

void show_others(const char *text, size_t len)
{
	CLEANUP_BUF struct buf b = BUF_INIT(4 * len + 1);
	char one[8];
	int r = 0;

	show_clear();
	for (size_t i = 0; i < len && r == 0; i++) {
		if (text[i] == '\r')
			continue; /* ssh ends its lines with both */
		if (text[i] == '\n' || text[i] == '\t')
			(void)str_format(one, "%c", text[i]);
		else
			str_show_n(one, sizeof(one), &text[i], 1);
		r = buf_add(&b, one, strlen(one));
	}
	if (b.len)
		screen_add(STDERR_FILENO, b.data, b.len);
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
	char text[LINE_MAX_];

	for (unsigned i = 0; i < n; i++) {
		/* ssh may ask for a passphrase, and says on its own what goes wrong. */
		if (runs[i].state == RUN_GREETING && runs[i].plan->host[0]) {
			show_clear();
			return;
		}
		if (!first && runs[i].state != RUN_DONE)
			first = &runs[i];
	}
	if (!first || (spinning && clock_now_ms() - drawn_ms < TURN_MS) || screen_waiting() ||
			!screen_is_taken(STDERR_FILENO))
		return;
	drawn_ms = clock_now_ms();
	(void)str_format(text, "\r\x1b[K%c [%6.1f s] %s", marks[turn++ % 4], (double)(drawn_ms - first->plan->began_ms) / 1000,
			waiting_for(first));
	add(STDERR_FILENO, text);
	spinning = true;
}
