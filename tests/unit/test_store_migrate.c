/* From version 1 of the schema to this one: nothing is lost, and a kill leaves one or the other. */
#include "tests/unit/store_testing.h"
#include "tests/unit/store_v1.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static void make_v1(void **state)
{
	sqlite3 *db = NULL;
	char *said = NULL;

	assert_int_equal(sqlite3_open(store_path(state), &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL), SQLITE_OK);
	for (size_t i = 0; i < ARRAY_SIZE(store_v1); i++)
		if (sqlite3_exec(db, store_v1[i], NULL, NULL, &said) != SQLITE_OK)
			fail_msg("%s: %s", store_v1[i], said);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	assert_int_equal(chmod(store_path(state), 0600), 0);
}

/* One number, from the closed file. */
static int64_t ask(const char *path, const char *sql)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *stmt = NULL;
	int64_t v = -1;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	if (sqlite3_step(stmt) == SQLITE_ROW)
		v = sqlite3_column_int64(stmt, 0);
	(void)sqlite3_finalize(stmt);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return v;
}

static void check_rows(struct store *s)
{
	static const struct {
		const char *name, *state;
	} expected[] = {{"plain", "PLAIN"}, {"cold", "COLD"}, {"starting", "STARTING"}, {"ready", "READY"},
		{"leased", "LEASED"}, {"delivered", "DELIVERED"}, {"busy", "BUSY"}, {"resetting", "RESETTING"},
		{"broken", "BROKEN"}, {"maintenance", "MAINTENANCE"}, {"adding", "ADDING"}, {"closed", "COLD"},
		{"closing", "RESETTING"}};
	struct error e = ERROR_INIT;
	struct lease_row l;
	struct vm_row v;

	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		assert_ok(store_vm_get(s, expected[i].name, &v, &e), &e);
		assert_string_equal(state_to_string(v.state), expected[i].state);
		assert_string_equal(v.clean_of, "");
		assert_string_equal(v.evidence, "");
		assert_int_equal(v.cleared, 0);
		assert_int_equal(v.warm_failures, 0);
		assert_string_equal(v.warm_reason, "");
		assert_string_equal(v.image, "debian");
		assert_int_equal(v.memory_mib, 2048);
		assert_true((v.state == STATE_PLAIN) == (v.pool[0] == '\0'));
	}
	assert_int_equal(store_vm_get(s, "gone", &v, &e), -ENOENT);
	assert_ok(store_vm_get(s, "busy", &v, &e), &e);
	assert_ok(store_lease_get(s, v.lease, &l, &e), &e);
	assert_true(l.open && l.runner_id == 42 && l.registration == REGISTRATION_MADE && l.delivered_wall_us);
	assert_string_equal(l.job, "build");
	assert_int_equal(l.keep_ms, 0);
	assert_ok(store_vm_get(s, "broken", &v, &e), &e);
	assert_int_equal(v.attempts, 3);
	assert_string_equal(v.reason, "reason");
}

