/* Rows of VMs: everything but the change of state. */
#include "pool/store_internal.h"
#include "base/str.h"
#include <errno.h>
#include <string.h>

#define VM_COLUMNS                                                                                           \
	"v.name, v.pool, v.image, v.clean_of, v.slot, v.cpus, v.memory_mib, v.disk_gib, v.state, "           \
	"v.generation, v.attempts, v.cleared, v.warm, v.warm_failures, v.warm_reason, v.step,"                                                       \
	" v.reason, v.evidence, v.host_key, v.address, v.since_boot_us, v.since_wall_us, v.since_boot_id, "              \
	"v.removing, v.patch, v.trial, v.patch_reason, coalesce(l.id, '')"
#define VM_FROM " FROM vms v LEFT JOIN leases l ON l.vm_id = v.id AND l.open = 1"

static int read_row(struct query *q, void *row, struct error *e)
{
	struct vm_row *v = row;
	char state[32];
	*v = (struct vm_row){0};
	query_get_text(q, v->name, sizeof(v->name));
	query_get_text(q, v->pool, sizeof(v->pool));
	query_get_text(q, v->image, sizeof(v->image));
	query_get_text(q, v->clean_of, sizeof(v->clean_of));
	v->slot = (uint32_t)query_get_u64(q);
	v->cpus = (uint32_t)query_get_u64(q);
	v->memory_mib = (uint32_t)query_get_u64(q);
	v->disk_gib = (uint32_t)query_get_u64(q);
	query_get_text(q, state, sizeof(state));
	v->generation = query_get_u64(q);
	v->attempts = (int32_t)query_get_u64(q);
	v->cleared = (int32_t)query_get_u64(q);
	v->warm = query_get_u64(q) != 0;
	v->warm_failures = (int32_t)query_get_u64(q);
	query_get_text(q, v->warm_reason, sizeof(v->warm_reason));
	query_get_text(q, v->step, sizeof(v->step));
	query_get_text(q, v->reason, sizeof(v->reason));
	query_get_text(q, v->evidence, sizeof(v->evidence));
	query_get_text(q, v->host_key, sizeof(v->host_key));
	query_get_text(q, v->address, sizeof(v->address));
	v->since_boot_us = query_get_u64(q);
	v->since_wall_us = query_get_u64(q);
	query_get_text(q, v->since_boot_id, sizeof(v->since_boot_id));
	v->removing = query_get_u64(q) != 0;
	query_get_text(q, v->patch, sizeof(v->patch));
	v->trial = query_get_u64(q) != 0;
	query_get_text(q, v->patch_reason, sizeof(v->patch_reason));
	query_get_text(q, v->lease, sizeof(v->lease));
	if (state_from_string(state, &v->state) < 0)
		q->rc = SQLITE_CORRUPT;
	return query_row(q, e);
}

int store_vm_get(struct store *s, const char *name, struct vm_row *ret, struct error *e)
{
	static const char sql[] = "SELECT " VM_COLUMNS VM_FROM " WHERE v.name = ?1";
	CLEANUP_QUERY struct query q = {0};
	struct vm_row row = {0};

	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, name);
	r = query_step(&q, e);
	if (r < 0)
		return r;
	if (r == 0)
		return error_set(e, ENOENT, "there is no VM %s", name);
	r = read_row(&q, &row, e);
	if (r == 0)
		*ret = row;
	return r;
}

int store_vm_each(
	struct store *s, int (*cb)(void *userdata, const struct vm_row *v), void *userdata, struct error *e)
{
	static const char sql[] = "SELECT " VM_COLUMNS VM_FROM " ORDER BY v.name";
	struct rows rows = {.size = sizeof(struct vm_row)};
	CLEANUP_FREE struct vm_row *row = NULL;
	int r;
	{
		CLEANUP_QUERY struct query q = {0};
		r = query_start(&q, s, sql, e);
		if (r == 0)
			r = query_gather(&q, read_row, &rows, e);
	}
	row = rows.data;
	for (size_t i = 0; r == 0 && i < rows.n; i++)
		r = cb(userdata, &row[i]);
	return r;
}

/* The lowest number nobody has, below STORE_VMS_MAX. */
static int free_slot(struct store *s, uint32_t *ret, struct error *e)
{
	static const char sql[] = "SELECT slot FROM vms ORDER BY slot";
	CLEANUP_QUERY struct query q = {0};
	uint32_t slot = 0;

	int r = query_start(&q, s, sql, e);
	while (r == 0 && (r = query_step(&q, e)) == 1) {
		if (query_get_u64(&q) != slot) {
			r = 0;
			break;
		}
		slot++;
		r = 0;
	}
	if (r < 0)
		return r;
	if (slot >= STORE_VMS_MAX)
		return error_set(
			e, ENOSPC, "there are %d VMs already, which is the limit: remove one", STORE_VMS_MAX);
	*ret = slot;
	return 0;
}

