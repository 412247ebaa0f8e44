/* What people and services read: LIST, LEASES, HISTORY as JSON. The words are in proto.h. */
#include "base/str.h"
#include "linux/clock.h"
#include "pool/keeper.h"
#include <errno.h>
#include <jansson.h>
#include <string.h>

int list_document(void *json, int *ret_fd, struct error *e)
{
	json_t *document = json;
	char *text = document ? json_dumps(document, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	int r = text ? msg_document(text, strlen(text), ret_fd, e) : error_set(e, ENOMEM, "no memory for a list");

	free(text);
	json_decref(document);
	return r;
}

static void wall_text(uint64_t us, char dst[static 32])
{
	dst[0] = '\0';
	if (us)
		clock_wall_text(us, dst, 32);
}

static const char *work_of(const struct keeper_vm *v)
{
	if (v->row.removing)
		return "REMOVE";
	if (v->delivery)
		return "DELIVER";
	return v->op ? vm_verb_word((enum vm_verb)v->op->request.head.type) : "";
}

static json_t *vm_json(const struct keeper_vm *v)
{
	const struct vm_row *r = &v->row;
	bool this_boot = str_equal(r->since_boot_id, v->k->boot_id);
	uint64_t now = clock_boot_us();
	json_int_t age_ms = this_boot && now >= r->since_boot_us ? (json_int_t)((now - r->since_boot_us) / 1000) : -1;
	const char *waits = "";
	char since[32], patch_waits_for[KEEPER_TEXT_MAX];

	patch_waits(v, patch_waits_for);
	if (r->state == STATE_READY)
		waits = pool_standby_to_string(vm_sleeps(r) ? POOL_STANDBY_PAUSED : POOL_STANDBY_RUNNING);
	wall_text(r->since_wall_us, since);
	return json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:s,s:s,s:I,s:I,s:I,s:I,s:s,s:s,s:b,s:s,s:s,s:s,s:s,s:I,"
			 "s:s,s:I,s:s,s:s,s:s,s:I,s:b,s:s,s:s,s:b,s:s,s:s}", "name", r->name,
			"pool", r->pool, "image", r->image, "state", state_to_string(r->state), "generation",
			(json_int_t)r->generation, "attempts", (json_int_t)r->attempts, "step", r->step, "reason", r->reason,
			"slot", (json_int_t)r->slot, "cpus", (json_int_t)r->cpus, "memory_mib", (json_int_t)r->memory_mib,
			"disk_gib", (json_int_t)r->disk_gib, "address", r->address, "host_key", r->host_key, "running",
			v->running, "work", work_of(v), "lease", r->lease, "holder", v->holder, "since", since, "age_ms", age_ms,
			"evidence", r->evidence, "kept_for_ms", (json_int_t)deadline_left_ms(v), "clean_of", r->clean_of, "trouble",
			v->trouble ? v->trouble : "", "waits", waits, "warm_failures", (json_int_t)r->warm_failures, "cold_only",
			starts_cold_only(v), "warm_reason", r->warm_reason, "patch", r->patch, "patching", patch_begun(v),
			"patch_waits", patch_waits_for, "patch_failed", r->patch_reason);
}

int serve_list(struct request *r, struct error *e)
{
	json_t *vms = json_array();

	for (size_t i = 0; i < r->k->n_vms; i++)
		(void)json_array_append_new(vms, vm_json(r->k->vms[i]));
	return list_document(json_pack("{s:o}", "vms", vms), &r->document, e);
}

struct leases {
	struct keeper *k;
	json_t *array;
};

static int add_lease(void *userdata, const struct lease_row *l)
{
	struct leases *to = userdata;
	const struct keeper_vm *v = l->open ? keeper_find(to->k, l->vm) : NULL;
	json_int_t expires = l->open ? (json_int_t)lease_left_ms(to->k, l) : 0;
	char opened[32], closed[32];

	if (v && v->row.state == STATE_KEPT) /* the ttl does not count any more */
		expires = deadline_left_ms(v);

	wall_text(l->opened_wall_us, opened);
	wall_text(l->closed_wall_us, closed);
	(void)json_array_append_new(to->array,
			json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:s,s:b,s:b,s:s,s:s,s:s,s:I,s:s,s:s,s:s}", "lease", l->id,
					"vm", l->vm, "pool", l->pool, "holder", l->holder, "scope", l->scope, "runner_name",
					l->runner_name, "generation", (json_int_t)l->generation, "runner_id",
					(json_int_t)l->runner_id, "registration", registration_to_string(l->registration),
					"open", l->open, "bound", l->bound, "state", v ? state_to_string(v->row.state) : "",
					"opened", opened, "closed", closed, "expires_in_ms", expires, "job", l->job, "outcome",
					l->outcome, "end_reason", l->end_reason));
	return 0;
}

int serve_leases(struct request *r, struct error *e)
{
	const struct lease_filter which = {.holder = r->in->holder, .vm = r->in->name, .limit = KEEPER_LEASES_MAX,
			.unfinished = !(r->in->flags & KEEPER_FLAG_ALL)};
	struct leases to = {.k = r->k, .array = json_array()};
	unsigned left_off = 0;
	int code = store_lease_each(r->k->store, &which, &left_off, add_lease, &to, e);

	if (code < 0) {
		json_decref(to.array);
		return code;
	}
	return list_document(json_pack("{s:o,s:I}", "leases", to.array, "left_off", (json_int_t)left_off), &r->document, e);
}

static int add_event(void *userdata, const struct event_row *v)
{
	char at[32];

	wall_text(v->wall_us, at);
	(void)json_array_append_new(userdata, json_pack("{s:s,s:I,s:s,s:s,s:I,s:s,s:s,s:I}", "at", at, "boot_us",
			(json_int_t)v->boot_us, "vm", v->vm, "lease", v->lease, "generation", (json_int_t)v->generation,
			"kind", v->kind, "text", v->text, "took_us", (json_int_t)v->took_us));
	return 0;
}

int serve_history(struct request *r, struct error *e)
{
	json_t *events = json_array();
	int code = store_event_each(r->k->store, r->in->name, r->in->lease, KEEPER_HISTORY_MAX, add_event, events, e);

	if (code < 0) {
		json_decref(events);
		return code;
	}
	return list_document(json_pack("{s:o}", "events", events), &r->document, e);
}