static void test_upgrade(void **state)
{
	static const char tables[] =
		"SELECT count(*) FROM sqlite_master WHERE name IN ('vms', 'leases', 'events', 'pools', 'meta', 'vms_ready',"
		" 'vms_generation', 'vms_shared', 'leases_one_open', 'leases_one_per_life', 'events_vm_id')";
	struct error e = ERROR_INIT;
	struct store_detail keep = {.cause = HAPPENING_STOPPED};
	struct vm_row row;
	int64_t events, leases, of_vms;

	make_v1(state);
	events = ask(store_path(state), "SELECT count(*) FROM events");
	leases = ask(store_path(state), "SELECT sum(vm_id) FROM leases");
	of_vms = ask(store_path(state), "SELECT sum(vm_id) FROM events");
	assert_true(events > 60 && leases > 0 && of_vms > 0);
	struct store *s = open_store(state);
	assert_int_equal(strlen(store_host_id(s)), 8);
	check_rows(s);
	s = store_free(s);
	assert_int_equal(ask(store_path(state), "PRAGMA user_version"), 6);
	assert_int_equal(ask(store_path(state), tables), 11);
	/* Dropping the old table has cut nothing from its VM. */
	assert_int_equal(ask(store_path(state), "SELECT count(*) FROM events"), events);
	assert_int_equal(ask(store_path(state), "SELECT sum(vm_id) FROM leases"), leases);
	assert_int_equal(ask(store_path(state), "SELECT sum(vm_id) FROM events"), of_vms);
	assert_int_equal(ask(store_path(state), "PRAGMA foreign_key_check"), -1);
	/* The way back is the file as it was. */
	assert_int_equal(ask(beside(state, ".last-good"), "PRAGMA user_version"), 1);
	assert_int_equal(ask(beside(state, ".last-good"), "SELECT count(*) FROM events"), events);

	s = open_store(state);
	check_rows(s);
	assert_int_equal(store_apply(s, "busy", 0, HAPPENING_KEEP, &keep, NULL, &row, &e), 1);
	assert_int_equal(row.state, STATE_KEPT);
	(void)go(s, "busy", HAPPENING_REPAIR);
	(void)go(s, "busy", HAPPENING_RESET_DONE);
	(void)go(s, "broken", HAPPENING_INSPECT);
	add_vm(s, "new");
	s = store_free(s);
	s = open_store(state);
	s = store_free(s);
	/* The guards stand in the new table as well. */
	assert_int_equal(raw(store_path(state), "UPDATE vms SET generation = 0 WHERE name = 'ready'") & 0xff, SQLITE_CONSTRAINT);
	assert_int_equal(raw(store_path(state), "UPDATE vms SET slot = 0") & 0xff, SQLITE_CONSTRAINT);
	assert_int_equal(raw(store_path(state), "UPDATE vms SET state = 'HAPPY'") & 0xff, SQLITE_CONSTRAINT);
}

/* A step that fails half-way leaves the file as it was. */
static void test_upgrade_fails(void **state)
{
	struct store *s = NULL;
	struct error e = ERROR_INIT;

	make_v1(state);
	assert_int_equal(raw(store_path(state), "CREATE TABLE pools (x)"), SQLITE_OK);
	assert_true(store_open(store_path(state), &s, &e) < 0);
	assert_non_null(strstr(e.text, "creating the tables"));
	assert_int_equal(ask(store_path(state), "PRAGMA user_version"), 1);
	assert_int_equal(ask(store_path(state), "SELECT count(*) FROM sqlite_master WHERE name = 'vms_2'"), 0);
	assert_int_equal(raw(store_path(state), "DROP TABLE pools"), SQLITE_OK);
	s = open_store(state);
	check_rows(s);
	s = store_free(s);
}

static void remove_files(void **state)
{
	for (const char *const *suffix = (const char *const[]){"", "-wal", "-shm", ".last-good", ".last-good.new", NULL};
		*suffix; suffix++)
		(void)unlink(beside(state, *suffix));
}

static void test_kill_in_upgrade(void **state)
{
	uint64_t seed = 20261129, span = 0;
	unsigned before = 0, after = 0;

	/* How long it takes here: the kills are spread over twice that, whatever the machine. */
	make_v1(state);
	struct timespec from, to;
	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &from), 0);
	pid_t whole = fork();
	assert_true(whole >= 0);
	if (whole == 0) {
		struct store *s = NULL;
		_exit(store_open(store_path(state), &s, NULL) < 0);
	}
	int ended;
	assert_int_equal(waitpid(whole, &ended, 0), whole);
	assert_int_equal(ended, 0);
	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &to), 0);
	span = 2 * (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec);
	remove_files(state);

	for (unsigned round = 0; round < 60; round++) {
		int status;
		pid_t pid;

		make_v1(state);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			struct store *s = NULL;
			_exit(store_open(store_path(state), &s, NULL) < 0);
		}
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		uint64_t ns = (seed >> 16) % span;
		const struct timespec wait = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
		(void)nanosleep(&wait, NULL);
		(void)kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
		/* Asked through the log of what was committed, as the next keeper does. */
		int64_t version = ask(store_path(state), "PRAGMA user_version");
		assert_true(version == 1 || version == 6);
		before += version == 1;
		after += version == 6;
		struct store *s = open_store(state);
		check_rows(s);
		s = store_free(s);
		remove_files(state);
	}
	assert_true(before > 0 && after > 0);
}

