#include "tests/unit/testing.h"
#include "tests/unit/probe.h"
#include "linux/clock.h"
#include "linux/loop.h"
#include <errno.h>
#include <sys/wait.h>

#define LONG_MS 30000

static int setup(void **state)
{
	return loop_new((sd_event **)state, NULL, NULL, NULL);
}

static int teardown(void **state)
{
	sd_event *ev = *state;

	(void)sd_event_unref(ev);
	return 0;
}

static int count(sd_event_source *source, uint64_t us, void *userdata)
{
	(*(unsigned *)userdata)++;
	return 0;
}

static int finish(sd_event_source *source, uint64_t us, void *userdata)
{
	return sd_event_exit(sd_event_source_get_event(source), 0);
}

static void test_timer(void **state)
{
	sd_event *ev = *state;
	sd_event_source *s = NULL, *end = NULL;
	struct error e = ERROR_INIT;
	unsigned n = 0;
	uint64_t start = clock_boot_us();

	assert_ok(loop_timer(ev, &s, LONG_MS, count, &n, &e), &e);
	/* Re-armed before it fired: only the new time counts, and it fires once. */
	assert_ok(loop_timer(ev, &s, 20, count, &n, &e), &e);
	assert_ok(loop_timer(ev, &end, 80, finish, NULL, &e), &e);
	assert_int_equal(sd_event_loop(ev), 0);
	assert_int_equal(n, 1);
	assert_true(clock_boot_us() - start >= 80000);
	(void)sd_event_source_disable_unref(s);
	(void)sd_event_source_disable_unref(end);
}

struct again {
	sd_event *ev;
	sd_event_source *s;
	unsigned n;
};

static int again(sd_event_source *source, uint64_t us, void *userdata)
{
	struct again *a = userdata;

	if (++a->n == 3)
		return sd_event_exit(a->ev, 0);
	return loop_timer(a->ev, &a->s, 1, again, a, NULL);
}

static void test_timer_from_its_callback(void **state)
{
	struct again a = { .ev = *state };
	struct error e = ERROR_INIT;

	assert_ok(loop_timer(a.ev, &a.s, 1, again, &a, &e), &e);
	assert_int_equal(sd_event_loop(a.ev), 0);
	assert_int_equal(a.n, 3);
	(void)sd_event_source_disable_unref(a.s);
}

static void test_timer_forever(void **state)
{
	sd_event_source *s = NULL;
	struct error e = ERROR_INIT;
	unsigned n = 0;

	/* So far away that it can only mean never; it must not wrap round into now. */
	int r = loop_timer(*state, &s, UINT64_MAX, count, &n, &e);

	assert_true(r == 0 || r == -EOVERFLOW);
	assert_int_equal(sd_event_run(*state, 20000), 0);
	assert_int_equal(n, 0);
	(void)sd_event_source_disable_unref(s);
}

struct ended {
	sd_event *ev;
	unsigned n;
	int status;
	bool timed_out;
};

static void on_end(void *userdata, int status, bool timed_out)
{
	struct ended *x = userdata;

	x->n++;
	x->status = status;
	x->timed_out = timed_out;
	(void)sd_event_exit(x->ev, 0);
}

static struct child start(const char *name)
{
	const char *argv[] = { "probe", name, NULL };
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	struct child c = CHILD_INIT;
	struct error e = ERROR_INIT;

	o.program = probe_self();
	o.argv = argv;
	assert_ok(spawn(&o, &c, &e), &e);
	return c;
}

static void test_child(void **state)
{
	struct ended x = { .ev = *state };
	struct child c = start("status7");
	struct error e = ERROR_INIT;
	unsigned before = test_count_fds();

	assert_ok(loop_child_add(x.ev, &c, LONG_MS, on_end, &x, NULL, &e), &e);
	assert_int_equal(c.pid, -1);
	assert_int_equal(c.pidfd, -1);
	assert_int_equal(sd_event_loop(x.ev), 0);
	assert_int_equal(x.n, 1);
	assert_false(x.timed_out);
	assert_int_equal(WEXITSTATUS(x.status), 7);
	/* The child's pidfd is gone; the loop may have kept a timer fd of its own. */
	assert_true(test_count_fds() <= before);
}

static void test_child_deadline(void **state)
{
	struct ended x = { .ev = *state };
	struct child c = start("sleep");
	struct error e = ERROR_INIT;

	assert_ok(loop_child_add(x.ev, &c, 50, on_end, &x, NULL, &e), &e);
	assert_int_equal(sd_event_loop(x.ev), 0);
	assert_int_equal(x.n, 1);
	assert_true(x.timed_out);
	assert_int_equal(WTERMSIG(x.status), SIGKILL);
}

static void test_child_kill(void **state)
{
	struct ended x = { .ev = *state };
	struct child c = start("sleep");
	struct error e = ERROR_INIT;
	struct loop_child *lc = NULL;
	pid_t pid = c.pid;

	assert_ok(loop_child_add(x.ev, &c, 0, on_end, &x, &lc, &e), &e);
	assert_int_equal(sd_event_run(x.ev, 20000), 0);
	loop_child_kill(lc);
	loop_child_kill(NULL);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(sd_event_run(x.ev, 20000), 0);
	assert_int_equal(x.n, 0);
}

/* Whoever is given a child that cannot be watched still owns it. */
static void test_child_refused(void **state)
{
	struct ended x = { .ev = *state };
	struct child c = CHILD_INIT;
	struct error e = ERROR_INIT;
	struct loop_child *lc = NULL;

	c.pidfd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_fails(loop_child_add(x.ev, &c, 10, on_end, &x, &lc, &e), EPERM, &e, "cannot watch a child");
	assert_null(lc);
	assert_true(c.pidfd >= 0);
	child_kill(&c);
}

struct stopped {
	sd_event *ev;
	unsigned n;
};

static void on_stop(void *userdata)
{
	struct stopped *x = userdata;

	x->n++;
}

static void test_stop(void **state)
{
	struct stopped x = { 0 };
	sd_event_source *end = NULL;
	struct error e = ERROR_INIT;

	assert_ok(loop_new(&x.ev, on_stop, &x, &e), &e);
	(void)kill(getpid(), SIGTERM);
	assert_true(sd_event_run(x.ev, 100000) > 0);
	assert_int_equal(x.n, 1);
	assert_int_equal(sd_event_get_state(x.ev), SD_EVENT_INITIAL);
	(void)kill(getpid(), SIGINT);
	assert_ok(loop_timer(x.ev, &end, LONG_MS, finish, NULL, &e), &e);
	assert_int_equal(sd_event_loop(x.ev), EXIT_STATUS_INTERRUPTED);
	assert_int_equal(x.n, 1);
	(void)sd_event_source_disable_unref(end);
	(void)sd_event_unref(x.ev);
}

int main(int argc, char *argv[])
{
#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH_LOOP(test_timer), WITH_LOOP(test_timer_from_its_callback), WITH_LOOP(test_timer_forever),
		WITH_LOOP(test_child), WITH_LOOP(test_child_deadline), WITH_LOOP(test_child_kill),
		WITH_LOOP(test_child_refused), cmocka_unit_test(test_stop),
	};

	if (argc == 2)
		return probe_run(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