static int insert_row(struct store *s, const struct vm_row *v, uint32_t slot, uint64_t event, struct error *e)
{
	static const char sql[] =
		"INSERT INTO vms (name, pool, image, slot, cpus, memory_mib, disk_gib, state, generation,"
		" attempts, step, reason, host_key, address, since_event, since_boot_us, since_wall_us,"
		" since_boot_id, clean_of)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, '', '', '', '', ?10, ?11, ?12, ?13, ?14)";
	CLEANUP_QUERY struct query q = {0};

	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, v->name);
	query_text(&q, v->pool);
	query_text(&q, v->image);
	query_u64(&q, slot);
	query_u64(&q, v->cpus);
	query_u64(&q, v->memory_mib);
	query_u64(&q, v->disk_gib);
	query_text(&q, state_to_string(v->state));
	query_u64(&q, v->generation);
	query_u64(&q, event);
	query_u64(&q, clock_boot_us());
	query_u64(&q, clock_wall_us());
	query_text(&q, s->boot_id);
	query_text(&q, v->clean_of);
	r = query_run(&q, e);
	return r < 0 ? r : 0;
}

/* One clean state, and nobody's that is itself another's. */
static int check_clean_of(struct store *s, const struct vm_row *v, struct error *e)
{
	struct vm_row origin = {0};
	int r = v->clean_of[0] ? store_vm_get(s, v->clean_of, &origin, e) : 0;

	if (r < 0 || !v->clean_of[0])
		return r;
	if (origin.clean_of[0] || origin.state == STATE_PLAIN || origin.state == STATE_ADDING)
		return error_set(e, EINVAL, "VM %s has no clean state of its own for %s to start from", origin.name, v->name);
	return 0;
}

int store_vm_insert(struct store *s, const struct vm_row *v, struct error *e)
{
	static const char link_sql[] =
		"UPDATE events SET vm_id = (SELECT id FROM vms WHERE name = ?1) WHERE id = ?2";
	CLEANUP_TRANSACTION struct transaction t = {0};
	struct vm_row other;
	uint32_t slot = 0;
	uint64_t event = 0;

	int r = name_check(v->name, "VM name", e);
	if (r == 0 && v->pool[0])
		r = name_check(v->pool, "pool name", e);
	if (r < 0)
		return r;
	if (!(v->state == STATE_PLAIN && !v->pool[0]) && !(v->state == STATE_RESETTING && v->pool[0]))
		return error_set(e, EINVAL,
			"VM %s: a new row is PLAIN and in no pool, or RESETTING and in one", v->name);
	r = transaction_start(&t, s, e);
	if (r < 0)
		return r;
	r = store_vm_get(s, v->name, &other, e);
	if (r == 0)
		return error_set(e, EEXIST,
			"there is a VM %s already: choose another name, or remove that one first", v->name);
	if (r == -ENOENT) {
		error_clear(e);
		r = free_slot(s, &slot, e);
	}
	if (r == 0)
		r = check_clean_of(s, v, e);
	if (r == 0)
		r = store_event_add(
			s, v->name, NULL, v->generation, "NEW", state_to_string(v->state), 0, &event, e);
	if (r == 0)
		r = insert_row(s, v, slot, event, e);
	if (r == 0) {
		/* The event had to be first, since the row names it; now it can be told whose it is. */
		CLEANUP_QUERY struct query q = {0};
		r = query_start(&q, s, link_sql, e);
		if (r == 0) {
			query_text(&q, v->name);
			query_u64(&q, event);
			r = query_run(&q, e);
		}
	}
	return r < 0 ? r : transaction_commit(&t, e);
}

/* Others that start from its clean state: -EBUSY, with one of their names. */
static int check_shared(struct store *s, const char *name, struct error *e)
{
	static const char sql[] = "SELECT name FROM vms WHERE clean_of = ?1 ORDER BY name LIMIT 1";
	CLEANUP_QUERY struct query q = {0};
	char other[VM_NAME_MAX];
	int r = query_start(&q, s, sql, e);

	if (r < 0)
		return r;
	query_text(&q, name);
	r = query_step(&q, e);
	if (r <= 0)
		return r;
	query_get_text(&q, other, sizeof(other));
	return error_set(e, EBUSY, "VM %s starts from the clean state of %s: remove it first", other, name);
}

int store_vm_delete(struct store *s, const char *name, struct error *e)
{
	static const char sql[] = "DELETE FROM vms WHERE name = ?1";
	CLEANUP_TRANSACTION struct transaction t = {0};
	CLEANUP_QUERY struct query q = {0};
	struct vm_row row = {0};

	int r = transaction_start(&t, s, e);
	if (r == 0)
		r = store_vm_get(s, name, &row, e);
	if (r < 0)
		return r;
	if (row.lease[0])
		return error_set(
			e, EBUSY, "VM %s has an open lease: release it and wait for the reset first", name);
	r = check_shared(s, name, e);
	if (r < 0)
		return r;
	r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, name);
	r = query_run(&q, e);
	query_end(&q);
	if (r >= 0)
		r = store_event_add(
			s, name, NULL, row.generation, "REMOVED", state_to_string(row.state), 0, NULL, e);
	return r < 0 ? r : transaction_commit(&t, e);
}