static int note_pool(void *userdata, const struct pool_row *p)
{
	char *text = userdata;
	size_t len = strlen(text);
	(void)snprintf(text + len, 200 - len, "%s:%u,%u,%s,%s ", p->name, p->set.cpus, p->set.reserve_local,
		pool_start_to_string((enum pool_start)p->set.start), pool_standby_to_string((enum pool_standby)p->set.standby));
	return 0;
}

static void check_pools(struct store *s, const char *expected)
{
	char text[200] = "";
	struct error e = ERROR_INIT;
	assert_ok(store_pool_each(s, note_pool, text, &e), &e);
	assert_string_equal(text, expected);
}

static void test_pools(void **state)
{
	struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct pool_row p = {.name = "default", .set = {.cpus = 2}};

	check_pools(s, "");
	assert_ok(store_pool_put(s, &p, &e), &e);
	p = (struct pool_row){.name = "big", .set = {.cpus = 8, .reserve_local = 1}};
	assert_ok(store_pool_put(s, &p, &e), &e);
	check_pools(s, "big:8,1,warm,paused default:2,0,warm,paused ");
	p.set.cpus = 4;
	assert_ok(store_pool_put(s, &p, &e), &e);
	p = (struct pool_row){.name = "default"};
	assert_ok(store_pool_put(s, &p, &e), &e);
	s = store_free(s);
	s = open_store(state);
	check_pools(s, "big:4,1,warm,paused ");
	p = (struct pool_row){.name = "big", .set = {.start = POOL_START_COLD}};
	assert_ok(store_pool_put(s, &p, &e), &e);
	p = (struct pool_row){.name = "awake", .set = {.standby = POOL_STANDBY_RUNNING}};
	assert_ok(store_pool_put(s, &p, &e), &e);
	check_pools(s, "awake:0,0,warm,running big:0,0,cold,paused ");
	p.set = (struct pool_settings){.start = POOL_START_WARM, .standby = POOL_STANDBY_PAUSED};
	assert_ok(store_pool_put(s, &p, &e), &e);
	check_pools(s, "big:0,0,cold,paused ");
	p = (struct pool_row){.name = "No/Pool", .set = {.cpus = 1}};
	assert_fails(store_pool_put(s, &p, &e), EINVAL, &e, "pool name");
	s = store_free(s);
}

static void test_shared_clean_state(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row v = {.name = "a-2", .state = STATE_PLAIN, .clean_of = "a"}, row;

	add_vm(s, "a");
	assert_fails(store_vm_insert(s, &v, &e), EINVAL, &e, "no clean state of its own");
	(void)go(s, "a", HAPPENING_ADD);
	(void)go(s, "a", HAPPENING_MAINTAINED);
	assert_ok(store_vm_insert(s, &v, &e), &e);
	assert_ok(store_vm_get(s, "a-2", &row, &e), &e);
	assert_string_equal(row.clean_of, "a");
	(void)go(s, "a-2", HAPPENING_ADD);
	(void)snprintf(v.name, sizeof(v.name), "a-3");
	(void)snprintf(v.clean_of, sizeof(v.clean_of), "a-2");
	assert_fails(store_vm_insert(s, &v, &e), EINVAL, &e, "a-2 has no clean state of its own");
	(void)snprintf(v.clean_of, sizeof(v.clean_of), "z");
	assert_fails(store_vm_insert(s, &v, &e), ENOENT, &e, "no VM z");
	assert_fails(store_vm_delete(s, "a", &e), EBUSY, &e, "VM a-2 starts from the clean state of a");
	assert_ok(store_vm_delete(s, "a-2", &e), &e);
	assert_ok(store_vm_delete(s, "a", &e), &e);
}

