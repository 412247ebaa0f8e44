/* What `gh api --include` prints: a status line, headers, an empty line, the body; on an error too. Exit status 4: no login. */
#include "base/cleanup.h"
#include "base/parse.h"
#include "base/str.h"
#include "base/table.h"
#include "controller/gh.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>

#define GH_EXIT_LOGIN 4
#define VALUE_MAX 256

static const char *const names[] = {"ok", "no gh", "not logged in", "no permission", "rate limit", "not found", "conflict", "invalid",
		"server", "network"};
STRING_TABLE(gh_fault, enum gh_fault, names, GH_FAULT_COUNT);

int gh_errno(enum gh_fault v)
{
	static const int codes[] = {[GH_MISSING] = ENODEV, [GH_LOGIN] = EACCES, [GH_PERMISSION] = EPERM, [GH_LIMIT] = EAGAIN,
			[GH_ABSENT] = ENOENT, [GH_CONFLICT] = EEXIST, [GH_INVALID] = EIO, [GH_SERVER] = EIO, [GH_NETWORK] = ENOTCONN};

	return codes[v];
}

/* The value of a header, made harmless; "" when there is none. */
static void header(const char *head, size_t len, const char *name, char dst[static VALUE_MAX])
{
	size_t name_len = strlen(name);

	dst[0] = '\0';
	while (len > 0) {
		const char *end = memchr(head, '\n', len);
		size_t n = end ? (size_t)(end - head) : len;

		if (n > name_len + 1 && head[name_len] == ':' && strncasecmp(head, name, name_len) == 0) {
			const char *value = head + name_len + 1;
			size_t value_len = n - name_len - 1;

			while (value_len > 0 && *value == ' ')
				value++, value_len--;
			while (value_len > 0 && (value[value_len - 1] == '\r' || value[value_len - 1] == ' '))
				value_len--;
			str_show_n(dst, VALUE_MAX, value, value_len);
			return;
		}
		head += end ? n + 1 : n;
		len -= end ? n + 1 : n;
	}
}

/* Where the body begins; NULL when the head does not end. */
static const char *body_of(const char *data, size_t len)
{
	for (size_t i = 0; i + 1 < len; i++)
		if (data[i] == '\n' && (data[i + 1] == '\n' || (data[i + 1] == '\r' && i + 2 < len && data[i + 2] == '\n')))
			return data + i + (data[i + 1] == '\n' ? 2 : 3);
	return NULL;
}

static enum gh_fault fault_of(int status, const char *message, const char *retry_after, const char *remaining)
{
	if (status >= 200 && status < 300)
		return GH_OK;
	if (status == 429 || (status == 403 && (retry_after[0] || str_equal(remaining, "0") || strstr(message, "rate limit"))))
		return GH_LIMIT;
	switch (status) {
	case 401:
		return GH_LOGIN;
	case 403:
		return GH_PERMISSION;
	case 404:
		return GH_ABSENT;
	case 409:
		return GH_CONFLICT;
	case 422:
		return GH_INVALID;
	default:
		return GH_SERVER;
	}
}

/* Cut rather than lost. */
static void explain(struct gh_answer *a, const char *message, const char *accepted, const char *retry_after)
{
	if (a->fault == GH_LOGIN)
		(void)snprintf(a->text, sizeof(a->text), "gh is not logged in, or its login is not taken any more (%.200s); 'gh auth login' does it",
				message);
	else if (a->fault == GH_PERMISSION)
		(void)snprintf(a->text, sizeof(a->text), "the login of gh may not do this (%.200s%s%.150s)", message,
				accepted[0] ? "; GitHub accepts: " : "; 'gh auth refresh -s repo' may widen it", accepted);
	else if (a->fault == GH_LIMIT)
		(void)snprintf(a->text, sizeof(a->text), "GitHub's rate limit is reached (%.200s%s%.20s)", message,
				retry_after[0] ? "; seconds to wait: " : "", retry_after);
	else
		(void)snprintf(a->text, sizeof(a->text), "GitHub answers %d: %.250s", a->status, message);
}

/* Of "HTTP/2.0 200 OK"; 0 when that is not what it is. */
static int status_of(const char *line)
{
	const char *digits = strchr(line, ' ');
	int status = 0;

	if (!str_starts(line, "HTTP/") || !digits)
		return 0;
	for (int i = 1; i <= 3; i++) {
		if (digits[i] < '0' || digits[i] > '9')
			return 0;
		status = status * 10 + digits[i] - '0';
	}
	return status;
}

/* Without an HTTP answer: what gh says about it. */
static void no_answer(const char *err, int wait_status, struct gh_answer *a)
{
	char shown[VALUE_MAX];
	size_t len = strcspn(err, "\n");
	int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;

	str_show_n(shown, sizeof(shown), err, len);
	a->fault = code == GH_EXIT_LOGIN || strstr(err, "gh auth login") ? GH_LOGIN : GH_NETWORK;
	if (a->fault == GH_LOGIN)
		(void)str_format(a->text, "gh is not logged in; 'gh auth login' does it");
	else
		(void)snprintf(a->text, sizeof(a->text), "GitHub cannot be asked: %.300s", shown[0] ? shown : "gh ended without an answer");
}

void gh_understand(const char *data, size_t len, const char *err, int wait_status, struct gh_answer *ret)
{
	char message[VALUE_MAX] = "", accepted[VALUE_MAX], retry_after[VALUE_MAX], remaining[VALUE_MAX], line[64];
	const char *body = body_of(data, len);
	size_t head_len = body ? (size_t)(body - data) : 0;
	json_error_t fault;

	*ret = (struct gh_answer){0};
	str_show_n(line, sizeof(line), data, head_len < 40 ? head_len : 40);
	ret->status = body ? status_of(line) : 0;
	if (!ret->status) {
		no_answer(err, wait_status, ret);
		return;
	}
	if (!parse_json_deep(body, len - head_len, GH_DEPTH_MAX))
		ret->body = json_loadb(body, len - head_len, JSON_DECODE_ANY, &fault);
	if (json_is_string(json_object_get(ret->body, "message")))
		link_shown(ret->body, "message", message, sizeof(message));
	header(data, head_len, "x-accepted-github-permissions", accepted);
	header(data, head_len, "retry-after", retry_after);
	header(data, head_len, "x-ratelimit-remaining", remaining);
	ret->fault = fault_of(ret->status, message, retry_after, remaining);
	ret->retry_after_ms = strtoull(retry_after, NULL, 10) * 1000;
	if (ret->fault == GH_OK && !ret->body && ret->status != 204) {
		ret->fault = GH_SERVER;
		(void)str_format(ret->text, "GitHub's answer %d is not JSON", ret->status);
	} else if (ret->fault != GH_OK) {
		explain(ret, message[0] ? message : "no message", accepted, retry_after);
	}
}
