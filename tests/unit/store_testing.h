#ifndef BOXERY_TESTS_UNIT_STORE_TESTING_H
#define BOXERY_TESTS_UNIT_STORE_TESTING_H
/* What the tests of the store share: a store in the test's folder, VMs brought to a state the legal way. */
#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "pool/store.h"
#include <errno.h>
#include <sqlite3.h>

static inline const char *store_path(void **state)
{
	static char path[100];
	struct test_folder *f = *state;
	(void)snprintf(path, sizeof(path), "%s/boxery.db", f->path);
	return path;
}

static inline const char *beside(void **state, const char *suffix)
{
	static char path[4][120];
	static unsigned i;
	char *p = path[i++ % ARRAY_SIZE(path)];
	(void)snprintf(p, sizeof(path[0]), "%s%s", store_path(state), suffix);
	return p;
}

static inline struct store *open_store(void **state)
{
	struct store *s = NULL;
	struct error e = ERROR_INIT;
	assert_ok(store_open(store_path(state), &s, &e), &e);
	assert_string_equal(store_warning(s), "");
	return s;
}

static inline void add_vm(struct store *s, const char *name)
{
	struct vm_row v = {
		.image = "debian", .cpus = 2, .memory_mib = 2048, .disk_gib = 20, .state = STATE_PLAIN};
	struct error e = ERROR_INIT;
	(void)snprintf(v.name, sizeof(v.name), "%s", name);
	assert_ok(store_vm_insert(s, &v, &e), &e);
}

/* Applies and expects a change. Returns the row after it; the detail is whatever the happening needs. */
static inline struct vm_row go(struct store *s, const char *name, enum vm_happening what)
{
	const struct store_detail d = {.holder = "tester",
		.scope = "octo/box",
		.ttl_ms = 60000,
		.pool = "default",
		.step = "step",
		.cause = HAPPENING_RELEASE,
		.reason = "reason"};
	struct state_change c;
	struct vm_row row;
	struct error e = ERROR_INIT;
	int r = store_apply(s, name, 0, what, &d, &c, &row, &e);
	if (r != 1)
		fail_msg("%s on %s: %d %s", happening_to_string(what), name, r, e.text);
	assert_int_equal(row.state, c.to);
	return row;
}

/* A new VM, taken to this state by the shortest legal way. */
static inline struct vm_row bring_to(struct store *s, const char *name, enum vm_state to)
{
	static const enum vm_happening way[] = {HAPPENING_ADD, HAPPENING_MAINTAINED, HAPPENING_RESET_DONE,
		HAPPENING_START, HAPPENING_STARTED, HAPPENING_LEASE, HAPPENING_DELIVER, HAPPENING_JOB_SEEN};
	struct vm_row row = {.state = STATE_PLAIN};
	struct error e = ERROR_INIT;

	add_vm(s, name);
	for (size_t i = 0; i < ARRAY_SIZE(way) && row.state != to; i++) {
		row = go(s, name, way[i]);
		if (row.state == STATE_RESETTING && to == STATE_BROKEN) {
			(void)go(s, name, HAPPENING_RESET_FAILED);
			(void)go(s, name, HAPPENING_RESET_FAILED);
			row = go(s, name, HAPPENING_RESET_FAILED);
		} else if (row.state == STATE_COLD && to == STATE_MAINTENANCE) {
			row = go(s, name, HAPPENING_MAINTAIN);
		} else if (row.state == STATE_LEASED && to == STATE_KEPT) {
			row = go(s, name, HAPPENING_KEEP);
		}
	}
	assert_ok(store_vm_get(s, name, &row, &e), &e);
	assert_int_equal(row.state, to);
	return row;
}

/* Behind the store's back; it must be closed. Returns SQLite's code. */
static inline int raw(const char *path, const char *sql)
{
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA foreign_keys = ON", NULL, NULL, NULL), SQLITE_OK);
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return rc;
}

static inline void copy_file(const char *from, const char *to)
{
	char block[65536];
	size_t n;
	CLEANUP_FILE FILE *in = fopen(from, "re"), *out = NULL;
	int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(in && fd >= 0);
	out = fdopen(fd, "w");
	assert_non_null(out);
	while ((n = fread(block, 1, sizeof(block), in)) > 0)
		assert_int_equal(fwrite(block, 1, n, out), n);
}
#endif