static void test_short_lives(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_STARTING);

	(void)go(s, "a", HAPPENING_START_FAILED);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	(void)go(s, "a", HAPPENING_START);
	row = go(s, "a", HAPPENING_STARTED);
	assert_int_equal(row.attempts, 0);
	assert_int_equal(row.cleared, 1);
	row = go(s, "a", HAPPENING_SHORT_LIFE);
	assert_int_equal(row.attempts, 2);
	assert_int_equal(row.cleared, 0);
	assert_string_equal(row.reason, "reason");
	(void)go(s, "a", HAPPENING_RESET_DONE);
	row = go(s, "a", HAPPENING_START);
	assert_ok(store_vm_set_life(s, "a", row.generation, "ssh-ed25519 AAAA", "10.0.0.2", &e), &e);
	assert_int_equal(go(s, "a", HAPPENING_STARTED).cleared, 2);
	assert_int_equal(go(s, "a", HAPPENING_LEASE).cleared, 0); /* it has lived */
	(void)go(s, "a", HAPPENING_RELEASE);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	(void)go(s, "a", HAPPENING_START);
	(void)go(s, "a", HAPPENING_STARTED);
	for (int32_t i = 1; i <= 3; i++) {
		row = go(s, "a", HAPPENING_SHORT_LIFE);
		assert_int_equal(row.attempts, i);
		row = go(s, "a", HAPPENING_RESET_DONE);
		if (i == 3)
			break;
		(void)go(s, "a", HAPPENING_START);
		(void)go(s, "a", HAPPENING_STARTED);
	}
	assert_int_equal(row.state, STATE_BROKEN);
}

/* From version 4: what waits without a key was started warm, or its failing wake-up would count as nobody's. */
static void test_upgrade_of_standby(void **state)
{
	struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "runs", STATE_STARTING);

	assert_ok(store_vm_set_life(s, "runs", row.generation, "ssh-ed25519 AAAA", "10.0.0.2", &e), &e);
	(void)go(s, "runs", HAPPENING_STARTED);
	assert_true(!bring_to(s, "sleeps", STATE_READY).warm);
	s = store_free(s);
	assert_int_equal(raw(store_path(state), "ALTER TABLE vms DROP COLUMN warm; ALTER TABLE vms DROP COLUMN warm_failures;"
						" ALTER TABLE vms DROP COLUMN warm_reason; ALTER TABLE vms DROP COLUMN patch;"
						" ALTER TABLE vms DROP COLUMN trial; ALTER TABLE vms DROP COLUMN patch_reason; PRAGMA user_version = 4"), SQLITE_OK);
	s = open_store(state);
	assert_ok(store_vm_get(s, "runs", &row, &e), &e);
	assert_false(row.warm);
	assert_ok(store_vm_get(s, "sleeps", &row, &e), &e);
	assert_true(row.warm);
	(void)go(s, "sleeps", HAPPENING_LEASE);
	assert_int_equal(go(s, "sleeps", HAPPENING_WAKE_FAILED).warm_failures, 1);
	s = store_free(s);
}

/* To MAINTENANCE for the patch that is wished for, made, reset, and starting. */
static void try_patch(struct store *s, const char *name)
{
	static const enum vm_happening way[] = {HAPPENING_MAINTAIN, HAPPENING_MAINTAINED, HAPPENING_RESET_DONE, HAPPENING_START};
	struct error e = ERROR_INIT;

	assert_ok(store_vm_set_patch(s, name, "debian-13", "", &e), &e);
	for (size_t i = 0; i < ARRAY_SIZE(way); i++) {
		struct vm_row row = go(s, name, way[i]);

		assert_string_equal(row.image, "debian");
		assert_string_equal(row.patch, "debian-13");
		assert_int_equal(row.trial, way[i] != HAPPENING_MAINTAIN);
	}
	/* What is being tried is not changed under it. */
	assert_fails(store_vm_set_patch(s, name, "", "", &e), EBUSY, &e, "is being patched to debian-13");
}

