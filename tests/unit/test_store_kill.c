/*
 * kill -9 at any moment: a child drives VMs through random lives and tells each committed change over a pipe;
 * it is killed, and what the next open finds must be what was told, or one change more (committed, but killed
 * before it could tell). A process that dies leaves the page cache behind, so this says nothing about a power
 * cut; that rests on synchronous=FULL.
 */
#include "tests/unit/store_testing.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define VMS 4
#define ROUNDS 40

struct told {
	uint32_t vm;
	uint32_t state;
	uint64_t generation;
	uint32_t attempts;
	char lease[LEASE_ID_MAX];
};

static uint64_t random_next(uint64_t *x) /* xorshift64* */
{
	*x ^= *x >> 12;
	*x ^= *x << 25;
	*x ^= *x >> 27;
	return *x * 0x2545f4914f6cdd1dull;
}

static void name_of(unsigned vm, char name[8])
{
	(void)snprintf(name, 8, "vm%u", vm);
}

/* The child: never returns by itself. No cmocka in here, its failures would go on in the parent's tests. */
static void live(const char *path, int fd, uint64_t seed)
{
	const struct store_detail d = {.holder = "h", .ttl_ms = 1000, .pool = "default", .reason = "because"};
	struct store *s = NULL;
	struct error e = ERROR_INIT;
	if (store_open(path, &s, &e) < 0) {
		(void)fprintf(stderr, "%s\n", e.text);
		_exit(3);
	}
	for (;;) {
		struct told t = {.vm = (uint32_t)(random_next(&seed) >> 40) % VMS};
		enum vm_happening what = (enum vm_happening)((random_next(&seed) >> 33) % HAPPENING_COUNT);
		struct vm_row row;
		char name[8];
		name_of(t.vm, name);
		int r = store_apply(s, name, 0, what, &d, NULL, &row, &e);
		if (r < 0) {
			(void)fprintf(stderr, "%s: %s\n", happening_to_string(what), e.text);
			_exit(4);
		}
		if (r == 0)
			continue;
		t.state = row.state;
		t.generation = row.generation;
		t.attempts = (uint32_t)row.attempts;
		(void)snprintf(t.lease, sizeof(t.lease), "%s", row.lease);
		if (write(fd, &t, sizeof(t)) != (ssize_t)sizeof(t))
			_exit(5);
	}
}

static int last_id(void *userdata, const struct event_row *v)
{
	*(uint64_t *)userdata = v->id;
	return 0;
}

static uint64_t newest_event(struct store *s)
{
	uint64_t id = 0;
	struct error e = ERROR_INIT;
	assert_int_equal(store_event_each(s, NULL, NULL, 1, last_id, &id, &e), 0);
	return id;
}

static bool same(const struct told *t, const struct vm_row *row)
{
	return t->state == (uint32_t)row->state && t->generation == row->generation &&
	       t->attempts == (uint32_t)row->attempts && strcmp(t->lease, row->lease) == 0;
}

struct open_leases {
	struct store *s;
	unsigned n;
};
static int check_lease(void *userdata, const struct lease_row *l)
{
	struct open_leases *o = userdata;
	struct vm_row row;
	struct error e = ERROR_INIT;
	assert_ok(store_vm_get(o->s, l->vm, &row, &e), &e);
	assert_true(l->generation <= row.generation);
	if (l->open) {
		o->n++;
		assert_string_equal(row.lease, l->id);
		assert_int_equal(l->generation, row.generation);
		assert_true(state_has_lease(row.state) || row.state == STATE_RESETTING || row.state == STATE_KEPT ||
			    row.state == STATE_MAINTENANCE);
	}
	return 0;
}

