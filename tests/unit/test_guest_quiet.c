/* A guest that is to be captured: when it is at rest, and that waiting for it ends. */
#include "guest/quiet.h"
#include "testing.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_MS 60000 /* never waited for */
#define SHORT_MS 60
#define STAT(pid, comm, parent, user) pid " (" comm ") S " parent " 1 1 0 -1 4194560 1 2 3 4 " user " 5 0 0 20 0 1 0 9\n"
#define LISTING_SIZE 64

static const struct quiet_times times = {.interval_ms = 2, .looks = 4};
static char proc[] = "/tmp/boxery-quiet-XXXXXX";

static void put(const char *pid, const char *text)
{
	char path[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", proc, pid);
	(void)mkdir(path, 0700);
	(void)snprintf(path, sizeof(path), "%s/%s/stat", proc, pid);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void take_away(const char *pid)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s/stat", proc, pid);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/%s", proc, pid);
	(void)rmdir(path);
}

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(proc))
		return -1;
	put("1", STAT("1", "systemd", "0", "70"));
	put("300", STAT("300", "a (b) c", "1", "7"));
	put("self", "no number");
	put("301", "no such thing");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	take_away("1");
	take_away("300");
	take_away("301");
	take_away("self");
	return rmdir(proc);
}

static bool waits(uint64_t ms)
{
	struct error e = ERROR_INIT;
	bool quiet = false;

	assert_int_equal(quiet_wait(proc, &times, quiet_now_ms() + ms, &quiet, &e), 0);
	return quiet;
}

static void test_at_rest(void **state)
{
	(void)state;
	assert_true(waits(LONG_MS));
	assert_false(waits(0)); /* nobody has looked */
}

/* Another process does to the folder what `change` says, without end. */
static pid_t changing(void (*change)(unsigned i))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		for (unsigned i = 0;; i++)
			change(i);
	return pid;
}

static void use_cpu(unsigned i)
{
	char text[128];

	(void)snprintf(text, sizeof(text), STAT("300", "a (b) c", "1", "%u"), i);
	put("300", text);
}

static void use_cpu_in_kernel(unsigned i)
{
	char text[128];

	(void)snprintf(text, sizeof(text), STAT("302", "kworker/0:1", "2", "%u"), i);
	put("302", text);
}

static void end(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_not_at_rest(void **state)
{
	const uint64_t until = quiet_now_ms() + SHORT_MS;
	struct error e = ERROR_INIT;
	bool quiet = true;
	pid_t pid;

	(void)state;
	pid = changing(use_cpu);
	assert_int_equal(quiet_wait(proc, &(struct quiet_times){2, 1000}, until, &quiet, &e), 0);
	end(pid);
	assert_false(quiet);
	assert_true(quiet_now_ms() >= until);
	put("300", STAT("300", "a (b) c", "1", "7"));
	put("302", STAT("302", "kworker/0:1", "2", "0"));
	pid = changing(use_cpu_in_kernel);
	assert_true(waits(LONG_MS));
	end(pid);
	take_away("302");
}

static void test_no_such_folder(void **state)
{
	struct error e = ERROR_INIT;
	bool quiet;

	(void)state;
	assert_int_equal(quiet_wait("/nowhere/at/all", &times, quiet_now_ms() + LONG_MS, &quiet, &e), -ENOENT);
}

static unsigned taken, settles_at, fails_at;

static int take(struct buf *ret, struct error *e)
{
	taken++;
	if (taken == fails_at)
		return error_set(e, EIO, "cannot look");
	return buf_addf(ret, "process %u\n", taken < settles_at ? taken : settles_at);
}

static int lists(unsigned settles, unsigned fails, uint64_t ms, struct buf *ret)
{
	struct error e = ERROR_INIT;

	taken = 0;
	settles_at = settles;
	fails_at = fails;
	return quiet_listing(take, LISTING_SIZE, &times, quiet_now_ms() + ms, ret, &e);
}

static void test_listing(void **state)
{
	CLEANUP_BUF struct buf first = BUF_INIT(LISTING_SIZE), later = BUF_INIT(LISTING_SIZE), none = BUF_INIT(LISTING_SIZE);

	(void)state;
	/* The time is over, but it is the same twice. */
	assert_int_equal(lists(1, 0, 0, &first), 0);
	assert_string_equal(first.data, "process 1\n");
	assert_int_equal(taken, 2);
	assert_int_equal(lists(5, 0, LONG_MS, &later), 0);
	assert_string_equal(later.data, "process 5\n");
	assert_int_equal(taken, 6);
	assert_int_equal(lists(UINT32_MAX, 0, SHORT_MS, &none), -EBUSY);
	assert_null(none.data);
	assert_int_equal(lists(UINT32_MAX, 1, LONG_MS, &none), -EIO);
	assert_int_equal(lists(UINT32_MAX, 3, LONG_MS, &none), -EIO);
	assert_null(none.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_at_rest),
		cmocka_unit_test(test_not_at_rest),
		cmocka_unit_test(test_no_such_folder),
		cmocka_unit_test(test_listing),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
