/* Statements, transactions and error sentences. Everything else in the store goes through here to reach
 * SQLite. */
#include "pool/store_internal.h"
#include "base/str.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* What the system said below SQLite, where SQLite only says "I/O error". */
static int io_code(struct store *s)
{
	int code = s->db ? sqlite3_system_errno(s->db) : 0;
	return code == ENOSPC || code == EDQUOT || code == EROFS || code == EFBIG ? code : EIO;
}

int store_error(struct store *s, int rc, const char *doing, struct error *e)
{
	const char *said = s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc);
	int code;

	switch (rc & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return error_set(e, EBUSY,
			"%s: %s is open in another process; only one keeper may have it: stop the other one "
			"first",
			doing, s->path);
	case SQLITE_FULL:
		return error_set(e, ENOSPC,
			"%s: there is no room for %s; nothing was changed: make room on that file system",
			doing, s->path);
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_AUTH:
		return error_set(e, EROFS,
			"%s: %s cannot be written; nothing was changed: check its file system, owner and "
			"mode",
			doing, s->path);
	case SQLITE_CANTOPEN:
		return error_set(e, EACCES,
			"%s: %s or its -wal cannot be opened: check the folder's owner, mode and file system",
			doing, s->path);
	case SQLITE_IOERR:
		code = io_code(s);
		return error_set(e, code, "%s: %s: %s (%s); nothing was changed", doing, s->path, said,
			strerror(code));
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return error_set(e, EUCLEAN,
			"%s: %s is damaged (%s); restart the keeper for the check and the way back", doing,
			s->path, said);
	case SQLITE_NOMEM:
		return error_set(e, ENOMEM, "%s: out of memory", doing);
	case SQLITE_CONSTRAINT:
	case SQLITE_TOOBIG:
	case SQLITE_RANGE:
	case SQLITE_MISMATCH:
		return error_set(e, EINVAL, "%s: %s does not take it: %s", doing, s->path, said);
	default:
		return error_set(e, EIO, "%s: %s: %s", doing, s->path, said);
	}
}

int store_exec(struct store *s, const char *sql, const char *doing, struct error *e)
{
	int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
	return rc == SQLITE_OK ? 0 : store_error(s, rc, doing, e);
}

int query_start(struct query *q, struct store *s, const char *sql, struct error *e)
{
	*q = (struct query){.store = s, .bind = 1};
	for (size_t i = 0; i < s->n_statements; i++)
		if (s->statements[i].sql == sql) {
			q->stmt = s->statements[i].stmt;
			assert(!sqlite3_stmt_busy(q->stmt));
			return 0;
		}
	assert(s->n_statements < STORE_STATEMENTS_MAX);
	int rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &q->stmt, NULL);
	if (rc != SQLITE_OK)
		return store_error(s, rc, "preparing a statement", e);
	s->statements[s->n_statements].sql = sql;
	s->statements[s->n_statements++].stmt = q->stmt;
	return 0;
}

void query_end(struct query *q)
{
	if (!q->stmt)
		return;
	(void)sqlite3_reset(q->stmt); /* repeats the error of the step, which has been reported */
	(void)sqlite3_clear_bindings(q->stmt);
	q->stmt = NULL;
}

static void remember(struct query *q, int rc)
{
	if (q->rc == SQLITE_OK)
		q->rc = rc;
}

void query_text(struct query *q, const char *text)
{
	remember(q, sqlite3_bind_text(q->stmt, q->bind++, text ? text : "", -1, SQLITE_STATIC));
}

void query_u64(struct query *q, uint64_t v)
{
	if (v > INT64_MAX)
		remember(q, SQLITE_TOOBIG);
	else
		remember(q, sqlite3_bind_int64(q->stmt, q->bind, (sqlite3_int64)v));
	q->bind++;
}

int query_step(struct query *q, struct error *e)
{
	if (q->rc != SQLITE_OK)
		return store_error(q->store, q->rc, "giving a value to a statement", e);
	int rc = sqlite3_step(q->stmt);
	q->column = 0;
	if (rc == SQLITE_ROW)
		return 1;
	return rc == SQLITE_DONE ? 0 : store_error(q->store, rc, "using the database", e);
}

int query_run(struct query *q, struct error *e)
{
	int r = query_step(q, e);
	if (r < 0)
		return r;
	assert(r == 0);
	return sqlite3_changes(q->store->db);
}

void query_get_text(struct query *q, char *dst, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(q->stmt, q->column++);
	if (!text || str_copy_n(dst, size, text) < 0) {
		dst[0] = '\0';
		remember(q, SQLITE_CORRUPT);
	}
}

uint64_t query_get_u64(struct query *q)
{
	sqlite3_int64 v = sqlite3_column_int64(q->stmt, q->column++);
	if (v < 0)
		remember(q, SQLITE_CORRUPT);
	return v < 0 ? 0 : (uint64_t)v;
}

int query_row(struct query *q, struct error *e)
{
	if (q->rc != SQLITE_OK)
		return error_set(e, EUCLEAN, "%s has a row that this program cannot have written; %s",
			q->store->path, "restart the keeper for the check and the way back");
	return 0;
}

int query_gather(struct query *q, int (*read)(struct query *q, void *row, struct error *e), struct rows *ret, struct error *e)
{
	size_t cap = 0;
	int r;

	while ((r = query_step(q, e)) == 1) {
		if (ret->n == cap) {
			cap = cap ? 2 * cap : ROWS_FIRST;
			void *more = reallocarray(ret->data, cap, ret->size);
			if (!more)
				return error_set(e, ENOMEM, "out of memory");
			ret->data = more;
		}
		r = read(q, (char *)ret->data + ret->n++ * ret->size, e);
		if (r < 0)
			return r;
	}
	return r;
}

int transaction_start(struct transaction *t, struct store *s, struct error *e)
{
	int r = store_exec(s, "BEGIN IMMEDIATE", "starting a change", e);
	if (r < 0)
		return r;
	t->store = s;
	return 0;
}

int transaction_commit(struct transaction *t, struct error *e)
{
	int r = store_exec(t->store, "COMMIT", "committing a change", e);
	if (r == 0)
		t->store = NULL;
	return r; /* a failed one is rolled back by transaction_end */
}

void transaction_end(struct transaction *t)
{
	/* SQLite has rolled back by itself after some errors: then there is nothing to end. */
	if (t->store && !sqlite3_get_autocommit(t->store->db))
		(void)sqlite3_exec(t->store->db, "ROLLBACK", NULL, NULL, NULL);
	t->store = NULL;
}

void store_inform(char *dst, size_t size, const char *text)
{
	str_show_n(dst, size, text ? text : "", text ? strlen(text) : 0);
}

int store_random_hex(char *dst, size_t bytes, struct error *e)
{
	unsigned char raw[16];
	assert(bytes <= sizeof(raw));
	ssize_t n = getrandom(raw, bytes, 0); /* up to 256 bytes are never cut short by a signal */
	if (n != (ssize_t)bytes)
		return error_errno(e, n < 0 ? errno : EIO, "getting random bytes from the kernel");
	for (size_t i = 0; i < bytes; i++) {
		static const char digits[] = "0123456789abcdef";
		dst[2 * i] = digits[raw[i] >> 4];
		dst[2 * i + 1] = digits[raw[i] & 15];
	}
	dst[2 * bytes] = '\0';
	return 0;
}
