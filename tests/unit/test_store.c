/* The store: VMs and their transitions. See also test_store_*.c. */
#include "tests/unit/store_testing.h"

static int count_vms(void *userdata, const struct vm_row *v)
{
	(*(unsigned *)userdata)++;
	return 0;
}

static void test_vms(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row v = {.name = "b",
			      .image = "debian",
			      .cpus = 4,
			      .memory_mib = 1024,
			      .disk_gib = 9,
			      .generation = 7},
		      row;

	assert_ok(store_vm_insert(s, &v, &e), &e);
	assert_ok(store_vm_get(s, "b", &row, &e), &e);
	assert_string_equal(row.name, "b");
	assert_string_equal(row.image, "debian");
	assert_string_equal(row.pool, "");
	assert_string_equal(row.lease, "");
	assert_int_equal(row.state, STATE_PLAIN);
	assert_int_equal(row.slot, 0);
	assert_int_equal(row.cpus, 4);
	assert_int_equal(row.memory_mib, 1024);
	assert_int_equal(row.disk_gib, 9);
	assert_int_equal(row.generation, 7);
	assert_true(row.since_boot_us > 0 && row.since_wall_us > 1000000000000000ull);
	assert_int_equal(strlen(row.since_boot_id), 36);

	assert_fails(store_vm_insert(s, &v, &e), EEXIST, &e, "VM b already");
	assert_fails(store_vm_get(s, "c", &row, &e), ENOENT, &e, "no VM c");
	assert_fails(store_vm_delete(s, "c", &e), ENOENT, &e, "no VM c");
	(void)snprintf(v.name, sizeof(v.name), "../etc");
	assert_int_equal(store_vm_insert(s, &v, &e), -EINVAL);
	(void)snprintf(v.name, sizeof(v.name), "x");
	v.state = STATE_READY;
	assert_fails(store_vm_insert(s, &v, &e), EINVAL, &e, "PLAIN and in no pool, or RESETTING and in one");
	v.state = STATE_RESETTING;
	assert_fails(store_vm_insert(s, &v, &e), EINVAL, &e, "PLAIN");
	(void)snprintf(v.pool, sizeof(v.pool), "default");
	assert_ok(store_vm_insert(s, &v, &e), &e);
	assert_int_equal(go(s, "x", HAPPENING_RESET_DONE).state, STATE_COLD);

	/* Slots: the lowest free one. */
	add_vm(s, "a");
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_int_equal(row.slot, 2);
	assert_ok(store_vm_delete(s, "b", &e), &e);
	add_vm(s, "d");
	assert_ok(store_vm_get(s, "d", &row, &e), &e);
	assert_int_equal(row.slot, 0);
	unsigned n = 0;
	assert_int_equal(store_vm_each(s, count_vms, &n, &e), 0);
	assert_int_equal(n, 3);
}

struct names {
	struct store *s;
	char text[200];
	int stop_at, seen;
};
static int note_name(void *userdata, const struct vm_row *v)
{
	struct names *n = userdata;
	struct error e = ERROR_INIT;
	struct vm_row row;
	size_t len = strlen(n->text);
	(void)snprintf(n->text + len, sizeof(n->text) - len, "%s", v->name);
	/* The callback may use the store, even to remove what is still to come. */
	assert_int_equal(store_vm_get(n->s, v->name, &row, &e), n->seen == 2 ? -ENOENT : 0);
	if (n->seen == 0)
		assert_ok(store_vm_delete(n->s, "c", &e), &e);
	return ++n->seen == n->stop_at ? 77 : 0;
}

static void test_vm_each(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct names n = {.s = s};

	assert_int_equal(store_vm_each(s, note_name, &n, &e), 0);
	add_vm(s, "c");
	add_vm(s, "a");
	add_vm(s, "b");
	assert_int_equal(store_vm_each(s, note_name, &n, &e), 0);
	assert_string_equal(n.text, "abc");
	add_vm(s, "c");
	n = (struct names){.s = s, .stop_at = 2};
	assert_int_equal(store_vm_each(s, note_name, &n, &e), 77);
	assert_string_equal(n.text, "ab");
}

