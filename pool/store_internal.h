#ifndef BOXERY_POOL_STORE_INTERNAL_H
#define BOXERY_POOL_STORE_INTERNAL_H
/* Inside the store only: statements, transactions, and sentences for what SQLite says. */
#include "pool/store.h"
#include <sqlite3.h>

#define STORE_APPLICATION_ID 0x626f7879 /* "boxy" */
#define STORE_VERSION 6			/* of the schema: PRAGMA user_version */
#define STORE_STATEMENTS_MAX 64

struct store {
	sqlite3 *db;
	char *path;
	char host_id[9], boot_id[BOOT_ID_MAX];
	char warning[ERROR_TEXT_MAX];
	struct {
		const char *sql; /* by address: every statement's text is one static array */
		sqlite3_stmt *stmt;
	} statements[STORE_STATEMENTS_MAX];
	size_t n_statements;
};

/* Turns SQLite's last word into -errno and a sentence that starts with what was being done. */
int store_error(struct store *s, int rc, const char *doing, struct error *e);
/* Runs SQL that gives no rows, text included. */
int store_exec(struct store *s, const char *sql, const char *doing, struct error *e);

/*
 * One use of a cached statement: query_start, binds in order, query_step until it is not 1. A bind or a
 * column that does not fit is remembered and reported by the next query_step or query_row. query_end
 * (cleanup) makes it reusable.
 */
struct query {
	struct store *store;
	sqlite3_stmt *stmt;
	int bind, column; /* next one */
	int rc;		  /* SQLITE_OK, or what went wrong in a bind or a column */
};
#define CLEANUP_QUERY CLEANUP(query_end)
int query_start(struct query *q, struct store *s, const char *sql, struct error *e);
void query_end(struct query *q);
void query_text(struct query *q, const char *text); /* NULL: ""; must live until query_end */
void query_u64(struct query *q, uint64_t v);
int query_step(struct query *q, struct error *e); /* 1: a row; 0: done */
int query_run(
	struct query *q, struct error *e); /* a statement without rows; returns the number of changed rows */
void query_get_text(struct query *q, char *dst, size_t size);
uint64_t query_get_u64(struct query *q);
int query_row(struct query *q, struct error *e); /* after the columns: -EUCLEAN when one did not fit */
/*
 * All rows of a statement that has its binds, so that a callback for each may use the store. Starts as {.size = sizeof(a
 * row)}; the caller frees data, also after a failure.
 */
struct rows {
	void *data;
	size_t n, size;
};
#define ROWS_FIRST 16 /* room at first; doubled */
int query_gather(struct query *q, int (*read)(struct query *q, void *row, struct error *e), struct rows *ret, struct error *e);

/* BEGIN IMMEDIATE ... COMMIT; a transaction that is not committed is rolled back at the end of its scope. */
struct transaction {
	struct store *store; /* NULL: none open */
};
#define CLEANUP_TRANSACTION CLEANUP(transaction_end)
int transaction_start(struct transaction *t, struct store *s, struct error *e);
int transaction_commit(struct transaction *t, struct error *e);
void transaction_end(struct transaction *t);

/* Printable and cut: for text that only informs. */
#define inform(dst, text) store_inform((dst), sizeof(dst), (text))
void store_inform(char *dst, size_t size, const char *text);
/* Lower-case hex from the kernel's random pool; dst gets 2 * bytes digits and a NUL, bytes <= 16. */
int store_random_hex(char *dst, size_t bytes, struct error *e);

/* From < to <= STORE_VERSION; all of it in one transaction. */
int store_schema_migrate(struct store *s, unsigned from, unsigned to, struct error *e);
/*
 * Whether everything that a schema of this version has is there: tables with their columns, indexes, triggers. `what` gets
 * the first thing that is not, or "". Writes nothing; more than the schema has is no fault.
 */
int store_schema_check(struct store *s, unsigned version, char *what, size_t size, struct error *e);

/* For use inside a transaction. */
int store_event_add(struct store *s, const char *vm, const char *lease, uint64_t generation, const char *kind,
	const char *text, uint64_t took_us, uint64_t *ret_id, struct error *e);
int store_events_add(struct store *s, const struct event_row *v, size_t n, struct error *e); /* of one VM; ids are not read */
int store_lease_open(struct store *s, const struct vm_row *vm, const struct store_detail *d,
	char ret_id[LEASE_ID_MAX], struct error *e);
int store_lease_delivered(struct store *s, const struct vm_row *vm, struct error *e);
int store_lease_ends(struct store *s, const struct vm_row *vm, enum vm_happening what,
	const struct store_detail *d, struct error *e); /* the life is over; still open until the reset is */
int store_lease_close(struct store *s, const struct vm_row *vm, struct error *e);
#endif
