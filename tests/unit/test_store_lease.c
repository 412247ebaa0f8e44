/* Leases, history, and what the schema refuses whatever the code above it does. */
#include "tests/unit/store_testing.h"

static struct lease_row get_lease(struct store *s, const char *id)
{
	struct lease_row l;
	struct error e = ERROR_INIT;
	assert_ok(store_lease_get(s, id, &l, &e), &e);
	return l;
}

static void test_lease(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_READY);
	struct store_detail d = {.scope = "octo/box", .ttl_ms = 5000, .bound = true};
	char prefix[32], long_holder[HOLDER_MAX + 1];

	/* Not without a holder and an end, and then nothing has changed. */
	assert_fails(store_apply(s, "a", 0, HAPPENING_LEASE, &d, NULL, NULL, &e), EINVAL, &e, "holder");
	d.holder = "me";
	d.ttl_ms = 0;
	assert_fails(store_apply(s, "a", 0, HAPPENING_LEASE, &d, NULL, NULL, &e), EINVAL, &e, "lasts");
	d.ttl_ms = STORE_TTL_MAX_MS + 1;
	assert_fails(store_apply(s, "a", 0, HAPPENING_LEASE, &d, NULL, NULL, &e), EINVAL, &e, "30 days");
	memset(long_holder, 'h', HOLDER_MAX);
	long_holder[HOLDER_MAX] = '\0';
	d.ttl_ms = 5000;
	d.holder = long_holder;
	assert_fails(store_apply(s, "a", 0, HAPPENING_LEASE, &d, NULL, NULL, &e), ENAMETOOLONG, &e, "holder");
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_int_equal(row.state, STATE_READY);
	assert_string_equal(row.lease, "");

	d.holder = "me";
	uint64_t before = clock_boot_us();
	assert_int_equal(store_apply(s, "a", row.generation, HAPPENING_LEASE, &d, NULL, &row, &e), 1);
	struct lease_row l = get_lease(s, row.lease);
	assert_string_equal(l.id, row.lease);
	assert_int_equal(strlen(l.id), 32);
	assert_string_equal(l.vm, "a");
	assert_string_equal(l.pool, "default");
	assert_string_equal(l.holder, "me");
	assert_string_equal(l.scope, "octo/box");
	(void)snprintf(prefix, sizeof(prefix), "boxery-%s-", store_host_id(s));
	assert_memory_equal(l.runner_name, prefix, strlen(prefix));
	assert_int_equal(strlen(l.runner_name), strlen(prefix) + 16);
	assert_int_equal(l.generation, row.generation);
	assert_int_equal(l.registration, REGISTRATION_NONE);
	assert_true(
		l.open && l.bound && l.runner_id == 0 && l.closed_wall_us == 0 && l.delivered_wall_us == 0);
	assert_true(l.expires_boot_us >= before + 5000000 && l.expires_boot_us <= clock_boot_us() + 5000000);
	assert_string_equal(l.boot_id, row.since_boot_id);

	(void)go(s, "a", HAPPENING_DELIVER);
	assert_true(get_lease(s, l.id).delivered_wall_us > 0);
	assert_ok(store_lease_renew(s, l.id, 60000, &e), &e);
	assert_true(get_lease(s, l.id).expires_boot_us >= before + 60000000);
	assert_fails(store_lease_renew(s, l.id, 0, &e), EINVAL, &e, "lasts");
	assert_fails(store_vm_delete(s, "a", &e), EBUSY, &e, "open lease");

	/* The lease has ended when the reset begins and is closed when the reset is done. */
	d = (struct store_detail){.reason = "shutdown", .outcome = "preliminary"};
	assert_int_equal(store_apply(s, "a", 0, HAPPENING_STOPPED, &d, NULL, &row, &e), 1);
	assert_string_equal(row.lease, l.id);
	assert_true(get_lease(s, l.id).open);
	assert_string_equal(get_lease(s, l.id).end_reason, "STOPPED: shutdown");
	assert_fails(store_lease_renew(s, l.id, 60000, &e), EALREADY, &e, "ended");
	(void)go(s, "a", HAPPENING_RESET_FAILED);
	row = go(s, "a", HAPPENING_RESET_DONE);
	assert_string_equal(row.lease, "");
	assert_false(get_lease(s, l.id).open);
	assert_true(get_lease(s, l.id).closed_wall_us > 0);
	assert_string_equal(get_lease(s, l.id).end_reason, "STOPPED: shutdown");
	assert_string_equal(get_lease(s, l.id).outcome, "preliminary");

	assert_ok(store_lease_outcome(s, l.id, "succeeded", &e), &e);
	assert_fails(store_lease_outcome(s, l.id, "failed", &e), EALREADY, &e, "succeeded");
	assert_string_equal(get_lease(s, l.id).outcome, "succeeded");
	assert_fails(store_lease_outcome(s, "00", "x", &e), ENOENT, &e, "no lease 00");
	assert_fails(store_lease_outcome(s, l.id, "", &e), EINVAL, &e, "word");
	assert_fails(store_lease_get(s, "", &l, &e), ENOENT, &e, "no lease");
	assert_fails(store_lease_renew(s, "00", 1, &e), ENOENT, &e, "no lease 00");
}