static void test_vms_limit(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row v = {.name = "one-more"};
	char name[16];
	unsigned n = 0;

	for (unsigned i = 0; i < STORE_VMS_MAX; i++) {
		(void)snprintf(name, sizeof(name), "vm%u", i);
		add_vm(s, name);
	}
	assert_fails(store_vm_insert(s, &v, &e), ENOSPC, &e, "240 VMs");
	assert_int_equal(store_vm_each(s, count_vms, &n, &e), 0);
	assert_int_equal(n, STORE_VMS_MAX);
}

static void test_life(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	char long_key[600];
	struct vm_row row = bring_to(s, "a", STATE_COLD);

	assert_int_equal(row.generation, 0);
	assert_fails(store_vm_set_life(s, "a", 0, "key", "1.2.3.4", &e), ESTALE, &e, "COLD");
	assert_fails(store_vm_set_life(s, "z", 0, "key", "1.2.3.4", &e), ENOENT, &e, "no VM z");
	assert_int_equal(go(s, "a", HAPPENING_START).generation, 1);
	assert_fails(store_vm_set_life(s, "a", 2, "key", "1.2.3.4", &e), ESTALE, &e, "not starting life 2");
	memset(long_key, 'k', sizeof(long_key) - 1);
	long_key[sizeof(long_key) - 1] = '\0';
	assert_fails(store_vm_set_life(s, "a", 1, long_key, "1.2.3.4", &e), ENAMETOOLONG, &e, "longer");
	assert_ok(store_vm_set_life(s, "a", 1, "ssh-ed25519 AAAA", "192.168.130.10", &e), &e);
	row = go(s, "a", HAPPENING_STARTED);
	assert_string_equal(row.host_key, "ssh-ed25519 AAAA");
	assert_string_equal(row.address, "192.168.130.10");
	assert_int_equal(store_vm_set_life(s, "a", 1, "other", "", &e), -ESTALE);
	(void)go(s, "a", HAPPENING_DOUBT);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	row = go(s, "a", HAPPENING_START);
	assert_int_equal(row.generation, 2);
	assert_string_equal(row.host_key, ""); /* of the life before */
	assert_string_equal(row.address, "");

	add_vm(s, "plain");
	assert_int_equal(go(s, "plain", HAPPENING_START).generation, 1);
	assert_ok(store_vm_set_life(s, "plain", 1, "k", "a", &e), &e);
}

static void test_raise_generation(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row;

	(void)bring_to(s, "a", STATE_READY);
	assert_ok(store_vm_raise_generation(s, "a", 41, &e), &e);
	assert_ok(store_vm_raise_generation(s, "a", 5, &e), &e);
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_int_equal(row.generation, 41);
	assert_fails(store_vm_raise_generation(s, "z", 5, &e), ENOENT, &e, "no VM z");
	(void)go(s, "a", HAPPENING_LEASE);
	assert_fails(store_vm_raise_generation(s, "a", 50, &e), EBUSY, &e, "open lease");
	(void)go(s, "a", HAPPENING_DOUBT);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	assert_int_equal(go(s, "a", HAPPENING_START).generation, 42);
}

/* Every pair once more, now with rows and leases: the store does what the table says, and nothing else. */
static void test_apply_every_pair(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	const struct store_detail d = {.holder = "me", .ttl_ms = 1000, .pool = "other"};
	struct error e = ERROR_INIT;

	for (unsigned from = 0; from < STATE_COUNT; from++)
		for (unsigned what = 0; what < HAPPENING_COUNT; what++) {
			struct state_change c = {0}, expected = {0};
			struct vm_row before = bring_to(s, "a", (enum vm_state)from), after;
			bool edge = state_next(
				(enum vm_state)from, (enum vm_happening)what, before.attempts, &expected);
			assert_int_equal(store_apply(s, "a", before.generation + 1, (enum vm_happening)what,
						 &d, &c, &after, &e),
				0);
			assert_int_equal(store_apply(s, "a", before.generation, (enum vm_happening)what, &d,
						 &c, &after, &e),
				edge);
			if (edge) {
				assert_int_equal(c.to, expected.to);
				assert_int_equal(c.effect, expected.effect);
				assert_int_equal(after.state, expected.to);
				assert_int_equal(after.attempts, expected.attempts);
				assert_int_equal(
					after.generation, before.generation + expected.new_generation);
			}
			assert_ok(store_vm_get(s, "a", edge ? &before : &after, &e), &e);
			assert_memory_equal(&before, &after, sizeof(after));
			if (after.lease[0] && after.state != STATE_RESETTING)
				(void)go(s, "a", HAPPENING_DOUBT);
			if (after.lease[0])
				(void)go(s, "a", HAPPENING_RESET_DONE);
			assert_ok(store_vm_delete(s, "a", &e), &e);
		}
}