int store_vm_set_removing(struct store *s, const char *name, bool removing, struct error *e)
{
	static const char sql[] = "UPDATE vms SET removing = ?2 WHERE name = ?1";
	CLEANUP_QUERY struct query q = {0};
	int r = query_start(&q, s, sql, e);

	if (r < 0)
		return r;
	query_text(&q, name);
	query_u64(&q, removing);
	r = query_run(&q, e);
	return r == 0 ? error_set(e, ENOENT, "there is no VM %s", name) : r < 0 ? r : 0;
}

int store_vm_set_patch(struct store *s, const char *name, const char *image, const char *reason, struct error *e)
{
	static const char sql[] = "UPDATE vms SET patch = ?2, patch_reason = ?3 WHERE name = ?1 AND trial = 0 AND pool <> ''";
	char text[REASON_MAX];
	CLEANUP_QUERY struct query q = {0};
	struct vm_row row;
	int r = image[0] ? name_check(image, "image name", e) : 0;

	if (r == 0)
		r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	inform(text, reason);
	query_text(&q, name);
	query_text(&q, image);
	query_text(&q, text);
	r = query_run(&q, e);
	if (r != 0)
		return r < 0 ? r : 0;
	r = store_vm_get(s, name, &row, e);
	return r < 0 ? r : error_set(e, EBUSY, "VM %s is in no pool, or is being patched to %s", name, row.patch);
}

int store_vm_forgive_warm(struct store *s, const char *name, struct error *e)
{
	static const char sql[] = "UPDATE vms SET warm_failures = 0, warm_reason = '' WHERE name = ?1";
	CLEANUP_QUERY struct query q = {0};
	int r = query_start(&q, s, sql, e);

	if (r < 0)
		return r;
	query_text(&q, name);
	r = query_run(&q, e);
	return r == 0 ? error_set(e, ENOENT, "there is no VM %s", name) : r < 0 ? r : 0;
}

int store_vm_raise_generation(struct store *s, const char *name, uint64_t generation, struct error *e)
{
	static const char sql[] =
		"UPDATE vms SET generation = max(generation, ?2) WHERE name = ?1 AND NOT EXISTS"
		" (SELECT 1 FROM leases l WHERE l.vm_id = vms.id AND l.open = 1)";
	CLEANUP_QUERY struct query q = {0};
	struct vm_row row = {0};

	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, name);
	query_u64(&q, generation);
	r = query_run(&q, e);
	if (r != 0)
		return r < 0 ? r : 0;
	r = store_vm_get(s, name, &row, e);
	return r < 0 ? r : error_set(e, EBUSY, "VM %s has an open lease: its reset comes first", name);
}

bool vm_sleeps(const struct vm_row *v)
{
	return (v->state == STATE_READY || v->state == STATE_LEASED) && v->host_key[0] == '\0';
}

static int set_life(struct store *s, const char *sql, const char *name, uint64_t generation, const char *host_key,
	const char *address, struct error *e)
{
	CLEANUP_QUERY struct query q = {0};
	struct vm_row row = {0};

	if (strlen(host_key) >= sizeof(row.host_key) || strlen(address) >= sizeof(row.address))
		return error_set(
			e, ENAMETOOLONG, "VM %s: its host key or address is longer than any can be", name);
	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, name);
	query_u64(&q, generation);
	query_text(&q, host_key);
	query_text(&q, address);
	r = query_run(&q, e);
	if (r != 0)
		return r < 0 ? r : 0;
	r = store_vm_get(s, name, &row, e);
	return r < 0 ? r
		     : error_set(e, ESTALE, "VM %s is %s in its life %llu, not starting life %llu", name,
			       state_to_string(row.state), (unsigned long long)row.generation,
			       (unsigned long long)generation);
}

int store_vm_set_life(struct store *s, const char *name, uint64_t generation, const char *host_key,
	const char *address, struct error *e)
{
	static const char sql[] =
		"UPDATE vms SET host_key = ?3, address = ?4 WHERE name = ?1 AND generation = ?2"
		" AND state IN ('STARTING', 'PLAIN')";

	return set_life(s, sql, name, generation, host_key, address, e);
}

int store_vm_woken(struct store *s, const char *name, uint64_t generation, const char *host_key, const char *address,
	const struct event_row *steps, size_t n_steps, struct error *e)
{
	static const char sql[] =
		"UPDATE vms SET host_key = ?3, address = ?4, cleared = 0, warm_failures = 0, warm_reason = ''"
		" WHERE name = ?1 AND generation = ?2"
		" AND state = 'LEASED' AND host_key = ''";
	CLEANUP_TRANSACTION struct transaction t = {0};

	int r = transaction_start(&t, s, e);
	if (r == 0)
		r = set_life(s, sql, name, generation, host_key, address, e);
	if (r == 0)
		r = store_events_add(s, steps, n_steps, e);
	return r < 0 ? r : transaction_commit(&t, e);
}
