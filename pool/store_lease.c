/* Leases: what opens and closes them inside a transition, and what is told about them besides. */
#include "pool/store_internal.h"
#include "base/str.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LEASE_COLUMNS                                                                                        \
	"id, vm, pool, holder, scope, runner_name, generation, runner_id, registration, open, bound, "       \
	"opened_wall_us,"                                                                                    \
	" closed_wall_us, delivered_wall_us, expires_boot_us, boot_id, keep_ms, job, outcome, end_reason"

static int read_row(struct query *q, void *row, struct error *e)
{
	struct lease_row *l = row;
	char registration[16];
	*l = (struct lease_row){0};
	query_get_text(q, l->id, sizeof(l->id));
	query_get_text(q, l->vm, sizeof(l->vm));
	query_get_text(q, l->pool, sizeof(l->pool));
	query_get_text(q, l->holder, sizeof(l->holder));
	query_get_text(q, l->scope, sizeof(l->scope));
	query_get_text(q, l->runner_name, sizeof(l->runner_name));
	l->generation = query_get_u64(q);
	l->runner_id = query_get_u64(q);
	query_get_text(q, registration, sizeof(registration));
	l->open = query_get_u64(q) != 0;
	l->bound = query_get_u64(q) != 0;
	l->opened_wall_us = query_get_u64(q);
	l->closed_wall_us = query_get_u64(q);
	l->delivered_wall_us = query_get_u64(q);
	l->expires_boot_us = query_get_u64(q);
	query_get_text(q, l->boot_id, sizeof(l->boot_id));
	l->keep_ms = query_get_u64(q);
	query_get_text(q, l->job, sizeof(l->job));
	query_get_text(q, l->outcome, sizeof(l->outcome));
	query_get_text(q, l->end_reason, sizeof(l->end_reason));
	if (registration_from_string(registration, &l->registration) < 0)
		q->rc = SQLITE_CORRUPT;
	return query_row(q, e);
}

/* The id and the runner name are made here and committed with the state, before anybody can use them. */
int store_lease_open(struct store *s, const struct vm_row *vm, const struct store_detail *d,
	char ret_id[LEASE_ID_MAX], struct error *e)
{
	static const char sql[] =
		"INSERT INTO leases (id, vm_id, vm, pool, holder, scope, runner_name, generation,"
		" registration, runner_id, open, bound, opened_wall_us, delivered_wall_us, closed_wall_us,"
		" closed_order, expires_boot_us, boot_id, job, outcome, outcome_final, end_reason)"
		" VALUES (?1, (SELECT id FROM vms WHERE name = ?2), ?2, ?3, ?4, ?5, ?6, ?7,"
		" 'none', 0, 1, ?8, ?9, 0, 0,"
		" 0, ?10, ?11, '', '', 0, '')";
	CLEANUP_QUERY struct query q = {0};
	char id[LEASE_ID_MAX], digits[17], runner_name[RUNNER_NAME_MAX];

	if (strlen(d->holder) >= HOLDER_MAX || (d->scope && strlen(d->scope) >= SCOPE_MAX))
		return error_set(e, ENAMETOOLONG, "the holder of a lease has at most %d bytes, its scope %d",
			HOLDER_MAX - 1, SCOPE_MAX - 1);
	int r = store_random_hex(id, 16, e);
	if (r == 0)
		r = store_random_hex(digits, 8, e);
	/* A name of its own shows on GitHub's page that a person and not the service has registered it. */
	if (r == 0 && str_format(runner_name, "boxery-%s%s-%s", str_equal(d->holder, HOLDER_ONCE) ? "local-" : "", s->host_id, digits) < 0)
		r = error_set(e, ENAMETOOLONG, "the runner name does not fit");
	if (r == 0)
		r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, id);
	query_text(&q, vm->name);
	query_text(&q, vm->pool);
	query_text(&q, d->holder);
	query_text(&q, d->scope);
	query_text(&q, runner_name);
	query_u64(&q, vm->generation);
	query_u64(&q, d->bound);
	query_u64(&q, clock_wall_us());
	query_u64(&q, clock_boot_us() + d->ttl_ms * 1000);
	query_text(&q, s->boot_id);
	r = query_run(&q, e);
	if (r < 0)
		return r;
	(void)str_copy_n(ret_id, LEASE_ID_MAX, id);
	return 0;
}

