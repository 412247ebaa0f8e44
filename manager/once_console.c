/*
 * The runner's output, from the file into which the hypervisor writes the guest's console. Root in the guest can write anything
 * there: every line is bounded and made harmless, a slow reader gets less of it, and nothing is decided by it. It only lets the
 * controller ask GitHub at the right moment, and a person look.
 */
#include "manager/once.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 200
#define READ_AT_ONCE 16384
#define QUEUE_FOR_OUTPUT (64 * 1024) /* more than that waits for the controller: it reads slowly, or not at all */
#define TIMESTAMP "0000-00-00 00:00:00Z: "

void once_console_open(struct once *o)
{
	char path[sizeof(o->conf.image_dir) + VM_NAME_MAX + 32];
	struct stat st;

	if (str_format(path, "%s/console/%s.log", o->conf.image_dir, o->vm) < 0)
		return;
	o->console = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	/* What is there already is the boot's. */
	if (o->console >= 0 && (fstat(o->console, &st) < 0 || !S_ISREG(st.st_mode) || lseek(o->console, 0, SEEK_END) < 0))
		o->console = fd_close(o->console);
}

static const char *behind_timestamp(const char *line)
{
	size_t i;

	for (i = 0; TIMESTAMP[i]; i++)
		if (TIMESTAMP[i] == '0' ? line[i] < '0' || line[i] > '9' : line[i] != TIMESTAMP[i])
			return line;
	return line + i;
}

bool once_console_hint(const char *line, const char **ret_state, const char **ret_rest)
{
	static const struct {
		const char *words, *state;
	} known[] = {{"Listening for Jobs", "listening"}, {"Running job: ", "running"}};
	const char *text = behind_timestamp(line);

	for (size_t i = 0; text != line && i < ARRAY_SIZE(known); i++)
		if (str_starts(text, known[i].words)) {
			*ret_state = known[i].state;
			*ret_rest = text + strlen(known[i].words);
			return true;
		}
	return false;
}

static void line_done(struct once *o)
{
	char shown[LINK_TEXT_MAX];
	const char *state, *rest;

	while (o->line_len > 0 && o->line[o->line_len - 1] == '\r')
		o->line_len--;
	str_show_n(shown, sizeof(shown), o->line, o->line_len);
	o->line_len = 0;
	if (!shown[0])
		return;
	if (once_console_hint(shown, &state, &rest))
		once_send(o, LINK_HINT, json_pack("{s:s,s:s}", "state", state, "text", rest));
	if (!o->follow)
		return;
	if (o->out.len > QUEUE_FOR_OUTPUT) {
		o->left_out++;
		return;
	}
	if (o->left_out) {
		char text[64];

		(void)str_format(text, "(%u lines left out)", o->left_out);
		once_send(o, LINK_OUTPUT, json_pack("{s:s}", "text", text));
		o->left_out = 0;
	}
	once_send(o, LINK_OUTPUT, json_pack("{s:s}", "text", shown));
}

/* What does not fit into a line is left out of it. */
static void look(struct once *o)
{
	char data[READ_AT_ONCE];
	ssize_t n = read(o->console, data, sizeof(data));

	for (ssize_t i = 0; i < n; i++) {
		if (data[i] == '\n')
			line_done(o);
		else if (o->line_len < sizeof(o->line))
			o->line[o->line_len++] = data[i];
	}
}

static int on_look(sd_event_source *s, uint64_t us, void *userdata)
{
	struct once *o = userdata;

	look(o);
	/* A moment longer than the lease: the last lines say how the job went. */
	if (o->state == ONCE_DELIVERED || o->state == ONCE_REJOINING || o->state == ONCE_RELEASING || o->state == ONCE_ENDED)
		(void)once_timer(o, &o->tail, LOOK_MS, on_look);
	return 0;
}

void once_console_start(struct once *o)
{
	if (o->console >= 0)
		(void)once_timer(o, &o->tail, LOOK_MS, on_look);
}
