/*
 * Framing. A line is looked at before jansson gets it: its length while it is read, its depth before jansson recurses into it.
 * A newline cannot stand inside of JSON's strings, so splitting comes first and a half line stays in the buffer until its end
 * comes or the stream ends.
 */
#include "link/link.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "base/str.h"
#include "base/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_AT_ONCE 8192

static const char *const names[] = {"hello", "beat", "lease", "progress", "leased", "deliver", "delivered", "hint", "output", "busy",
		"release", "ended", "reset", "outcome", "error"};
STRING_TABLE(link_type, enum link_type, names, LINK_TYPE_COUNT);

void link_buffer_free(struct link_buffer *b)
{
	if (b->data)
		link_wipe(b->data, b->cap);
	free(b->data);
	*b = LINK_BUFFER_INIT;
}

/* Never realloc: the old block has to be wiped. */
static int reserve(struct link_buffer *b, size_t more, size_t max)
{
	size_t cap = b->cap ? b->cap : READ_AT_ONCE;
	char *data;

	if (more > max || b->len > max - more)
		return -E2BIG;
	while (cap < b->len + more)
		cap *= 2;
	if (cap == b->cap)
		return 0;
	data = malloc(cap);
	if (!data)
		return -ENOMEM;
	if (b->len)
		memcpy(data, b->data, b->len);
	if (b->data)
		link_wipe(b->data, b->cap);
	free(b->data);
	b->data = data;
	b->cap = cap;
	return 0;
}

int link_add(struct link_buffer *b, const void *data, size_t len)
{
	int r = reserve(b, len, LINK_BUFFER_MAX);

	if (r == 0 && len)
		memcpy(b->data + b->len, data, len);
	b->len += r == 0 ? len : 0;
	return r < 0 ? -ENOMEM : 0;
}

static void drop(struct link_buffer *b, size_t n)
{
	memmove(b->data, b->data + n, b->len - n);
	link_wipe(b->data + b->len - n, n);
	b->len -= n;
}

int link_read(struct link_buffer *in, int fd, struct error *e)
{
	ssize_t n;
	int r = reserve(in, READ_AT_ONCE, LINK_LINE_MAX + READ_AT_ONCE);

	if (r == -E2BIG)
		return error_set(e, EBADMSG, "the other end sent a line of more than %d bytes", LINK_LINE_MAX);
	if (r < 0)
		return error_set(e, ENOMEM, "no memory for what the other end sends");
	n = read(fd, in->data + in->len, READ_AT_ONCE);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? error_set(e, EAGAIN, "nothing is there") :
							   error_errno(e, errno, "cannot read from the other end");
	in->len += (size_t)n;
	return (int)n;
}

static int parse(const char *line, size_t len, json_t **ret, struct error *e)
{
	json_error_t fault;
	json_t *message;

	if (parse_json_deep(line, len, LINK_DEPTH_MAX))
		return error_set(e, EBADMSG, "the other end sent JSON that is nested more than %d deep", LINK_DEPTH_MAX);
	message = json_loadb(line, len, JSON_REJECT_DUPLICATES, &fault);
	/* jansson's words would quote the line. */
	if (!message)
		return error_set(e, EBADMSG, "the other end sent what is not JSON (at byte %d)", fault.position);
	if (!json_is_object(message) || !json_is_string(json_object_get(message, "type"))) {
		json_decref(message);
		return error_set(e, EBADMSG, "the other end sent JSON that is no message");
	}
	*ret = message;
	return 0;
}

int link_next(struct link_buffer *in, enum link_type *ret_type, json_t **ret, struct error *e)
{
	for (;;) {
		const char *newline = in->len ? memchr(in->data, '\n', in->len) : NULL;
		size_t len = newline ? (size_t)(newline - in->data) : in->len;
		json_t *message = NULL;
		int r;

		if (len > LINK_LINE_MAX)
			return error_set(e, EBADMSG, "the other end sent a line of more than %d bytes", LINK_LINE_MAX);
		if (!newline)
			return 0;
		r = parse(in->data, len, &message, e);
		drop(in, len + 1);
		if (r < 0)
			return r;
		if (link_type_from_string(link_text(message, "type"), ret_type) == 0) {
			*ret = message;
			return 1;
		}
		json_decref(message);
	}
}

int link_put(struct link_buffer *out, enum link_type type, json_t *message, struct error *e)
{
	json_t *m = message ? message : json_object();
	char *text = NULL;
	size_t len;
	int r = -ENOMEM;

	if (m && json_object_set_new(m, "type", json_string(link_type_to_string(type))) == 0)
		text = json_dumps(m, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(m);
	if (text) {
		len = strlen(text);
		r = reserve(out, len + 1, LINK_QUEUE_MAX);
		if (r == 0) {
			memcpy(out->data + out->len, text, len);
			out->data[out->len + len] = '\n';
			out->len += len + 1;
		}
		link_memory_free(text);
	}
	if (r == -E2BIG)
		return error_set(e, E2BIG, "the other end takes nothing any more");
	return r < 0 ? error_set(e, ENOMEM, "no memory for a message") : 0;
}

int link_flush(struct link_buffer *out, int fd, struct error *e)
{
	while (out->len > 0) {
		ssize_t n = write(fd, out->data, out->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 1;
		if (n < 0)
			return error_errno(e, errno, "cannot write to the other end");
		drop(out, (size_t)n);
	}
	return 0;
}

const char *link_text(const json_t *message, const char *key)
{
	const char *text = json_string_value(json_object_get(message, key));

	return text ? text : "";
}

void link_shown(const json_t *message, const char *key, char *dst, size_t size)
{
	const char *text = link_text(message, key);

	str_show_n(dst, size, text, strlen(text));
}

uint64_t link_number(const json_t *message, const char *key, uint64_t max)
{
	json_int_t v = json_integer_value(json_object_get(message, key));

	return v < 0 || (uint64_t)v > max ? 0 : (uint64_t)v;
}

bool link_true(const json_t *message, const char *key)
{
	return json_is_true(json_object_get(message, key));
}

int link_agree(const json_t *hello, const char *us, const char *them, struct error *e)
{
	uint64_t newest = link_number(hello, "protocol", INT32_MAX), oldest = link_number(hello, "oldest", INT32_MAX);
	char version[32];

	link_shown(hello, "version", version, sizeof(version));
	if (newest == 0 || oldest == 0 || oldest > newest)
		return error_set(e, EBADMSG, "%s does not say which protocol it speaks", them);
	if (newest < LINK_OLDEST)
		return error_set(e, EOPNOTSUPP, "%s is too old (%s, protocol %" PRIu64 "; at least %d is needed): upgrade boxery there",
				them, version, newest, LINK_OLDEST);
	if (oldest > LINK_PROTOCOL)
		return error_set(e, EOPNOTSUPP, "%s is too old for %s (%s, which speaks protocol %" PRIu64 " and newer): upgrade it", us,
				them, version, oldest);
	return (int)(newest < LINK_PROTOCOL ? newest : LINK_PROTOCOL);
}

int link_arch(const json_t *hello, char dst[static LINK_ARCH_MAX], struct error *e)
{
	static const char *const known[] = {"x64", "arm64", "arm"};
	char shown[32];

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (str_equal(link_text(hello, "arch"), known[i]))
			return str_copy_n(dst, LINK_ARCH_MAX, known[i]);
	link_shown(hello, "arch", shown, sizeof(shown));
	return error_set(e, EOPNOTSUPP, "the host says that its architecture is '%s', and GitHub's runner is there for x64, arm64 and arm; take another "
			"host", shown);
}