static void test_lease_released(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_LEASED);
	struct store_detail d = {.outcome = "no-job"};

	assert_ok(store_lease_job(s, row.lease, "build \xe2\x9c\x93 \x1b[31m", &e), &e);
	assert_string_equal(get_lease(s, row.lease).job, "build \\xe2\\x9c\\x93 \\x1b[31m");
	assert_fails(store_lease_job(s, "00", "x", &e), ENOENT, &e, "no lease 00");
	assert_int_equal(store_apply(s, "a", 0, HAPPENING_RELEASE, &d, NULL, NULL, &e), 1);
	assert_string_equal(get_lease(s, row.lease).outcome, "no-job");
	assert_string_equal(get_lease(s, row.lease).end_reason, "RELEASE");
	assert_int_equal(store_lease_outcome(s, row.lease, "late", &e), -EALREADY);
	/* Into quarantine the lease closes too. */
	(void)go(s, "a", HAPPENING_RESET_FAILED);
	(void)go(s, "a", HAPPENING_RESET_FAILED);
	assert_true(get_lease(s, row.lease).open);
	assert_int_equal(go(s, "a", HAPPENING_RESET_FAILED).state, STATE_BROKEN);
	assert_false(get_lease(s, row.lease).open);
	assert_ok(store_vm_delete(s, "a", &e), &e);
	assert_string_equal(get_lease(s, row.lease).vm, "a"); /* history outlives the VM */
}

static struct vm_row lease_to(struct store *s, const char *vm, const char *holder)
{
	struct store_detail d = {.holder = holder, .scope = "octo/box", .ttl_ms = 5000};
	struct error e = ERROR_INIT;
	struct vm_row row;

	(void)bring_to(s, vm, STATE_READY);
	assert_int_equal(store_apply(s, vm, 0, HAPPENING_LEASE, &d, NULL, &row, &e), 1);
	return row;
}