int store_lease_delivered(struct store *s, const struct vm_row *vm, struct error *e)
{
	static const char sql[] =
		"UPDATE leases SET delivered_wall_us = ?3 WHERE vm_id = (SELECT id FROM vms WHERE name = ?1)"
		" AND generation = ?2 AND open = 1 AND delivered_wall_us = 0";
	CLEANUP_QUERY struct query q = {0};

	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, vm->name);
	query_u64(&q, vm->generation);
	query_u64(&q, clock_wall_us());
	r = query_run(&q, e);
	if (r < 0)
		return r;
	return r == 1 ? 0
		      : error_set(e, EALREADY,
				"VM %s has no open lease in its life %llu that still waits for its secret",
				vm->name, (unsigned long long)vm->generation);
}

int store_lease_ends(struct store *s, const struct vm_row *vm, enum vm_happening what,
	const struct store_detail *d, struct error *e)
{
	/*
	 * The first reason stands: a reset that fails later is not why the lease ended. A runners' lease for which no
	 * registration was even planned is on no list that its holder works off (LEASE_FILTER), and the holder may never have
	 * heard of it: its word is said here.
	 */
	static const char sql[] = "UPDATE leases SET end_reason = iif(end_reason = '', ?2, end_reason),"
				  " outcome = CASE WHEN outcome_final = 1 THEN outcome WHEN ?3 <> '' THEN ?3"
				  " WHEN outcome = '' AND registration = 'none' AND delivered_wall_us = 0 AND holder IN (?5, ?6)"
				  " THEN 'not-delivered' ELSE outcome END,"
				  " outcome_final = max(outcome_final, ?4)"
				  " WHERE vm_id = (SELECT id FROM vms WHERE name = ?1) AND open = 1";
	CLEANUP_QUERY struct query q = {0};
	char outcome[sizeof(((struct lease_row *)0)->outcome)], reason[REASON_MAX], text[REASON_MAX + 32];

	(void)snprintf(text, sizeof(text), "%s%s%s", happening_to_string(what),
		d->reason && d->reason[0] ? ": " : "", d->reason ? d->reason : "");
	inform(reason, text);
	inform(outcome, d->outcome);
	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, vm->name);
	query_text(&q, reason);
	query_text(&q, outcome);
	query_u64(&q, what == HAPPENING_RELEASE && outcome[0]);
	query_text(&q, HOLDER_SERVICE);
	query_text(&q, HOLDER_ONCE);
	r = query_run(&q, e);
	return r < 0 ? r : 0;
}

/* Closes the open one if there is one (a reset of a VM that was READY has none), and forgets the oldest
 * finished ones. */
int store_lease_close(struct store *s, const struct vm_row *vm, struct error *e)
{
	static const char sql[] = "UPDATE leases SET open = 0, closed_wall_us = ?2,"
				  " closed_order = 1 + (SELECT max(closed_order) FROM leases)"
				  " WHERE vm_id = (SELECT id FROM vms WHERE name = ?1) AND open = 1";
	static const char prune_sql[] =
		"DELETE FROM leases WHERE seq IN"
		" (SELECT seq FROM leases WHERE open = 0 AND (registration IN ('none', 'gone') OR holder = ?2)"
		" ORDER BY closed_order DESC LIMIT -1 OFFSET ?1)";
	CLEANUP_QUERY struct query q = {0}, prune = {0};

	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, vm->name);
	query_u64(&q, clock_wall_us());
	r = query_run(&q, e);
	if (r <= 0)
		return r;
	r = query_start(&prune, s, prune_sql, e);
	if (r < 0)
		return r;
	query_u64(&prune, STORE_LEASES_CLOSED_MAX);
	/* Nobody on this host can delete these: the person who could may never come back. */
	query_text(&prune, HOLDER_ONCE);
	r = query_run(&prune, e);
	return r < 0 ? r : 0;
}

