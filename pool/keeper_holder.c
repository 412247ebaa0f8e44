/*
 * What a holder tells of its lease: that it is done with it, what GitHub knows of its runner, its job, its outcome.
 */
#include "base/str.h"
#include "pool/keeper.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* An open lease and its VM, or the sentence that says why not. */
static int open_lease(struct request *r, struct lease_row *lease, struct keeper_vm **ret, struct error *e)
{
	int code = store_lease_get(r->k->store, r->in->lease, lease, e);

	if (code < 0)
		return code;
	*ret = lease->open ? keeper_find(r->k, lease->vm) : NULL;
	if (*ret && (*ret)->row.state == STATE_KEPT && str_equal((*ret)->row.lease, lease->id))
		return error_set(e, EALREADY, "lease %s of %s has ended, and its VM is kept to be looked at: 'boxery-host pool repair "
				"%s' resets it", lease->id, lease->vm, lease->vm);
	if (!*ret || !str_equal((*ret)->row.lease, lease->id) || !lease_runs(*ret))
		return error_set(e, EALREADY, "lease %s of %s has ended%s%s", lease->id, lease->vm,
				lease->end_reason[0] ? ": " : "", lease->end_reason);
	return 0;
}

int serve_release(struct request *r, struct error *e)
{
	struct store_detail d = {.outcome = r->in->text};
	struct lease_row lease;
	struct keeper_vm *v = NULL;
	int code = open_lease(r, &lease, &v, e);

	if (code == -EALREADY && v && v->row.state == STATE_KEPT && r->in->flags & KEEPER_FLAG_FORCE) {
		error_clear(e);
		code = 0;
	}
	if (code < 0)
		return code;
	code = keeper_apply(v, lease.generation, HAPPENING_RELEASE, &d, e);
	if (code == 0)
		return error_set(e, EALREADY, "lease %s of %s has ended", lease.id, lease.vm);
	return code < 0 ? code : 0;
}

int serve_job_seen(struct request *r, struct error *e)
{
	struct lease_row lease;
	struct keeper_vm *v;
	int code = open_lease(r, &lease, &v, e);

	if (code == 0)
		code = store_lease_job(r->k->store, lease.id, r->in->text, e);
	if (code < 0)
		return code;
	code = keeper_apply(v, lease.generation, HAPPENING_JOB_SEEN, NULL, e);
	if (code == 0 && v->row.state != STATE_BUSY)
		return error_set(e, EINVAL, "%s is %s: a job can be seen only after the delivery", v->row.name,
				state_to_string(v->row.state));
	return code < 0 ? code : 0;
}

/* What GitHub and the service add to a lease's timeline. The row is for people: failing to write it fails nothing. */
static void note(struct request *r, const char *kind, const char *text)
{
	struct lease_row lease;

	if (store_lease_get(r->k->store, r->in->lease, &lease, NULL) == 0)
		(void)store_event(r->k->store, lease.vm, lease.id, lease.generation, kind, text, 0, NULL);
}

int serve_register(struct request *r, struct error *e)
{
	enum registration to = (enum registration)r->in->registration;
	int code = store_lease_register(r->k->store, r->in->lease, to, r->in->runner_id, e);
	char text[64] = "";

	if (code < 0)
		return code;
	if (r->in->runner_id)
		(void)str_format(text, "%s, runner %" PRIu64, registration_to_string(to), r->in->runner_id);
	note(r, "registration", text[0] ? text : registration_to_string(to));
	return 0;
}

int serve_note(struct request *r, struct error *e)
{
	struct lease_row lease;
	char shown[64];
	int code = store_lease_get(r->k->store, r->in->lease, &lease, e);

	if (code < 0)
		return code;
	str_show_n(shown, sizeof(shown), r->in->text, strlen(r->in->text));
	note(r, "note", shown);
	return 0;
}

int serve_outcome(struct request *r, struct error *e)
{
	int code = r->in->text[0] ? store_lease_outcome(r->k->store, r->in->lease, r->in->text, e) :
				    error_set(e, EINVAL, "an outcome is a word");

	if (code == 0)
		note(r, "outcome", r->in->text);
	return code;
}