/* A holder that is killed before its lease is of any use may never have heard of it. */
static void test_lease_that_got_nothing(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	static const struct {
		const char *vm, *holder, *outcome;
		enum vm_happening what;
	} rows[] = {
		{"a", HOLDER_SERVICE, "not-delivered", HAPPENING_INTERRUPTED},
		{"b", HOLDER_ONCE, "not-delivered", HAPPENING_HOLDER_LOST},
		{"c", HOLDER_SERVICE, "not-delivered", HAPPENING_STOPPED},
		{"d", HOLDER_SERVICE, "not-delivered", HAPPENING_DEADLINE},
		{"e", "me", "", HAPPENING_INTERRUPTED}, /* a person's may be used without a delivery */
	};
	struct error e = ERROR_INIT;
	struct vm_row row;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		row = lease_to(s, rows[i].vm, rows[i].holder);
		(void)go(s, rows[i].vm, rows[i].what);
		assert_string_equal(get_lease(s, row.lease).outcome, rows[i].outcome);
		(void)go(s, rows[i].vm, HAPPENING_RESET_DONE);
		assert_string_equal(get_lease(s, row.lease).outcome, rows[i].outcome);
		assert_ok(store_lease_outcome(s, row.lease, "start failed", &e), &e); /* the holder lives, and knows better */
	}
	/* With a registration that may exist, or a secret that may have left, it is the holder's to find out. */
	row = lease_to(s, "f", HOLDER_SERVICE);
	assert_ok(store_lease_register(s, row.lease, REGISTRATION_PLANNED, 0, &e), &e);
	(void)go(s, "f", HAPPENING_INTERRUPTED);
	assert_string_equal(get_lease(s, row.lease).outcome, "");
	row = lease_to(s, "g", HOLDER_SERVICE);
	(void)go(s, "g", HAPPENING_DELIVER);
	(void)go(s, "g", HAPPENING_STOPPED);
	assert_string_equal(get_lease(s, row.lease).outcome, "");
}

static void test_registration(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_LEASED);
	const char *id = row.lease;

	assert_fails(store_lease_register(s, id, REGISTRATION_MADE, 0, &e), EINVAL, &e, "runner id");
	assert_fails(store_lease_register(s, id, REGISTRATION_COUNT, 0, &e), EINVAL, &e, "no state");
	assert_fails(store_lease_register(s, "00", REGISTRATION_GONE, 0, &e), ENOENT, &e, "no lease");
	assert_ok(store_lease_register(s, id, REGISTRATION_NONE, 0, &e), &e);
	assert_ok(store_lease_register(s, id, REGISTRATION_PLANNED, 0, &e), &e);
	assert_ok(store_lease_register(s, id, REGISTRATION_PLANNED, 0, &e), &e);
	assert_fails(store_lease_register(s, id, REGISTRATION_NONE, 0, &e), EALREADY, &e, "planned already");
	assert_ok(store_lease_register(s, id, REGISTRATION_MADE, 42, &e), &e);
	assert_ok(store_lease_register(s, id, REGISTRATION_MADE, 42, &e), &e);
	assert_fails(store_lease_register(s, id, REGISTRATION_MADE, 43, &e), EEXIST, &e, "runner 42");
	assert_fails(store_lease_register(s, id, REGISTRATION_PLANNED, 0, &e), EALREADY, &e, "made already");
	assert_int_equal(get_lease(s, id).runner_id, 42);
	assert_ok(store_lease_register(s, id, REGISTRATION_GONE, 0, &e), &e);
	assert_int_equal(get_lease(s, id).runner_id, 42);
	assert_int_equal(get_lease(s, id).registration, REGISTRATION_GONE);
	assert_fails(store_lease_register(s, id, REGISTRATION_MADE, 42, &e), EALREADY, &e, "gone already");
	/* Nothing planned is ever skipped over: a registration can turn out to be gone at any time. */
	row = bring_to(s, "b", STATE_LEASED);
	assert_ok(store_lease_register(s, row.lease, REGISTRATION_GONE, 0, &e), &e);
}

static int note_lease(void *userdata, const struct lease_row *l)
{
	char *text = userdata;
	size_t len = strlen(text);
	(void)snprintf(text + len, 100 - len, "%s", l->vm);
	return 0;
}

static int stop_at_once(void *userdata, const struct lease_row *l)
{
	return -ECANCELED;
}

static void check_leases(struct store *s, const char *holder, bool only, const char *expected)
{
	struct error e = ERROR_INIT;
	const struct lease_filter which = {.holder = holder, .unfinished = only};
	unsigned left_off = 7;
	char text[100] = "";
	assert_int_equal(store_lease_each(s, &which, &left_off, note_lease, text, &e), 0);
	assert_string_equal(text, expected);
	assert_int_equal(left_off, 0);
}