static void test_apply_reasons(void **state)
{
	CLEANUP(store_freep) struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row row = bring_to(s, "a", STATE_STARTING);
	char long_text[2000];

	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	long_text[3] = '\n';
	struct store_detail d = {.step = "agent", .reason = "no answer in 180 s"};
	assert_int_equal(store_apply(s, "a", 0, HAPPENING_START_FAILED, &d, NULL, &row, &e), 1);
	assert_string_equal(row.step, "agent");
	assert_string_equal(row.reason, "no answer in 180 s");
	assert_int_equal(row.attempts, 1);
	row = go(s, "a", HAPPENING_RESET_DONE); /* carries a step and a reason, and is no failure */
	assert_string_equal(row.reason, "no answer in 180 s");
	(void)go(s, "a", HAPPENING_START);
	assert_int_equal(store_apply(s, "a", 0, HAPPENING_STOPPED, NULL, NULL, &row, &e), 1);
	assert_string_equal(row.step, "");
	assert_string_equal(row.reason, "STOPPED");
	assert_int_equal(row.attempts, 2);
	/* A long or strange text never stops a transition. */
	d = (struct store_detail){.step = long_text, .reason = long_text};
	assert_int_equal(store_apply(s, "a", 0, HAPPENING_RESET_FAILED, &d, NULL, &row, &e), 1);
	assert_int_equal(row.state, STATE_BROKEN);
	assert_int_equal(strlen(row.step), STEP_MAX - 1);
	assert_int_equal(strlen(row.reason), REASON_MAX - 1);
	assert_memory_equal(row.reason, "xxx\\x0ax", 8);
	(void)go(s, "a", HAPPENING_REPAIR);
	(void)go(s, "a", HAPPENING_RESET_DONE);
	row = go(s, "a", HAPPENING_START);
	assert_int_equal(strlen(row.step), STEP_MAX - 1); /* shown until it is ready again */
	row = go(s, "a", HAPPENING_STARTED);
	assert_string_equal(row.step, "");
	assert_string_equal(row.reason, "");

	assert_fails(store_apply(s, "z", 0, HAPPENING_START, NULL, NULL, NULL, &e), ENOENT, &e, "no VM z");
	add_vm(s, "b");
	d = (struct store_detail){.pool = "Not A Name"};
	assert_int_equal(store_apply(s, "b", 0, HAPPENING_ADD, &d, NULL, NULL, &e), -EINVAL);
	assert_int_equal(store_apply(s, "b", 0, HAPPENING_ADD, NULL, NULL, NULL, &e), -EINVAL);
	assert_ok(store_vm_get(s, "b", &row, &e), &e);
	assert_int_equal(row.state, STATE_PLAIN);
	row = go(s, "b", HAPPENING_ADD);
	assert_string_equal(row.pool, "default");
	row = go(s, "b", HAPPENING_MAINTAIN_FAILED);
	assert_string_equal(row.pool, "");
	assert_string_equal(row.reason, "reason");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_folder_setup, test_folder_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_vms),
		TEST(test_vm_each),
		TEST(test_vms_limit),
		TEST(test_life),
		TEST(test_raise_generation),
		TEST(test_apply_every_pair),
		TEST(test_apply_reasons),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
