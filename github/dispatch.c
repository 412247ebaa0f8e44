#include "github/call.h"

#include "base/str.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#define STACK_USED (64 * 1024)

static const struct {
	call_fn fn;
	int (*check_scope)(const char *scope, struct error *e); /* NULL: it has none */
} verbs[GITHUB_TYPE_COUNT] = {
	[GITHUB_HELLO] = {call_hello, NULL},
	[GITHUB_REPOSITORY] = {call_repository, scope_check},
	[GITHUB_MINT] = {call_mint, scope_any_check},
	[GITHUB_RUNNER] = {call_runner, scope_any_check},
	[GITHUB_DELETE] = {call_delete, scope_any_check},
	[GITHUB_JOBS] = {call_jobs, scope_check},
	[GITHUB_JOB_OF] = {call_job_of, scope_check},
	[GITHUB_DEPRECATION] = {call_deprecation, scope_any_check},
	[GITHUB_GROUP] = {call_group, org_check},
	[GITHUB_RUNNERS] = {call_runners, scope_any_check},
};

static int check_request(const struct github_request *in, struct error *e)
{
	if (!str_is_terminated(in->scope, sizeof(in->scope)) ||
		!str_is_terminated(in->runner_name, sizeof(in->runner_name)) ||
		!str_is_terminated(in->group, sizeof(in->group)) || !str_is_terminated(in->labels, sizeof(in->labels)) ||
		!str_is_terminated(in->text, sizeof(in->text)))
		return error_set(e, EBADMSG, "a text in the request has no end");
	return verbs[in->head.type].check_scope ? verbs[in->head.type].check_scope(in->scope, e) : 0;
}

static int run(call_fn fn, const char *env_path, const struct call *prepared, struct error *e)
{
	CLEANUP(credential_free) struct credential credential = {0};
	CLEANUP(http_freep) struct http *http = NULL;
	struct call c = *prepared;

	int r = credential_load(env_path, &credential, e);
	if (r < 0) {
		c.out->fault = GITHUB_FAULT_CREDENTIAL;
		return r;
	}
	r = http_new(&credential, &http, e);
	if (r < 0)
		return r;
	c.credential = &credential;
	c.http = http;
	r = fn(&c, e);
	if (r < 0 && e->code)
		credential_redact(&credential, e->text); /* whatever it quotes */
	return r;
}

void call_dispatch(const char *env_path, struct cache *cache, const struct github_request *in,
	struct github_reply *out, int *ret_fd)
{
	struct error e = ERROR_INIT;
	struct call c = {.in = in, .out = out, .cache = cache, .what = "such thing", .ret_fd = ret_fd};

	*out = (struct github_reply){.head = MSG_HEAD(GITHUB_REPLY, struct github_reply, in->head.seq)};
	*ret_fd = -1;
	call_fn fn = in->head.type < GITHUB_TYPE_COUNT ? verbs[in->head.type].fn : NULL;
	int r = fn ? check_request(in, &e)
		   : error_set(&e, EOPNOTSUPP, "no such verb");
	if (r >= 0)
		r = run(fn, env_path, &c, &e);
	sodium_stackzero(STACK_USED); /* what the libraries left there */
	out->code = r;
	if (r < 0) {
		(void)str_copy(out->text, e.text);
		if (out->fault == GITHUB_FAULT_NONE)
			out->fault = GITHUB_FAULT_INVALID;
		*ret_fd = fd_close(*ret_fd);
	}
}