static void check_some(struct store *s, const struct lease_filter *which, const char *expected, unsigned expected_left_off)
{
	struct error e = ERROR_INIT;
	unsigned left_off = 7;
	char text[100] = "";
	assert_int_equal(store_lease_each(s, which, &left_off, note_lease, text, &e), 0);
	assert_string_equal(text, expected);
	assert_int_equal(left_off, expected_left_off);
}

static void test_lease_each(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct store_detail d = {.holder = "other", .ttl_ms = 1};

	for (const char *name = "abcd"; *name; name++) {
		char one[2] = {*name, '\0'};
		(void)bring_to(s, one, STATE_READY);
		if (*name == 'd')
			assert_int_equal(store_apply(s, one, 0, HAPPENING_LEASE, &d, NULL, NULL, &e), 1);
		else
			(void)go(s, one, HAPPENING_LEASE);
	}
	/* a: open. b: closed, registration made. c: closed, never asked. d: another holder's. */
	struct vm_row row;
	assert_ok(store_vm_get(s, "b", &row, &e), &e);
	assert_ok(store_lease_register(s, row.lease, REGISTRATION_MADE, 5, &e), &e);
	(void)go(s, "b", HAPPENING_STOPPED);
	(void)go(s, "b", HAPPENING_RESET_DONE);
	(void)go(s, "c", HAPPENING_STOPPED);
	(void)go(s, "c", HAPPENING_RESET_DONE);
	check_leases(s, "", false, "abcd");
	check_leases(s, NULL, true, "abd");
	check_leases(s, "tester", false, "abc");
	check_leases(s, "tester", true, "ab");
	check_leases(s, "other", true, "d");
	check_leases(s, "nobody", false, "");
	check_some(s, &(struct lease_filter){.vm = "b"}, "b", 0);
	check_some(s, &(struct lease_filter){.vm = "b", .holder = "other"}, "", 0);
	/* Open ones stay longest, then those that are not finished, then the newest. */
	check_some(s, &(struct lease_filter){.limit = 4}, "abcd", 0);
	check_some(s, &(struct lease_filter){.limit = 3}, "abd", 1);
	check_some(s, &(struct lease_filter){.limit = 2}, "ad", 2);
	check_some(s, &(struct lease_filter){.limit = 1}, "d", 3);
	check_some(s, &(struct lease_filter){.limit = 1, .holder = "tester", .unfinished = true}, "a", 1);
	assert_int_equal(store_lease_each(s, &(struct lease_filter){0}, NULL, stop_at_once, NULL, &e), -ECANCELED);
	assert_ok(store_lease_register(s, row.lease, REGISTRATION_GONE, 0, &e), &e);
	check_leases(s, "tester", true, "a");
}

static int count_lease(void *userdata, const struct lease_row *l)
{
	(*(unsigned *)userdata)++;
	return 0;
}

/* Old leases are forgotten, but not those whose registration may still exist. */
static void test_lease_bound(void **state)
{
	struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_LEASED);
	unsigned n = 0;

	s = store_free(s);
	assert_int_equal(
		raw(store_path(state),
			"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)"
			" INSERT INTO leases SELECT 10 + i, printf('%032x', i), NULL, 'gone', 'default', "
			"'h', '',"
			" printf('r%d', i), i, iif(i <= 200, 'made', 'gone'), 7, 0, 0, 1, 0, 1, i, 1, '', "
			"'', '', 0, 'x', 0 FROM n"),
		SQLITE_OK);
	s = open_store(state);
	(void)go(s, "a", HAPPENING_STOPPED);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	assert_int_equal(store_lease_each(s, &(struct lease_filter){0}, NULL, count_lease, &n, &e), 0);
	assert_int_equal(n, 200 + STORE_LEASES_CLOSED_MAX);
	(void)get_lease(s, row.lease);
	struct lease_row l;
	assert_int_equal(store_lease_get(s, "000000000000000000000000000000c9", &l, &e), -ENOENT); /* 201 */
	(void)get_lease(s, "000000000000000000000000000000c8");
	s = store_free(s);
}

