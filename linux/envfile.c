#include "linux/file.h"
#include "base/cleanup.h"
#include <errno.h>
#include <string.h>

/* Bounds the search for repeated keys; far above what any of the files has. */
#define KEYS_MAX 256

struct copy {
	char *text;
	size_t len;
};

/* runners.env holds a token: no copy of a file stays behind in freed memory. */
static void copy_free(struct copy *c)
{
	if (c->text)
		explicit_bzero(c->text, c->len + 1);
	free(c->text);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks at both ends of a line, in place. */
static char *trim(char *s)
{
	size_t n;

	while (is_blank(*s))
		s++;
	n = strlen(s);
	while (n > 0 && is_blank(s[n - 1]))
		s[--n] = '\0';
	return s;
}

static bool key_valid(const char *s)
{
	size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	return n > 0 && s[n] == '\0' && !(s[0] >= '0' && s[0] <= '9');
}

/* One line that is neither blank nor a comment. Its text is not put into an error: it may be a secret. */
static int parse_line(
	char *line, const char **keys, size_t *n_keys, envfile_cb cb, void *userdata, struct error *e)
{
	char *equals = strchr(line, '=');
	char *key, *value;

	if (!equals)
		return error_set(e, EBADMSG, "not a setting; write KEY=VALUE");
	*equals = '\0';
	key = trim(line);
	value = trim(equals + 1);
	if (!key_valid(key))
		return error_set(
			e, EBADMSG, "what stands before '=' is not a key; use letters, digits and '_'");
	for (size_t i = 0; i < *n_keys; i++)
		if (strcmp(keys[i], key) == 0)
			return error_set(
				e, EBADMSG, "%.100s is set a second time; keep one of the lines", key);
	if (*n_keys == KEYS_MAX)
		return error_set(e, EBADMSG, "more than %d settings", KEYS_MAX);
	keys[(*n_keys)++] = key;
	return cb(userdata, key, value, e);
}

int envfile_parse(
	const char *shown_name, const char *data, size_t len, envfile_cb cb, void *userdata, struct error *e)
{
	const char *keys[KEYS_MAX];
	size_t n_keys = 0;
	unsigned number = 0;
	CLEANUP(copy_free) struct copy copy = {0};

	if (len > ENVFILE_MAX)
		return error_set(e, EFBIG, "%s: larger than %d bytes", shown_name, ENVFILE_MAX);
	copy.text = malloc(len + 1);
	if (!copy.text)
		return error_errno(e, ENOMEM, "%s", shown_name);
	copy.len = len;
	if (len > 0)
		memcpy(copy.text, data, len);
	copy.text[len] = '\0';

	for (char *next = copy.text, *end = copy.text + len; next < end;) {
		char *line = next, *newline = memchr(line, '\n', (size_t)(end - line));
		char *line_end = newline ? newline : end;
		struct error local = ERROR_INIT;
		int r;

		number++;
		next = line_end + 1;
		*line_end = '\0';
		if (memchr(line, '\0', (size_t)(line_end - line)))
			return error_set(
				e, EBADMSG, "%s:%u: a NUL byte; this is not a text file", shown_name, number);
		line = trim(line);
		if (*line == '\0' || *line == '#')
			continue;
		r = parse_line(line, keys, &n_keys, cb, userdata, &local);
		if (r < 0) {
			/* A value that a parser calls invalid: the file is bad, not the command line. */
			int code = r == -EINVAL ? EBADMSG : -r;

			return error_set(e, code, "%s:%u: %s", shown_name, number,
				local.code ? local.text : strerror(code));
		}
	}
	return 0;
}