static void test_patch(void **state)
{
	struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row;

	assert_fails(store_vm_set_patch(s, "nosuch", "debian-13", "", &e), ENOENT, &e, "nosuch");
	assert_fails(store_vm_set_patch(s, "nosuch", "../x", "", &e), EINVAL, &e, "image name");
	add_vm(s, "plain");
	assert_fails(store_vm_set_patch(s, "plain", "debian-13", "", &e), EBUSY, &e, "in no pool");

	/* Proven: the patch is the image, and the clean state its own. */
	(void)bring_to(s, "one", STATE_READY);
	row = (struct vm_row){.name = "two", .image = "debian", .clean_of = "one", .state = STATE_PLAIN};
	assert_ok(store_vm_insert(s, &row, &e), &e);
	for (enum vm_happening way = HAPPENING_ADD; row.state != STATE_COLD;
		way = way == HAPPENING_ADD ? HAPPENING_MAINTAINED : HAPPENING_RESET_DONE)
		row = go(s, "two", way);
	assert_string_equal(row.clean_of, "one");
	try_patch(s, "two");
	s = store_free(s);
	s = open_store(state);
	row = go(s, "two", HAPPENING_STARTED);
	assert_string_equal(row.image, "debian-13");
	assert_true(!row.patch[0] && !row.trial && !row.clean_of[0] && !row.patch_reason[0]);

	/* An interrupted trial goes on; a failed one leaves everything as it was, but for the sentence; nobody's attempts. */
	try_patch(s, "one");
	assert_true(go(s, "one", HAPPENING_INTERRUPTED).trial);
	(void)go(s, "one", HAPPENING_RESET_DONE);
	(void)go(s, "one", HAPPENING_START);
	row = go(s, "one", HAPPENING_MAINTAIN_FAILED);
	assert_string_equal(row.image, "debian");
	assert_string_equal(row.patch_reason, "step: reason");
	assert_true(!row.patch[0] && !row.trial && row.attempts == 0);
	(void)go(s, "one", HAPPENING_RESET_DONE);
	(void)go(s, "one", HAPPENING_START);
	assert_string_equal(go(s, "one", HAPPENING_STARTED).patch_reason, "step: reason");

	/* Interrupted before it was made: the wish is there, and nothing is on trial. BROKEN ends a trial. */
	assert_ok(store_vm_set_patch(s, "one", "debian-13", "", &e), &e);
	(void)go(s, "one", HAPPENING_MAINTAIN);
	row = go(s, "one", HAPPENING_INTERRUPTED);
	assert_true(row.patch[0] && !row.trial && !row.patch_reason[0]);
	(void)go(s, "one", HAPPENING_RESET_DONE);
	try_patch(s, "one");
	(void)go(s, "one", HAPPENING_INTERRUPTED);
	(void)go(s, "one", HAPPENING_RESET_FAILED);
	(void)go(s, "one", HAPPENING_RESET_FAILED);
	row = go(s, "one", HAPPENING_RESET_FAILED);
	assert_true(row.state == STATE_BROKEN && !row.trial && !row.patch[0] && row.patch_reason[0]);
	/* Looked at, with another wish: an inspection is no patch. */
	assert_ok(store_vm_set_patch(s, "one", "debian-13", "", &e), &e);
	(void)go(s, "one", HAPPENING_INSPECT);
	row = go(s, "one", HAPPENING_DOUBT);
	assert_true(row.patch[0] && !row.trial && !row.patch_reason[0]);
	s = store_free(s);
}

static int count_event(void *userdata, const struct event_row *v)
{
	*(unsigned *)userdata += strcmp(v->kind, "resume") == 0 && v->took_us == 7 && v->boot_us == 11 && v->lease[0];
	return 0;
}

static int add_kind(void *userdata, const struct event_row *v)
{
	char *kinds = userdata;
	const size_t n = strlen(kinds);

	(void)snprintf(kinds + n, 200 - n, "%s ", v->kind);
	return 0;
}