struct history {
	unsigned n;
	uint64_t first, last;
	char text[4000];
};
static int note_event(void *userdata, const struct event_row *v)
{
	struct history *h = userdata;
	size_t len = strlen(h->text);
	assert_true(v->id > h->last);
	h->first = h->n++ ? h->first : v->id;
	h->last = v->id;
	(void)snprintf(h->text + len, sizeof(h->text) - len, "%s ", v->kind);
	return 0;
}

static struct history history(struct store *s, const char *vm, const char *lease, unsigned limit)
{
	struct history h = {0};
	struct error e = ERROR_INIT;
	assert_int_equal(store_event_each(s, vm, lease, limit, note_event, &h, &e), 0);
	return h;
}

static int check_event(void *userdata, const struct event_row *v)
{
	assert_string_equal(v->kind, "agent");
	assert_string_equal(v->text, "up\\x0a");
	assert_string_equal(v->vm, "a");
	assert_int_equal(v->generation, 3);
	assert_int_equal(v->took_us, 77);
	assert_true(v->boot_us > 0 && v->wall_us > 0);
	return 1;
}

static void test_events(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_BUSY), other = bring_to(s, "b", STATE_LEASED);

	assert_string_equal(history(s, "a", NULL, 0).text,
		"NEW ADD MAINTAINED RESET_DONE START STARTED LEASE DELIVER JOB_SEEN ");
	assert_string_equal(history(s, "a", "", 2).text, "DELIVER JOB_SEEN ");
	(void)go(s, "a", HAPPENING_STOPPED);
	assert_ok(store_event(s, "a", NULL, 1, "destroy", "", 5, &e), &e);
	assert_ok(store_event(s, "b", other.lease, 1, "elsewhere", "", 5, &e), &e);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	(void)go(s, "a", HAPPENING_START);
	(void)go(s, "a", HAPPENING_START_FAILED);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	(void)go(s, "a", HAPPENING_START);
	assert_string_equal(history(s, NULL, row.lease, 0).text,
		"LEASE DELIVER JOB_SEEN STOPPED destroy RESET_DONE START START_FAILED RESET_DONE START ");
	(void)go(s, "a", HAPPENING_STARTED);
	(void)go(s, "a", HAPPENING_LEASE); /* the next job is another story */
	(void)go(s, "a", HAPPENING_RELEASE);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	assert_ok(store_event(s, NULL, row.lease, 0, "swept", "", 0, &e), &e);
	assert_string_equal(history(s, NULL, row.lease, 0).text,
		"LEASE DELIVER JOB_SEEN STOPPED destroy RESET_DONE "
		"START START_FAILED RESET_DONE START STARTED swept ");
	assert_string_equal(history(s, "b", other.lease, 0).text, "LEASE elsewhere ");
	assert_string_equal(history(s, NULL, "00", 0).text, "");
	assert_string_equal(history(s, "zzz", NULL, 0).text, "");

	assert_ok(store_event(s, "a", NULL, 3, "agent", "up\n", 77, &e), &e);
	assert_int_equal(store_event_each(s, "a", NULL, 1, check_event, NULL, &e), 1);
	assert_int_equal(store_event_each(s, NULL, NULL, 1, check_event, NULL, &e), 1);
	assert_fails(store_event(s, "a", NULL, 3, "", "", 0, &e), EINVAL, &e, "CHECK");
	assert_fails(store_event(s, "a", NULL, UINT64_MAX, "x", "", 0, &e), EINVAL, &e, "does not take it");
	assert_ok(store_vm_delete(s, "a", &e), &e);
	assert_non_null(strstr(history(s, "a", NULL, 0).text, "agent REMOVED "));
}

