/* Opens root's login of a guest that has run nobody's code yet to one more key, through the agent. */
#include "base/str.h"
#include "vm/agent.h"
#include "vm/begin.h"
#include "vm/op.h"
#include <errno.h>

#define GRANT_TIMEOUT_MS 30000

int op_grant(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	CLEANUP_BUF struct buf text = BUF_INIT(BEGIN_TEXT_MAX);
	CLEANUP_FREE char *out = NULL;
	CLEANUP_FD int lock = -1;
	struct generation g = {0};
	struct life life = {0};
	int r;

	(void)res;
	host_step_begin(h, "grant");
	r = grant_render(&text, q->generation, q->key_line, e);
	if (r == 0)
		r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = generation_load(h, q->name, &g, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = virt_find(h, q->name, &d, &life, e);
	if (r < 0)
		return r;
	if (r == 0 || !virt_runs(d))
		return error_set(e, ENOTCONN, "%s is not running", q->name);
	if (life.generation != q->generation)
		return error_set(e, ESTALE, "%s runs in its life %llu, not %llu", q->name,
			(unsigned long long)life.generation, (unsigned long long)q->generation);
	if (!g.begun || g.generation != q->generation)
		return error_set(e, ESTALE, "%s has not passed the check of its life %llu", q->name,
			(unsigned long long)q->generation);
	r = agent_exec(d, GRANT_PROGRAM, NULL, text.data, text.len, GRANT_TIMEOUT_MS, &out, e);
	if (r < 0)
		return error_wrap(e, "%s", q->name);
	if (!str_equal(out, "done\n"))
		return error_set(e, EBADMSG, "%s did not say that it has taken the key", q->name);
	host_step_done(h, "one more key opens it");
	return 0;
}