/* What has led to a change is written with it and stands before it; with a change that is none it is not written. */
static void test_steps_of_a_change(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	const struct vm_row row = bring_to(s, "a", STATE_STARTING);
	const struct event_row steps[] = {{.generation = row.generation, .vm = "a", .kind = "overlay"},
		{.generation = row.generation, .vm = "a", .kind = "restore"}};
	const struct store_detail d = {.steps = steps, .n_steps = ARRAY_SIZE(steps)};
	struct error e = ERROR_INIT;
	char kinds[200] = "";

	assert_int_equal(store_apply(s, "a", row.generation, HAPPENING_RESET_DONE, &d, NULL, NULL, &e), 0);
	assert_int_equal(store_apply(s, "a", row.generation + 1, HAPPENING_STARTED, &d, NULL, NULL, &e), 0);
	assert_int_equal(store_apply(s, "a", row.generation, HAPPENING_STARTED, &d, NULL, NULL, &e), 1);
	assert_ok(store_event_each(s, "a", NULL, 0, add_kind, kinds, &e), &e);
	assert_non_null(strstr(kinds, "START overlay restore STARTED "));
	assert_string_equal(strstr(kinds, "overlay"), "overlay restore STARTED ");
}

/* A VM in standby has no key, and what READY cleared comes back when it cannot be woken. */
static void test_standby(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct vm_row row = bring_to(s, "a", STATE_STARTING);
	struct event_row step = {.boot_us = 11, .wall_us = 12, .took_us = 7, .generation = 2, .vm = "a", .kind = "resume"};
	struct error e = ERROR_INIT;
	unsigned steps = 0;

	(void)go(s, "a", HAPPENING_START_FAILED);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	(void)go(s, "a", HAPPENING_START);
	row = go(s, "a", HAPPENING_STARTED);
	assert_true(vm_sleeps(&row) && row.cleared == 1 && row.attempts == 0);
	assert_fails(store_vm_woken(s, "a", row.generation, "ssh-ed25519 AAAA", "10.0.0.2", NULL, 0, &e), ESTALE, &e, "READY");
	row = go(s, "a", HAPPENING_LEASE);
	assert_true(vm_sleeps(&row) && row.cleared == 1);
	row = go(s, "a", HAPPENING_WAKE_FAILED);
	assert_true(row.state == STATE_RESETTING && row.attempts == 2 && row.cleared == 0 && !vm_sleeps(&row));
	(void)go(s, "a", HAPPENING_RESET_DONE);
	(void)go(s, "a", HAPPENING_START);
	(void)go(s, "a", HAPPENING_STARTED);
	row = go(s, "a", HAPPENING_LEASE);
	assert_fails(store_vm_set_life(s, "a", row.generation, "ssh-ed25519 AAAA", "10.0.0.2", &e), ESTALE, &e, "LEASED");
	assert_fails(store_vm_woken(s, "a", row.generation - 1, "k", "10.0.0.2", NULL, 0, &e), ESTALE, &e, "life");
	(void)snprintf(step.lease, sizeof(step.lease), "%s", row.lease);
	step.generation = row.generation;
	assert_ok(store_vm_woken(s, "a", row.generation, "ssh-ed25519 AAAA", "10.0.0.2", &step, 1, &e), &e);
	assert_fails(store_vm_woken(s, "a", row.generation, "ssh-ed25519 BBBB", "10.0.0.2", &step, 1, &e), ESTALE, &e, "life");
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_true(!vm_sleeps(&row) && row.cleared == 0 && row.attempts == 0);
	assert_string_equal(row.host_key, "ssh-ed25519 AAAA");
	assert_ok(store_event_each(s, "a", NULL, 0, count_event, &steps, &e), &e);
	assert_int_equal(steps, 1);
	/* Nothing of this life in the next one. */
	(void)go(s, "a", HAPPENING_RELEASE);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	row = go(s, "a", HAPPENING_START);
	assert_string_equal(row.host_key, "");
	row = go(s, "a", HAPPENING_STARTED);
	/* Three in a row, whatever READY clears in between. */
	for (int32_t i = 1; i <= 3; i++) {
		(void)go(s, "a", HAPPENING_LEASE);
		row = go(s, "a", HAPPENING_WAKE_FAILED);
		assert_int_equal(row.attempts, i);
		row = go(s, "a", HAPPENING_RESET_DONE);
		if (i < 3) {
			(void)go(s, "a", HAPPENING_START);
			(void)go(s, "a", HAPPENING_STARTED);
		}
	}
	assert_int_equal(row.state, STATE_BROKEN);
}