/* Compares with what was told; the store's own open has checked the rows against each other already. */
static void check_after(struct store *s, const struct told *last, uint64_t told, uint64_t first_event)
{
	unsigned ahead = 0, open = 0;
	struct error e = ERROR_INIT;
	uint64_t committed = newest_event(s) - first_event;

	if (committed != told && committed != told + 1)
		fail_msg("%llu changes were told, %llu are there", (unsigned long long)told,
			(unsigned long long)committed);
	for (unsigned i = 0; i < VMS; i++) {
		struct vm_row row;
		char name[8];
		name_of(i, name);
		assert_ok(store_vm_get(s, name, &row, &e), &e);
		ahead += !same(&last[i], &row);
		open += row.lease[0] != '\0';
		assert_true(!state_has_lease(row.state) || row.lease[0]);
	}
	assert_true(ahead <= committed - told);
	struct open_leases o = {.s = s};
	assert_int_equal(store_lease_each(s, &(struct lease_filter){0}, NULL, check_lease, &o, &e), 0);
	assert_int_equal(o.n, open);
}

static void read_told(int fd, struct told *last, uint64_t *told)
{
	struct told t;
	ssize_t n;
	while ((n = read(fd, &t, sizeof(t))) == (ssize_t)sizeof(t)) {
		last[t.vm] = t;
		(*told)++;
	}
	assert_int_equal(n, 0); /* a pipe write of this size is whole or absent */
}

static void test_kill(void **state)
{
	uint64_t seed = 20261129, all = 0;
	struct store *s = open_store(state);

	for (unsigned i = 0; i < VMS; i++) {
		char name[8];
		name_of(i, name);
		add_vm(s, name);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct told last[VMS] = {0};
		uint64_t told = 0, first = newest_event(s);
		int fds[2], status;
		for (unsigned i = 0; i < VMS; i++) {
			struct vm_row row;
			struct error e = ERROR_INIT;
			char name[8];
			name_of(i, name);
			assert_ok(store_vm_get(s, name, &row, &e), &e);
			last[i] = (struct told){.vm = i,
				.state = row.state,
				.generation = row.generation,
				.attempts = (uint32_t)row.attempts};
			(void)snprintf(last[i].lease, sizeof(last[i].lease), "%s", row.lease);
		}
		s = store_free(s);
		assert_int_equal(pipe(fds), 0);
		uint64_t child_seed = random_next(&seed) | 1;
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			(void)close(fds[0]);
			live(store_path(state), fds[1], child_seed);
		}
		(void)close(fds[1]);
		/* Some are killed in the open itself; the others in the midst of changes, however slow the
		 * disk is. */
		struct pollfd first_word = {.fd = fds[0], .events = POLLIN};
		if (round % 4 != 0)
			assert_int_equal(poll(&first_word, 1, 30000), 1);
		const struct timespec wait = {
			.tv_nsec = (long)(random_next(&seed) % (round % 4 ? 40000000 : 8000000))};
		(void)nanosleep(&wait, NULL);
		assert_int_equal(kill(pid, SIGKILL), 0);
		read_told(fds[0], last, &told);
		(void)close(fds[0]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		s = open_store(state);
		check_after(s, last, told, first);
		all += told;
	}
	s = store_free(s);
	assert_true(all >= ROUNDS / 4 * 3);
}

/* Killed while the file is being made: afterwards there is a whole store or none, and the next open makes
 * one. */
static void test_kill_first_open(void **state)
{
	uint64_t seed = 7;
	unsigned killed = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		int status;
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			struct store *s = NULL;
			struct error e = ERROR_INIT;
			_exit(store_open(store_path(state), &s, &e) < 0);
		}
		const struct timespec wait = {.tv_nsec = (long)(random_next(&seed) % 6000000)};
		(void)nanosleep(&wait, NULL);
		(void)kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		killed += WIFSIGNALED(status);
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
		struct store *s = open_store(state);
		add_vm(s, "a");
		s = store_free(s);
		s = open_store(state);
		s = store_free(s);
		for (const char *const *suffix = (const char *const[]){"", "-wal", ".last-good", NULL};
			*suffix; suffix++)
			(void)unlink(beside(state, *suffix));
	}
	assert_true(killed > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_kill, test_folder_setup, test_folder_teardown),
		cmocka_unit_test_setup_teardown(
			test_kill_first_open, test_folder_setup, test_folder_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