static void test_events_bound(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;

	add_vm(s, "a");
	add_vm(s, "b");
	for (unsigned i = 0; i < STORE_EVENTS_PER_VM_MAX + 20; i++)
		assert_ok(store_event(s, "a", NULL, 0, "step", "", 0, &e), &e);
	struct history h = history(s, "a", NULL, 5000);
	assert_int_equal(h.n, STORE_EVENTS_PER_VM_MAX);
	assert_int_equal(history(s, "b", NULL, 0).n, 1); /* another's are not touched */
	uint64_t last = h.last;
	for (unsigned i = 0; i < STORE_EVENTS_LOOSE_MAX + 20; i++)
		assert_ok(store_event(s, i % 2 ? NULL : "unknown", NULL, 0, "step", "", 0, &e), &e);
	h = history(s, NULL, NULL, 10000);
	assert_int_equal(h.n, STORE_EVENTS_LOOSE_MAX + STORE_EVENTS_PER_VM_MAX + 1);
	assert_true(h.last == last + STORE_EVENTS_LOOSE_MAX + 20);
}

/* Another lease like the one that is there, but with these: generation, open, and order, finality, reason. */
#define LIKE_IT(generation, open, rest)                                                                      \
	("INSERT INTO leases (seq, id, vm_id, vm, pool, holder, scope, runner_name, generation,"             \
	 " registration, runner_id, open, bound, opened_wall_us, delivered_wall_us, closed_wall_us,"         \
	 " expires_boot_us, boot_id, job, outcome, closed_order, outcome_final, end_reason)"                 \
	 " SELECT 99, printf('%032x', 1), vm_id, vm, pool, holder, scope, 'r', " generation                  \
	 ", registration, runner_id, " open ", bound, 1, 0, 0, 1, boot_id, job, outcome, " rest              \
	 " FROM leases")

/* The last line of defence: each of these is refused by the file itself. */
static void test_schema(void **state)
{
	static const char *const refused[] = {
		"UPDATE vms SET state = 'HAPPY'",
		"UPDATE vms SET state = 'PLAIN' WHERE name = 'a'", /* in a pool */
		"UPDATE vms SET generation = generation - 1",
		"UPDATE vms SET attempts = -1",
		"UPDATE vms SET slot = 0",
		"UPDATE vms SET slot = 1000 WHERE name = 'a'",
		"UPDATE vms SET name = 'A' WHERE name = 'a'",
		"UPDATE vms SET reason = NULL",
		"UPDATE vms SET generation = 'x'", /* STRICT */
		"DELETE FROM vms WHERE name = 'a'",
		"UPDATE leases SET vm_id = NULL",
		"UPDATE leases SET registration = 'maybe'",
		"UPDATE leases SET registration = 'made'",  /* without a runner id */
		"UPDATE leases SET delivered_wall_us = 1",  /* a second time */
		"UPDATE leases SET open = 0",		    /* without a reason */
		LIKE_IT("generation + 1", "1", "0, 0, ''"), /* a second open one */
		LIKE_IT("generation", "0", "1, 0, 'x'"),    /* a second one in the same life */
		("UPDATE leases SET open = 0, end_reason = 'x', closed_order = 1;"
		 " UPDATE leases SET open = 1"),
		"INSERT INTO meta VALUES (2, '01234567')",
		"UPDATE events SET kind = ''",
	};
	struct store *s = open_store(state);
	(void)bring_to(s, "b", STATE_COLD);
	(void)bring_to(s, "a", STATE_BUSY);
	s = store_free(s);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		char sql[600];
		(void)snprintf(sql, sizeof(sql), "BEGIN; %s", refused[i]);
		if ((raw(store_path(state), sql) & 0xff) != SQLITE_CONSTRAINT)
			fail_msg("not refused: %s", refused[i]);
	}
	/* The two of LIKE_IT fail for what they are meant to: a closed one of another life is taken. */
	assert_int_equal(raw(store_path(state), LIKE_IT("generation + 1", "0", "1, 0, 'x'")), SQLITE_OK);
	s = open_store(state);
	s = store_free(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_folder_setup, test_folder_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_lease),
		TEST(test_lease_released),
		TEST(test_lease_that_got_nothing),
		TEST(test_registration),
		TEST(test_lease_each),
		TEST(test_lease_bound),
		TEST(test_events),
		TEST(test_events_bound),
		TEST(test_schema),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
