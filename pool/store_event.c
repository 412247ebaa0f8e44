/* History: what happened, in the order of its ids. Bounded per VM, and once more for what belongs to no VM.
 */
#include "pool/store_internal.h"
#include "base/str.h"
#include <errno.h>

static int prune(struct store *s, const char *vm, struct error *e)
{
	static const char vm_sql[] =
		"DELETE FROM events WHERE id IN"
		" (SELECT id FROM events WHERE vm_id = (SELECT id FROM vms WHERE name = ?2)"
		" ORDER BY id DESC LIMIT -1 OFFSET ?1)";
	static const char loose_sql[] =
		"DELETE FROM events WHERE id IN (SELECT id FROM events WHERE vm_id IS NULL"
		" ORDER BY id DESC LIMIT -1 OFFSET ?1)";
	CLEANUP_QUERY struct query of_vm = {0}, loose = {0};

	int r = query_start(&of_vm, s, vm_sql, e);
	if (r < 0)
		return r;
	query_u64(&of_vm, STORE_EVENTS_PER_VM_MAX);
	query_text(&of_vm, vm);
	r = query_run(&of_vm, e);
	if (r >= 0)
		r = query_start(&loose, s, loose_sql, e);
	if (r < 0)
		return r;
	query_u64(&loose, STORE_EVENTS_LOOSE_MAX);
	r = query_run(&loose, e);
	return r < 0 ? r : 0;
}

static int insert(struct store *s, const struct event_row *v, const char *kind, const char *text, struct error *e)
{
	static const char sql[] =
		"INSERT INTO events (vm_id, wall_us, boot_us, vm, lease, generation, kind, text, took_us)"
		" VALUES ((SELECT id FROM vms WHERE name = ?1), ?2, ?3, ?1, ?4, ?5, ?6, ?7, ?8)";
	CLEANUP_QUERY struct query q = {0};
	char shown_kind[STEP_MAX], shown_text[REASON_MAX];

	inform(shown_kind, kind);
	inform(shown_text, text);
	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, v->vm);
	query_u64(&q, v->wall_us);
	query_u64(&q, v->boot_us);
	query_text(&q, v->lease);
	query_u64(&q, v->generation);
	query_text(&q, shown_kind);
	query_text(&q, shown_text);
	query_u64(&q, v->took_us);
	r = query_run(&q, e);
	return r < 0 ? r : 0;
}

int store_event_add(struct store *s, const char *vm, const char *lease, uint64_t generation, const char *kind,
	const char *text, uint64_t took_us, uint64_t *ret_id, struct error *e)
{
	struct event_row v = {
		.wall_us = clock_wall_us(), .boot_us = clock_boot_us(), .generation = generation, .took_us = took_us};

	if (str_copy(v.vm, vm ? vm : "") < 0 || str_copy(v.lease, lease ? lease : "") < 0)
		return error_set(e, ENAMETOOLONG, "an event of a VM or a lease with a name longer than any has");
	int r = insert(s, &v, kind, text, e);
	if (r < 0)
		return r;
	if (ret_id)
		*ret_id = (uint64_t)sqlite3_last_insert_rowid(s->db);
	return prune(s, vm, e);
}

int store_events_add(struct store *s, const struct event_row *v, size_t n, struct error *e)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = insert(s, &v[i], v[i].kind, v[i].text, e);
	return r == 0 && n ? prune(s, v[0].vm, e) : r;
}

int store_event(struct store *s, const char *vm, const char *lease, uint64_t generation, const char *kind,
	const char *text, uint64_t took_us, struct error *e)
{
	CLEANUP_TRANSACTION struct transaction t = {0};

	int r = transaction_start(&t, s, e);
	if (r == 0)
		r = store_event_add(s, vm, lease, generation, kind, text, took_us, NULL, e);
	return r < 0 ? r : transaction_commit(&t, e);
}

int store_events(struct store *s, const struct event_row *v, size_t n, struct error *e)
{
	CLEANUP_TRANSACTION struct transaction t = {0};

	int r = transaction_start(&t, s, e);
	if (r == 0)
		r = store_events_add(s, v, n, e);
	return r < 0 ? r : transaction_commit(&t, e);
}

static int read_row(struct query *q, void *row, struct error *e)
{
	struct event_row *v = row;
	*v = (struct event_row){0};
	v->id = query_get_u64(q);
	v->wall_us = query_get_u64(q);
	v->boot_us = query_get_u64(q);
	v->generation = query_get_u64(q);
	v->took_us = query_get_u64(q);
	query_get_text(q, v->vm, sizeof(v->vm));
	query_get_text(q, v->lease, sizeof(v->lease));
	query_get_text(q, v->kind, sizeof(v->kind));
	query_get_text(q, v->text, sizeof(v->text));
	return query_row(q, e);
}

#define EVENT_COLUMNS "id, wall_us, boot_us, generation, took_us, vm, lease, kind, text"

int store_event_each(struct store *s, const char *vm, const char *lease, unsigned limit,
	int (*cb)(void *userdata, const struct event_row *v), void *userdata, struct error *e)
{
	/*
	 * A job's timeline: from the first event of its lease to the STARTED that makes the VM ready again
	 * (no other life of this VM can begin before), and what was told about the lease later. ?1 is the
	 * lease or the VM, ?2 the limit.
	 */
	static const char lease_sql[] =
		"WITH mine AS (SELECT min(id) AS first, vm_id FROM events WHERE lease = ?1),"
		" again AS (SELECT min(e.id) AS last FROM events e, mine"
		"  WHERE e.vm_id = mine.vm_id AND e.id > mine.first AND e.kind = 'STARTED')"
		" SELECT " EVENT_COLUMNS
		" FROM events WHERE id IN (SELECT id FROM events WHERE lease = ?1 UNION"
		"  SELECT e.id FROM events e, mine, again WHERE e.vm_id = mine.vm_id AND e.id >= mine.first"
		"  AND e.id <= coalesce(again.last, e.id)) ORDER BY id LIMIT ?2";
	static const char vm_sql[] = "SELECT * FROM (SELECT " EVENT_COLUMNS " FROM events WHERE vm = ?1"
				     " ORDER BY id DESC LIMIT ?2) ORDER BY id";
	static const char all_sql[] = "SELECT * FROM (SELECT " EVENT_COLUMNS " FROM events WHERE ?1 = ''"
				      " ORDER BY id DESC LIMIT ?2) ORDER BY id";
	const char *sql = all_sql, *key = "";
	if (lease && lease[0]) {
		sql = lease_sql;
		key = lease;
	} else if (vm && vm[0]) {
		sql = vm_sql;
		key = vm;
	}
	struct rows rows = {.size = sizeof(struct event_row)};
	CLEANUP_FREE struct event_row *row = NULL;
	int r;
	{
		CLEANUP_QUERY struct query q = {0};
		r = query_start(&q, s, sql, e);
		if (r < 0)
			return r;
		query_text(&q, key);
		query_u64(&q, limit ? limit : STORE_EVENTS_PER_VM_MAX);
		r = query_gather(&q, read_row, &rows, e);
	}
	row = rows.data;
	for (size_t i = 0; r == 0 && i < rows.n; i++)
		r = cb(userdata, &row[i]);
	return r;
}