int store_lease_get(struct store *s, const char *id, struct lease_row *ret, struct error *e)
{
	static const char sql[] = "SELECT " LEASE_COLUMNS " FROM leases WHERE id = ?1";
	CLEANUP_QUERY struct query q = {0};
	struct lease_row row;

	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, id);
	r = query_step(&q, e);
	if (r < 0)
		return r;
	if (r == 0)
		return error_set(e, ENOENT, "there is no lease %s", id);
	r = read_row(&q, &row, e);
	if (r == 0)
		*ret = row;
	return r;
}

#define LEASE_FILTER                                                                                         \
	" FROM leases WHERE (?1 = '' OR holder = ?1) AND (?2 = '' OR vm = ?2)"                               \
	" AND (?3 = 0 OR open = 1 OR registration IN ('planned', 'made'))"

static int start_filtered(struct query *q, struct store *s, const char *sql, const struct lease_filter *which, struct error *e)
{
	int r = query_start(q, s, sql, e);

	if (r < 0)
		return r;
	query_text(q, which->holder);
	query_text(q, which->vm);
	query_u64(q, which->unfinished);
	return 0;
}

static int count_filtered(struct store *s, const struct lease_filter *which, uint64_t *ret, struct error *e)
{
	static const char sql[] = "SELECT count(*)" LEASE_FILTER;
	CLEANUP_QUERY struct query q = {0};
	int r = start_filtered(&q, s, sql, which, e);

	if (r == 0)
		r = query_step(&q, e);
	if (r == 1)
		*ret = query_get_u64(&q);
	return r < 0 ? r : 0;
}

int store_lease_each(struct store *s, const struct lease_filter *which, unsigned *ret_left_off,
	int (*cb)(void *userdata, const struct lease_row *l), void *userdata, struct error *e)
{
	static const char sql[] = "SELECT " LEASE_COLUMNS " FROM (SELECT *" LEASE_FILTER
				  " ORDER BY open DESC, registration IN ('planned', 'made') DESC, seq DESC LIMIT ?4)"
				  " ORDER BY seq";
	struct rows rows = {.size = sizeof(struct lease_row)};
	CLEANUP_FREE struct lease_row *row = NULL;
	uint64_t all;
	int r;
	{
		CLEANUP_QUERY struct query q = {0};
		r = start_filtered(&q, s, sql, which, e);
		if (r < 0)
			return r;
		query_u64(&q, which->limit ? which->limit : INT64_MAX);
		r = query_gather(&q, read_row, &rows, e);
	}
	row = rows.data;
	all = rows.n;
	if (r == 0 && which->limit && rows.n == which->limit)
		r = count_filtered(s, which, &all, e);
	if (r == 0 && ret_left_off)
		*ret_left_off = (unsigned)(all - rows.n);
	for (size_t i = 0; r == 0 && i < rows.n; i++)
		r = cb(userdata, &row[i]);
	return r;
}

int store_lease_register(
	struct store *s, const char *id, enum registration to, uint64_t runner_id, struct error *e)
{
	static const char sql[] = "UPDATE leases SET registration = ?2, runner_id = ?3 WHERE id = ?1";
	CLEANUP_TRANSACTION struct transaction t = {0};
	CLEANUP_QUERY struct query q = {0};
	struct lease_row l = {0};

