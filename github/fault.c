#include "github/fault.h"

#include "base/str.h"
#include "github/answers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool names_limit(const char *message)
{
	return strcasestr(message, "rate limit") || strcasestr(message, "abuse detection");
}

/* Both kinds of limit come as 403 or 429; a 403 without any sign of a limit is a missing permission. */
static bool is_limit(const struct http_answer *a, const char *message)
{
	if (a->status == 429)
		return true;
	return a->status == 403 &&
	       (a->has_retry_after || (a->has_remaining && a->remaining == 0) || names_limit(message));
}

static uint64_t retry_after_ms(const struct fault_context *c, const struct http_answer *a)
{
	uint64_t now = a->date ? a->date : c->now, ms;

	if (a->has_retry_after)
		ms = a->retry_after * 1000;
	else if (a->has_remaining && a->remaining == 0 && a->reset > now)
		ms = (a->reset - now + 1) * 1000; /* the reset's second has to be over */
	else
		ms = FAULT_RETRY_DEFAULT_MS;
	return ms > FAULT_RETRY_MAX_MS ? FAULT_RETRY_MAX_MS : ms < 1000 ? 1000 : ms;
}

static int limit(const struct fault_context *c, const struct http_answer *a, const char *said,
	struct github_reply *reply, struct error *e)
{
	bool primary = a->has_remaining && a->remaining == 0;

	reply->fault = GITHUB_FAULT_LIMIT;
	reply->limit_kind = primary ? GITHUB_LIMIT_PRIMARY : GITHUB_LIMIT_SECONDARY;
	reply->retry_after_ms = retry_after_ms(c, a);
	return error_set(e, EAGAIN, "GitHub's %srate limit is reached (%ld%s); it can be asked again in %llu s",
		primary ? "" : "secondary ", a->status, said, (unsigned long long)(reply->retry_after_ms / 1000));
}

static int permission(
	const struct http_answer *a, const char *said, struct github_reply *reply, struct error *e)
{
	reply->fault = GITHUB_FAULT_PERMISSION;
	if (a->permissions[0])
		return error_set(e, EPERM, "the token may not do this (403%s); it needs the permission %s",
			said, a->permissions);
	return error_set(e, EPERM, "the token may not do this (403%s); GitHub names no permission", said);
}

static int moved(const struct fault_context *c, const struct http_answer *a, struct github_reply *reply,
	struct error *e)
{
	reply->fault = GITHUB_FAULT_INVALID;
	if (a->status == 301 || a->status == 308)
		return error_set(e, EINVAL,
			"the %s has been renamed or moved (%ld); put its new name into runners.yaml, "
			"redirects are not "
			"followed",
			c->what, a->status);
	return error_set(e, EINVAL,
		"GitHub answers with a redirect (%ld), which is not followed; is BOXERY_GITHUB_URL right?",
		a->status);
}

int fault_from_answer(const struct fault_context *c, const struct http_answer *a, struct github_reply *reply,
	struct error *e)
{
	char message[1024], said[176] = "";

	answers_message(a->data ? a->data : "", a->len, message, sizeof(message));
	credential_redact(c->credential, message);
	if (message[0]) /* cut only after the blotting: half a token is one too */
		(void)snprintf(said, sizeof(said), ": %.170s", message);
	bool limited = is_limit(a, message);
	secret_wipe(message, sizeof(message));
	reply->http_status = (int32_t)a->status;

	if (limited)
		return limit(c, a, said, reply, e);
	switch (a->status) {
	case 401:
		reply->fault = GITHUB_FAULT_CREDENTIAL;
		return error_set(e, EACCES,
			"GitHub does not accept the credential (401%s); it may be expired or revoked, put a new one "
			"into runners.env with: boxery-host runners token",
			said);
	case 403:
		return permission(a, said, reply, e);
	case 404:
		reply->fault = GITHUB_FAULT_ABSENT;
		return error_set(e, ENOENT, "GitHub knows no %s, or the token cannot see it (404)", c->what);
	case 409:
		reply->fault = GITHUB_FAULT_CONFLICT;
		return error_set(e, EEXIST, "GitHub has a conflict with that (409%s)", said);
	case 422:
		reply->fault = c->deletes ? GITHUB_FAULT_BUSY : GITHUB_FAULT_INVALID;
		if (c->deletes)
			return error_set(
				e, EBUSY, "the %s is running a job and is left alone (422%s)", c->what, said);
		return error_set(e, EINVAL, "GitHub refuses the request as invalid (422%s)", said);
	default:
		break;
	}
	if (a->status >= 300 && a->status < 400)
		return moved(c, a, reply, e);
	if (a->status >= 400 && a->status < 500) {
		reply->fault = GITHUB_FAULT_INVALID;
		return error_set(e, EINVAL, "GitHub refuses the request (%ld%s)", a->status, said);
	}
	/* 5xx, and a success that was not the expected one: what it means for the request is not known. */
	reply->fault = GITHUB_FAULT_SERVER;
	if (a->has_retry_after)
		reply->retry_after_ms = retry_after_ms(c, a);
	return error_set(e, EIO, "GitHub failed to answer properly (%ld%s)", a->status, said);
}

int fault_from_failure(int r, const struct http_answer *a, struct github_reply *reply)
{
	reply->http_status = (int32_t)a->status;
	reply->fault = a->status != 0 || r == -EFBIG ? GITHUB_FAULT_SERVER : GITHUB_FAULT_NETWORK;
	return r;
}
