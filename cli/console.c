/*
 * The end of a guest's console, read from the image folder. It is for people and decides nothing: root in the guest can write
 * anything there, so it is bounded, and every control character is made visible.
 */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define CONSOLE_TAIL (16 * 1024)
#define CONSOLE_LINES 20
#define CONSOLE_LINE_MAX 400

static void add_line(json_t *lines, const char *text, size_t len)
{
	char shown[CONSOLE_LINE_MAX];

	while (len > 0 && text[len - 1] == '\r')
		len--;
	if (len == 0)
		return;
	str_show_n(shown, sizeof(shown), text, len);
	(void)json_array_append_new(lines, json_string(shown));
	if (json_array_size(lines) > CONSOLE_LINES)
		(void)json_array_remove(lines, 0);
}

static void add_lines(json_t *lines, const char *text, size_t len, bool begins_inside)
{
	while (len > 0) {
		const char *newline = memchr(text, '\n', len);
		size_t n = newline ? (size_t)(newline - text) : len;

		if (!begins_inside)
			add_line(lines, text, n);
		begins_inside = false;
		n += newline ? 1 : 0;
		text += n;
		len -= n;
	}
}

json_t *cli_console(const char *path, struct error *e)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	json_t *lines = json_array();
	char tail[CONSOLE_TAIL];
	struct stat st;
	ssize_t n;

	if (fd < 0) {
		if (errno != ENOENT)
			(void)error_errno(e, errno, "%s", path);
		return lines;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		(void)error_set(e, EINVAL, "%s is not a regular file", path);
		return lines;
	}
	n = pread(fd, tail, sizeof(tail), st.st_size > CONSOLE_TAIL ? st.st_size - CONSOLE_TAIL : 0);
	if (n < 0)
		(void)error_errno(e, errno, "%s", path);
	else
		add_lines(lines, tail, (size_t)n, st.st_size > CONSOLE_TAIL);
	return lines;
}