/* Starts it, warm or cold, and brings it to READY; with a key when it is to run there. */
static struct vm_row start_so(struct store *s, bool warm, bool runs)
{
	const struct store_detail d = {.warm = warm};
	struct vm_row row;
	struct error e = ERROR_INIT;

	assert_int_equal(store_apply(s, "a", 0, HAPPENING_START, &d, NULL, &row, &e), 1);
	assert_true(row.warm == warm);
	if (runs)
		assert_ok(store_vm_set_life(s, "a", row.generation, "ssh-ed25519 AAAA", "10.0.0.2", &e), &e);
	return go(s, "a", HAPPENING_STARTED);
}

static void cold_life(struct store *s)
{
	(void)start_so(s, false, true);
	(void)go(s, "a", HAPPENING_LEASE);
	(void)go(s, "a", HAPPENING_RELEASE);
	(void)go(s, "a", HAPPENING_RESET_DONE);
}

/* A cold life in between does not make good what warm ones have failed of. */
static void test_warm_failures(void **state)
{
	static const enum vm_happening starting[] = {HAPPENING_START_FAILED, HAPPENING_STOPPED, HAPPENING_DEADLINE, HAPPENING_DOUBT};
	CLEANUP(store_freep) struct store *s = open_store(state);
	const struct store_detail warm = {.warm = true};
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_COLD);
	int32_t expected = 0;

	assert_int_equal(row.warm_failures, 0);
	for (size_t i = 0; i < ARRAY_SIZE(starting) + 2; i++) {
		if (i < ARRAY_SIZE(starting)) {
			assert_int_equal(store_apply(s, "a", 0, HAPPENING_START, &warm, NULL, &row, &e), 1);
			row = go(s, "a", starting[i]);
		} else {
			bool wakes = i == ARRAY_SIZE(starting);
			(void)start_so(s, true, !wakes);
			if (wakes)
				(void)go(s, "a", HAPPENING_LEASE);
			row = go(s, "a", wakes ? HAPPENING_WAKE_FAILED : HAPPENING_SHORT_LIFE);
		}
		assert_int_equal(row.warm_failures, ++expected);
		assert_string_equal(row.warm_reason, "step: reason");
		(void)go(s, "a", HAPPENING_RESET_FAILED); /* that is none of a life */
		(void)go(s, "a", HAPPENING_RESET_DONE);
		cold_life(s);
		(void)go(s, "a", HAPPENING_START); /* a cold one that fails is none, either */
		(void)go(s, "a", HAPPENING_START_FAILED);
		(void)go(s, "a", HAPPENING_RESET_DONE);
		cold_life(s);
		assert_ok(store_vm_get(s, "a", &row, &e), &e);
		assert_int_equal(row.warm_failures, expected);
	}
	s = store_free(s);
	s = open_store(state);
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_int_equal(row.warm_failures, expected);
	/* A warm life that was ended before it was anybody's says nothing. One that wakes, or runs when it is leased, is good. */
	(void)start_so(s, true, false);
	(void)go(s, "a", HAPPENING_DOUBT);
	assert_int_equal(go(s, "a", HAPPENING_RESET_DONE).warm_failures, expected);
	row = start_so(s, true, false);
	assert_int_equal(go(s, "a", HAPPENING_LEASE).warm_failures, expected);
	assert_ok(store_vm_woken(s, "a", row.generation, "ssh-ed25519 AAAA", "10.0.0.2", NULL, 0, &e), &e);
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_int_equal(row.warm_failures, 0);
	assert_string_equal(row.warm_reason, "");
	(void)go(s, "a", HAPPENING_RELEASE);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	assert_int_equal(store_apply(s, "a", 0, HAPPENING_START, &warm, NULL, NULL, &e), 1);
	assert_int_equal(go(s, "a", HAPPENING_START_FAILED).warm_failures, 1);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	(void)start_so(s, true, true);
	assert_int_equal(go(s, "a", HAPPENING_LEASE).warm_failures, 0);
	(void)go(s, "a", HAPPENING_RELEASE);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	assert_int_equal(store_apply(s, "a", 0, HAPPENING_START, &warm, NULL, NULL, &e), 1);
	assert_int_equal(go(s, "a", HAPPENING_START_FAILED).warm_failures, 1);
	assert_ok(store_vm_forgive_warm(s, "a", &e), &e);
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_int_equal(row.warm_failures, 0);
	assert_fails(store_vm_forgive_warm(s, "z", &e), ENOENT, &e, "no VM z");
}

