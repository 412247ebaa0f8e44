/*
 * POOL_PATCH: the clean state of pool VMs made anew on another base image.
 *
 * The request only writes a wish down (vm_row.patch). The kick grants wishes one VM at a time: a VM that is COLD, or READY
 * and not the pool's last one, goes to MAINTENANCE, boxery-vm makes the new clean state beside the old one (VM_PATCH), and
 * the VM is reset and started as ever. That start decides (vm_row.trial): READY, and the new one stays; a failure, and the
 * reset after it brings the old one back, with a sentence, and so do the wishes of others for the same image, which would end
 * alike. The rows are the truth, so whatever is killed, the next reset makes the files what the row says; what a keeper finds in
 * MAINTENANCE goes back and is done over.
 */
#include "base/str.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include <errno.h>
#include <string.h>

/* A patch has begun and is not decided yet. One that this host has no memory or disk for now must not hold the others up. */
static bool is_under_way(const struct keeper_vm *v)
{
	return v->row.patch[0] && ((v->row.state == STATE_MAINTENANCE && !v->row.lease[0]) || (v->row.trial && !v->host_short));
}

bool patch_begun(const struct keeper_vm *v)
{
	return v->row.patch[0] && (v->row.trial || (v->row.state == STATE_MAINTENANCE && !v->row.lease[0]));
}

/* It is READY, or will be soon by itself. */
static bool serves(const struct keeper_vm *v)
{
	return v->row.state != STATE_PLAIN && v->row.state != STATE_ADDING && v->row.state != STATE_BROKEN &&
			v->row.state != STATE_KEPT && !v->row.removing && !v->host_short;
}

/* What the others of its pool have to do with it: "" or a sentence. */
static void waits_for_others(const struct keeper_vm *v, char dst[static KEEPER_TEXT_MAX])
{
	unsigned serving = 0, ready = 0;

	dst[0] = '\0';
	for (size_t i = 0; i < v->k->n_vms && !dst[0]; i++) {
		const struct keeper_vm *other = v->k->vms[i];

		if (other == v)
			continue;
		if (str_equal(other->row.clean_of, v->row.name))
			(void)str_format_n(dst, KEEPER_TEXT_MAX, "%s starts from its clean state and is patched before it",
					other->row.name);
		if (!str_equal(other->row.pool, v->row.pool))
			continue;
		serving += serves(other);
		ready += other->row.state == STATE_READY && !other->row.removing;
		if (!dst[0] && is_under_way(other))
			(void)str_format_n(dst, KEEPER_TEXT_MAX, "%s is patched before it", other->row.name);
	}
	if (!dst[0] && v->row.state == STATE_READY && ready == 0 && serving > 0)
		(void)str_format_n(dst, KEEPER_TEXT_MAX, "it is the only READY VM of its pool");
}

void patch_waits(const struct keeper_vm *v, char dst[static KEEPER_TEXT_MAX])
{
	dst[0] = '\0';
	if (!v->row.patch[0] || patch_begun(v))
		return;
	if (lease_runs(v))
		(void)str_format_n(dst, KEEPER_TEXT_MAX, "its lease has to end first");
	else if (v->row.state == STATE_BROKEN)
		(void)str_format_n(dst, KEEPER_TEXT_MAX, "it is BROKEN; 'boxery-host pool repair %s' first", v->row.name);
	else if (v->row.state == STATE_KEPT)
		(void)str_format_n(dst, KEEPER_TEXT_MAX, "it is kept to be looked at; 'boxery-host pool repair %s' ends that",
				v->row.name);
	else
		waits_for_others(v, dst);
}

void patches_begin(struct keeper *k)
{
	char why[KEEPER_TEXT_MAX];

	for (size_t i = 0; i < k->n_vms && k->connected && k->listed && !k->stopping && ops_room(k); i++) {
		struct keeper_vm *v = k->vms[i];

		if (!v->row.patch[0] || patch_begun(v) || v->row.removing || v->op || v->retry ||
				(v->row.state != STATE_COLD && v->row.state != STATE_READY))
			continue;
		patch_waits(v, why);
		if (!why[0])
			keeper_note(v, HAPPENING_MAINTAIN, NULL);
	}
}

/* Nobody waits for it: the next reset does the same. */
static void settle_done(struct op *op, const struct error *e)
{
	struct keeper_vm *v = keeper_find(op->k, op->request.name);

	if (v && e->code)
		log_vm(LOG_WARNING, v->row.name, NULL, "what its patch has left is put in order with its next reset: %s", e->text);
}

static void proven(struct keeper_vm *v)
{
	struct op *op = op_new(v->k, VM_SETTLE, v, 0, KEEPER_WORK_TIMEOUT_MS, settle_done);

	log_vm(LOG_NOTICE, v->row.name, NULL, "is patched: its clean state is on %s", v->row.image);
	keeper_record(v, "patched", v->row.image, 0);
	KILL_POINT("patched");
	if (op)
		op_queue(op, NULL);
}

static void set_wish(struct keeper_vm *v, const char *image, const char *reason, struct error *e)
{
	if (store_vm_set_patch(v->k->store, v->row.name, image, reason, e) < 0)
		return;
	(void)str_copy(v->row.patch, image);
	(void)str_copy(v->row.patch_reason, reason);
}