	if ((unsigned)to >= REGISTRATION_COUNT)
		return error_set(e, EINVAL, "%u is no state of a registration", (unsigned)to);
	if (to == REGISTRATION_MADE && runner_id == 0)
		return error_set(e, EINVAL, "a registration that was made has a runner id");
	int r = transaction_start(&t, s, e);
	if (r == 0)
		r = store_lease_get(s, id, &l, e);
	if (r < 0)
		return r;
	if (to < l.registration)
		return error_set(e, EALREADY,
			"the registration of lease %s is %s already, so it cannot become %s", id,
			registration_to_string(l.registration), registration_to_string(to));
	if (to != REGISTRATION_MADE)
		runner_id = l.runner_id;
	else if (l.runner_id != 0 && runner_id != l.runner_id)
		return error_set(e, EEXIST, "lease %s has runner %llu, so it cannot have %llu", id,
			(unsigned long long)l.runner_id, (unsigned long long)runner_id);
	if (to == l.registration)
		return 0;
	r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, id);
	query_text(&q, registration_to_string(to));
	query_u64(&q, runner_id);
	r = query_run(&q, e);
	query_end(&q);
	return r < 0 ? r : transaction_commit(&t, e);
}

int store_lease_job(struct store *s, const char *id, const char *job, struct error *e)
{
	static const char sql[] = "UPDATE leases SET job = ?2 WHERE id = ?1";
	CLEANUP_QUERY struct query q = {0};
	char shown[sizeof(((struct lease_row *)0)->job)];

	inform(shown, job);
	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, id);
	query_text(&q, shown);
	r = query_run(&q, e);
	return r < 0 ? r : r == 1 ? 0 : error_set(e, ENOENT, "there is no lease %s", id);
}

int store_lease_outcome(struct store *s, const char *id, const char *outcome, struct error *e)
{
	static const char sql[] =
		"UPDATE leases SET outcome = ?2, outcome_final = 1 WHERE id = ?1 AND outcome_final = 0";
	CLEANUP_QUERY struct query q = {0};
	struct lease_row l;
	char shown[sizeof(l.outcome)];

	inform(shown, outcome);
	if (shown[0] == '\0')
		return error_set(e, EINVAL, "an outcome is at least one word");
	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, id);
	query_text(&q, shown);
	r = query_run(&q, e);
	if (r != 0)
		return r < 0 ? r : 0;
	r = store_lease_get(s, id, &l, e);
	return r < 0 ? r : error_set(e, EALREADY, "lease %s has its outcome already: %s", id, l.outcome);
}

int store_lease_renew(struct store *s, const char *id, uint64_t ttl_ms, struct error *e)
{
	static const char sql[] =
		"UPDATE leases SET expires_boot_us = ?2, boot_id = ?3 WHERE id = ?1 AND open = 1"
		" AND vm_id IN (SELECT id FROM vms WHERE state IN ('LEASED', 'DELIVERED', 'BUSY', 'MAINTENANCE'))";
	CLEANUP_QUERY struct query q = {0};
	struct lease_row l;

	if (ttl_ms < 1 || ttl_ms > STORE_TTL_MAX_MS)
		return error_set(e, EINVAL, "a lease lasts at least 1 ms and at most 30 days");
	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, id);
	query_u64(&q, clock_boot_us() + ttl_ms * 1000);
	query_text(&q, s->boot_id);
	r = query_run(&q, e);
	if (r != 0)
		return r < 0 ? r : 0;
	r = store_lease_get(s, id, &l, e);
	return r < 0 ? r : error_set(e, EALREADY, "lease %s has ended", id);
}

int store_lease_keep(struct store *s, const char *id, uint64_t keep_ms, struct error *e)
{
	static const char sql[] =
		"UPDATE leases SET keep_ms = ?2 WHERE id = ?1 AND open = 1"
		" AND vm_id IN (SELECT id FROM vms WHERE state IN ('LEASED', 'DELIVERED', 'BUSY', 'KEPT'))";
	CLEANUP_QUERY struct query q = {0};
	struct lease_row l;

	int r = query_start(&q, s, sql, e);
	if (r < 0)
		return r;
	query_text(&q, id);
	query_u64(&q, keep_ms);
	r = query_run(&q, e);
	if (r != 0)
		return r < 0 ? r : 0;
	r = store_lease_get(s, id, &l, e);
	return r < 0 ? r : error_set(e, EALREADY, "lease %s has ended", id);
}