static void test_kept(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_DELIVERED);
	struct store_detail d = {.reason = "shutdown", .evidence = "/images/run/a.qcow2", .cause = HAPPENING_STOPPED};
	struct lease_row l;
	char lease[LEASE_ID_MAX];

	(void)snprintf(lease, sizeof(lease), "%s", row.lease);
	assert_ok(store_lease_keep(s, lease, 1000, &e), &e);
	assert_int_equal(store_apply(s, "a", 0, HAPPENING_KEEP, &d, NULL, &row, &e), 1);
	assert_string_equal(row.evidence, "/images/run/a.qcow2");
	assert_string_equal(row.lease, lease);
	assert_ok(store_lease_get(s, lease, &l, &e), &e);
	assert_true(l.open);
	assert_int_equal(l.keep_ms, 1000);
	assert_string_equal(l.end_reason, "STOPPED: shutdown");
	assert_int_equal(store_lease_renew(s, lease, 1000, &e), -EALREADY);
	assert_ok(store_lease_keep(s, lease, 9000, &e), &e);
	row = go(s, "a", HAPPENING_INTERRUPTED); /* another boot: from now on again, and nothing else changes */
	assert_string_equal(row.evidence, "/images/run/a.qcow2");
	s = store_free(s);
	s = open_store(state);
	(void)go(s, "a", HAPPENING_DEADLINE);
	assert_int_equal(store_lease_keep(s, lease, 9000, &e), -EALREADY);
	row = go(s, "a", HAPPENING_RESET_DONE);
	assert_string_equal(row.evidence, "");
	assert_ok(store_lease_get(s, lease, &l, &e), &e);
	assert_false(l.open);
	assert_string_equal(l.end_reason, "STOPPED: shutdown");
	assert_int_equal(store_lease_keep(s, "00", 9000, &e), -ENOENT);

	/* Quarantine keeps what the reset found, an inspection leaves it, a repair drops it. */
	row = bring_to(s, "b", STATE_STARTING);
	for (unsigned i = 0; i < 3; i++) {
		(void)go(s, "b", HAPPENING_START_FAILED);
		d = (struct store_detail){.evidence = i == 2 ? "/images/broken/b.qcow2" : NULL};
		assert_int_equal(store_apply(s, "b", 0, HAPPENING_RESET_DONE, &d, NULL, &row, &e), 1);
		if (i < 2)
			(void)go(s, "b", HAPPENING_START);
	}
	assert_int_equal(row.state, STATE_BROKEN);
	assert_string_equal(row.evidence, "/images/broken/b.qcow2");
	uint64_t generation = row.generation;
	row = go(s, "b", HAPPENING_INSPECT);
	assert_int_equal(row.generation, generation + 1);
	assert_string_equal(row.evidence, "/images/broken/b.qcow2");
	assert_true(row.lease[0]);
	assert_ok(store_lease_renew(s, row.lease, 1000, &e), &e);
	row = go(s, "b", HAPPENING_EXPIRED);
	assert_int_equal(row.attempts, 0);
	row = go(s, "b", HAPPENING_RESET_DONE);
	assert_string_equal(row.evidence, "");
	assert_string_equal(row.lease, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_folder_setup, test_folder_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_upgrade),
		TEST(test_upgrade_fails),
		TEST(test_upgrade_of_standby),
		TEST(test_patch),
		TEST(test_kill_in_upgrade),
		TEST(test_pools),
		TEST(test_shared_clean_state),
		TEST(test_short_lives),
		TEST(test_steps_of_a_change),
		TEST(test_standby),
		TEST(test_warm_failures),
		TEST(test_kept),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
