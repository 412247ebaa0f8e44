/*
 * A lease with an ssh key: the holder's public key is put into the guest, and opens root's login there.
 *
 * It is a delivery like that of a secret, and has its state: DELIVERED is committed first, then boxery-vm asks the guest's
 * agent, for the last time in this life, since after it the guest is somebody's. A failure is a doubt (nobody can say
 * whether the key is there) and ends in a reset, and so does a keeper that is killed before the row "delivered" is written.
 * The answer to LEASE is sent when the key is in.
 */
#include "base/str.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <errno.h>
#include <string.h>

_Static_assert(KEEPER_LINE_MAX <= VM_KEY_LINE_MAX, "a key that was taken must fit into what is sent on");

static bool is_base64(const char *s, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

	return n >= 32 && strspn(s, digits) >= n;
}

/* One line as in authorized_keys, without options: those could give a command or take a restriction away. */
int grant_check(const struct keeper_request *in, struct error *e)
{
	static const char *const types[] = {"ssh-ed25519 ", "ssh-rsa ", "ecdsa-sha2-nistp256 ", "ecdsa-sha2-nistp384 ",
			"ecdsa-sha2-nistp521 ", "sk-ssh-ed25519@openssh.com ", "sk-ecdsa-sha2-nistp256@openssh.com "};
	const char *rest = NULL;

	if (str_equal(in->holder, HOLDER_SERVICE) || str_equal(in->holder, HOLDER_ONCE))
		return error_set(e, EPERM, "%s leases VMs for jobs, and nobody's ssh key goes into those", in->holder);
	for (const char *c = in->text; *c; c++)
		if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
			return error_set(e, EINVAL, "an ssh public key is one line of printable characters");
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (str_starts(in->text, types[i]))
			rest = in->text + strlen(types[i]);
	if (!rest || !is_base64(rest, strcspn(rest, " ")))
		return error_set(e, EINVAL, "that is not an ssh public key: one begins with its type, as 'ssh-ed25519 AAAA...', and "
				"has at most %d characters", KEEPER_LINE_MAX - 1);
	return 0;
}

static void granted(struct op *op, const struct error *e)
{
	struct keeper_vm *v = keeper_find(op->k, op->request.name);
	struct client *c = client_find(op->k, op->client);
	struct error failed = *e;

	if (!v || v->row.generation != op->generation)
		return; /* grant_end() has told the client */
	if (e->code == 0) {
		KILL_POINT("granted");
		keeper_record(v, "delivered", "the holder's ssh key opens root's login", 0);
		lease_reply(c, v);
		return;
	}
	(void)error_wrap(&failed, "%s did not take the ssh key", v->row.name);
	client_reply_error(c, &failed);
	{
		struct store_detail d = {.step = "grant", .reason = failed.text, .outcome = "grant-failed"};
		struct error commit = ERROR_INIT;

		(void)keeper_apply(v, v->row.generation, HAPPENING_DOUBT, &d, &commit);
	}
}

int grant_begin(struct client *c, struct keeper_vm *v, struct error *e)
{
	struct store_detail d = {.reason = "an ssh key of its holder's"};
	struct op *op;
	int r = keeper_apply(v, v->row.generation, HAPPENING_DELIVER, &d, e);

	if (r == 0)
		return error_set(e, EAGAIN, "%s has just ended", v->row.name);
	if (r < 0)
		return r;
	op = op_new(v->k, VM_GRANT, v, c->id, KEEPER_ASK_TIMEOUT_MS, granted);
	if (!op)
		return error_set(e, ENOMEM, "no memory for an operation");
	(void)str_copy(op->request.key_line, c->request.text);
	client_wait(c, CLIENT_WORK);
	op_queue(op, v);
	return 0;
}

void grant_end(struct keeper_vm *v, const char *reason)
{
	struct client *c;
	struct error e = ERROR_INIT;

	if (!v->op || (v->op->request.head.type != VM_GRANT && v->op->request.head.type != VM_WAKE))
		return;
	c = client_find(v->k, v->op->client);
	v->op = op_cancel(v->op);
	(void)error_set(&e, ECANCELED, "%s ended before its lease began: %s", v->row.name, reason);
	client_reply_error(c, &e);
}