static void failed(struct keeper_vm *v, const char *image)
{
	char text[KEEPER_TEXT_MAX];
	struct error e = ERROR_INIT;

	log_vm(LOG_ALERT, v->row.name, NULL, "could not be patched to %s and stays on %s: %s", image, v->row.image, v->row.patch_reason);
	keeper_record(v, "patch", v->row.patch_reason, 0);
	(void)str_format(text, "not tried, since %s could not be patched to %s", v->row.name, image);
	for (size_t i = 0; i < v->k->n_vms; i++) {
		struct keeper_vm *other = v->k->vms[i];

		if (!str_equal(other->row.pool, v->row.pool) || !str_equal(other->row.patch, image) || patch_begun(other))
			continue;
		set_wish(other, "", text, &e);
		if (e.code)
			log_vm(LOG_ERR, other->row.name, NULL, "its patch could not be called off: %s", e.text);
		error_clear(&e);
	}
}

void patch_ended(struct keeper_vm *v, const char *image)
{
	if (!image[0] || v->row.patch[0])
		return;
	if (str_equal(v->row.image, image))
		proven(v);
	else
		failed(v, image);
}

enum vm_happening patch_happening(const struct keeper_vm *v, enum vm_happening what)
{
	if (!v->row.trial || v->row.state != STATE_STARTING)
		return what;
	if (what == HAPPENING_START_FAILED || what == HAPPENING_STOPPED || what == HAPPENING_DEADLINE || what == HAPPENING_DOUBT)
		return HAPPENING_MAINTAIN_FAILED;
	return what;
}

/* NAME and those that share its clean state, or all of a pool, or of every pool. */
static bool is_meant(const struct request *r, const struct keeper_vm *v)
{
	if (v->row.state == STATE_PLAIN || v->row.state == STATE_ADDING || v->row.removing)
		return false;
	if (!r->vm)
		return !r->in->pool[0] || str_equal(r->in->pool, v->row.pool);
	return v == r->vm || str_equal(v->row.clean_of, r->vm->row.name) ||
			/* An origin that nobody is left to wait for would wait for ever. */
			(!r->in->image[0] && str_equal(r->vm->row.clean_of, v->row.name));
}

static int check_one(const struct keeper_vm *v, struct error *e)
{
	if (v->row.state == STATE_PLAIN)
		return error_set(e, EINVAL, "%s is not in a pool; 'boxery-host new' makes one on another image", v->row.name);
	if (v->row.state == STATE_ADDING || v->row.removing)
		return error_set(e, EBUSY, "%s is being %s", v->row.name, v->row.removing ? "removed" : "captured");
	return 0;
}

/* 1: a wish was written down or taken back, 0: there was nothing to do, -errno. */
static int wish(struct keeper_vm *v, const char *image, struct error *e)
{
	if (str_equal(v->row.patch, image) || (image[0] && !v->row.patch[0] && str_equal(v->row.image, image)))
		return image[0] && v->row.patch[0]; /* asked for already: as good as new */
	if (patch_begun(v))
		return error_set(e, EBUSY, "%s is being patched to %s just now", v->row.name, v->row.patch);
	/* A wish for the image it is on takes back what else was wished for. */
	set_wish(v, str_equal(v->row.image, image) ? "" : image, "", e);
	if (e->code)
		return -e->code;
	keeper_record(v, "patch", image[0] ? image : "not any more", 0);
	log_vm(LOG_NOTICE, v->row.name, NULL, "%s%s", image[0] ? "is to be patched to " : "is not to be patched any more", image);
	return 1;
}

static int nothing_to_do(const struct request *r, struct error *e)
{
	if (!r->in->image[0])
		return error_set(e, EALREADY, "no patch of %s%s was asked for",
				r->vm ? r->in->name : r->in->pool[0] ? "pool " : "any VM", r->vm ? "" : r->in->pool);
	if (r->vm)
		return error_set(e, EALREADY, "%s is on %s already", r->in->name, r->in->image);
	return error_set(e, EALREADY, "every VM%s%s is on %s already", r->in->pool[0] ? " of pool " : "", r->in->pool, r->in->image);
}

int serve_pool_patch(struct request *r, struct error *e)
{
	unsigned meant = 0, done = 0;
	int code = 0;

	if (r->in->name[0] && !r->vm)
		return error_set(e, ENOENT, "there is no VM '%s'; 'boxery-host ls' lists them", r->in->name);
	if (!r->vm && !(r->in->flags & KEEPER_FLAG_ALL))
		return error_set(e, EINVAL, "which VMs? Name one, or ask for all");
	if (r->vm)
		code = check_one(r->vm, e);
	for (size_t i = 0; i < r->k->n_vms && code >= 0; i++) {
		if (!is_meant(r, r->k->vms[i]))
			continue;
		meant++;
		code = wish(r->k->vms[i], r->in->image, e);
		done += code > 0;
	}
	KILL_POINT("patch-wished");
	keeper_kick(r->k);
	if (code < 0)
		return code;
	if (meant == 0)
		return error_set(e, ENOENT, "%s%s has no VM", r->in->pool[0] ? "pool " : "no pool", r->in->pool);
	return done ? 0 : nothing_to_do(r, e);
}
