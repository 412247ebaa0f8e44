/*
 * The table of requests: what each needs and who serves it. Everything a handler gets has been checked here: strings end,
 * names are names, a lease id is one, an fd is there exactly when it belongs to the request.
 */
#include "boxery-config.h"
#include "base/str.h"
#include "jit/jit.h"
#include "pool/keeper.h"
#include <ctype.h>
#include <errno.h>
#include <string.h>

enum need {
	NEED_NAME = 1 << 0,   /* a valid VM name */
	NEED_VM = 1 << 1,     /* a VM that exists; implies NEED_NAME */
	NEED_LEASE = 1 << 2,  /* a lease id */
	NEED_SECRET = 1 << 3, /* exactly one fd: a sealed memfd; nothing else may carry one */
	NEED_HOLDER = 1 << 4,
	ALSO_STOPPING = 1 << 5, /* served while the keeper ends */
};

static int serve_hello(struct request *r, struct error *e)
{
	(void)str_copy(r->out.text, BOXERY_VERSION);
	(void)str_copy(r->out.name, store_host_id(r->k->store));
	return 0;
}

static int serve_subscribe(struct request *r, struct error *e)
{
	r->client->subscribed = true;
	return 0;
}

static int serve_quit(struct request *r, struct error *e)
{
	/* In this order: whoever has the reply and runs the next command does not find our socket any more. */
	keeper_stop(r->k);
	client_reply_ok(r->client, NULL);
	return REPLY_LATER;
}

static const struct rule {
	int (*serve)(struct request *r, struct error *e);
	unsigned needs;
} rules[KEEPER_REQUEST_COUNT] = {
	[KEEPER_HELLO] = {serve_hello, ALSO_STOPPING},
	[KEEPER_NEW] = {serve_new, NEED_NAME},
	[KEEPER_LIST] = {serve_list, ALSO_STOPPING},
	[KEEPER_START] = {serve_start, NEED_VM},
	[KEEPER_STOP] = {serve_stop, NEED_VM},
	[KEEPER_REMOVE] = {serve_remove, NEED_VM},
	[KEEPER_POOL_ADD] = {serve_pool_add, NEED_VM},
	[KEEPER_POOL_REMOVE] = {serve_pool_remove, NEED_VM},
	[KEEPER_POOL_REPAIR] = {serve_pool_repair, NEED_VM},
	[KEEPER_LEASE] = {serve_lease, NEED_HOLDER},
	[KEEPER_LEASES] = {serve_leases, ALSO_STOPPING},
	[KEEPER_REGISTER] = {serve_register, NEED_LEASE | ALSO_STOPPING},
	[KEEPER_DELIVER] = {serve_deliver, NEED_LEASE | NEED_SECRET},
	[KEEPER_JOB_SEEN] = {serve_job_seen, NEED_LEASE | ALSO_STOPPING},
	[KEEPER_RELEASE] = {serve_release, NEED_LEASE | ALSO_STOPPING},
	[KEEPER_OUTCOME] = {serve_outcome, NEED_LEASE | ALSO_STOPPING},
	[KEEPER_NOTE] = {serve_note, NEED_LEASE | ALSO_STOPPING},
	[KEEPER_HISTORY] = {serve_history, ALSO_STOPPING},
	[KEEPER_SUBSCRIBE] = {serve_subscribe, 0},
	[KEEPER_CHECK] = {serve_check, 0},
	[KEEPER_FILTER] = {serve_filter, NEED_VM},
	[KEEPER_QUIT] = {serve_quit, ALSO_STOPPING},
	[KEEPER_POOL_SET] = {serve_pool_set, 0},
	[KEEPER_POOLS] = {serve_pools, ALSO_STOPPING},
	[KEEPER_POOL_KEEP] = {serve_pool_keep, NEED_VM},
	[KEEPER_RENEW] = {serve_renew, NEED_LEASE},
	[KEEPER_UNINSTALL] = {serve_uninstall, 0},
	[KEEPER_POOL_PATCH] = {serve_pool_patch, 0},
};

int request_rules_check(struct error *e)
{
	for (size_t i = 1; i < KEEPER_REQUEST_COUNT; i++)
		if (!rules[i].serve || keeper_request_sizes[i] != sizeof(struct keeper_request))
			return error_set(e, ENOSYS, "request %zu has no handler", i);
	return 0;
}

static int check_terminated(const struct keeper_request *in, struct error *e)
{
	const struct {
		const char *s;
		size_t size;
	} texts[] = {
		{in->name, sizeof(in->name)},     {in->pool, sizeof(in->pool)},   {in->image, sizeof(in->image)},
		{in->holder, sizeof(in->holder)}, {in->lease, sizeof(in->lease)}, {in->scope, sizeof(in->scope)},
		{in->text, sizeof(in->text)},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!str_is_terminated(texts[i].s, texts[i].size))
			return error_set(e, EBADMSG, "a text in the request has no end");
	return 0;
}

static int check_lease_id(const char *s, struct error *e)
{
	if (strlen(s) == LEASE_ID_MAX - 1 && strspn(s, "0123456789abcdef") == LEASE_ID_MAX - 1)
		return 0;
	return error_set(e, EINVAL, "that is not a lease id: it has %d hexadecimal digits", LEASE_ID_MAX - 1);
}

static int check_holder(const char *s, struct error *e)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("._@:-", s[i]))
			n = 0;
	return n > 0 ? 0 : error_set(e, EINVAL, "a holder is named with letters, digits and . _ @ : -, at most %d of them",
					       HOLDER_MAX - 1);
}

static int check_texts(const struct keeper_request *in, unsigned needs, struct error *e)
{
	int r = check_terminated(in, e);

	if (r == 0 && (in->name[0] || needs & (NEED_NAME | NEED_VM)))
		r = name_check(in->name, "VM name", e);
	if (r == 0 && in->pool[0])
		r = name_check(in->pool, "pool name", e);
	if (r == 0 && in->image[0])
		r = name_check(in->image, "image name", e);
	if (r == 0 && (in->lease[0] || needs & NEED_LEASE))
		r = check_lease_id(in->lease, e);
	if (r == 0 && (in->holder[0] || needs & NEED_HOLDER))
		r = check_holder(in->holder, e);
	if (r == 0 && in->scope[0])
		r = scope_any_check(in->scope, e);
	if (r == 0 && in->registration >= REGISTRATION_COUNT)
		r = error_set(e, EINVAL, "%u is no state of a registration", in->registration);
	return r;
}

static int check_secret(const struct request *r, bool needed, struct error *e)
{
	if (!needed)
		return r->secret < 0 ? 0 : error_set(e, EINVAL, "this request carries no file");
	if (r->secret < 0)
		return error_set(e, EINVAL, "DELIVER carries the JIT config as one sealed memfd");
	return jit_fd_check(r->secret, e);
}

int request_serve(struct request *r, struct error *e)
{
	const struct rule *rule = &rules[r->in->head.type];
	int code = check_texts(r->in, rule->needs, e);

	if (code == 0)
		code = check_secret(r, rule->needs & NEED_SECRET, e);
	if (code < 0)
		return code;
	if (r->k->stopping && !(rule->needs & ALSO_STOPPING))
		return error_set(e, ECANCELED, "the keeper is ending and takes no more work");
	r->vm = r->in->name[0] ? keeper_find(r->k, r->in->name) : NULL;
	if (rule->needs & NEED_VM && !r->vm)
		return error_set(e, ENOENT, "there is no VM '%s'; 'boxery-host ls' lists them", r->in->name);
	return rule->serve(r, e);
}
