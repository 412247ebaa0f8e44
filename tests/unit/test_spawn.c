#include "tests/unit/testing.h"
#include "tests/unit/probe.h"
#include "linux/clock.h"
#include "linux/program.h"
#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define LONG_MS 30000

/* Options for a probe; argv lives as long as the test needs it. */
static struct spawn_options probe(const char *name)
{
	static const char *argv[3];
	struct spawn_options o = SPAWN_OPTIONS_INIT;

	argv[0] = "probe";
	argv[1] = name;
	argv[2] = NULL;
	o.program = probe_self();
	o.argv = argv;
	return o;
}

static int run(const struct spawn_options *o)
{
	struct child c = CHILD_INIT;
	struct error e = ERROR_INIT;
	int status = -1;

	assert_ok(spawn(o, &c, &e), &e);
	assert_true(c.pid > 0 && c.pidfd >= 0);
	assert_true(fcntl(c.pidfd, F_GETFD) & FD_CLOEXEC);
	assert_ok(spawn_wait(&c, LONG_MS, &status, &e), &e);
	assert_int_equal(c.pid, -1);
	assert_int_equal(c.pidfd, -1);
	return status;
}

static void assert_output(const struct spawn_options *o, const char *text)
{
	CLEANUP_FREE char *out = NULL;
	struct error e = ERROR_INIT;

	assert_ok(spawn_capture(o, LONG_MS, 4096, &out, &e), &e);
	assert_string_equal(out, text);
}

static void test_status(void **state)
{
	struct spawn_options o = probe("status7");
	unsigned before = test_count_fds();
	int status = run(&o);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
	o = probe("abort");
	status = run(&o);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
	assert_int_equal(test_count_fds(), before);
}

static void test_missing(void **state)
{
	struct spawn_options o = probe("x");
	struct child c = CHILD_INIT;
	struct error e = ERROR_INIT;
	unsigned before = test_count_fds();

	o.program = "/nonexistent/program";
	assert_fails(spawn(&o, &c, &e), ENOENT, &e, "/nonexistent/program cannot be run: No such file");
	o.program = "/etc/passwd";
	assert_fails(spawn(&o, &c, &e), EACCES, &e, "/etc/passwd cannot be run: Permission denied");
	o.program = "relative";
	assert_fails(spawn(&o, &c, &e), EINVAL, &e, "must be absolute");
	o.search_path = true;
	o.program = "no-such-program-anywhere";
	assert_fails(spawn(&o, &c, &e), ENOENT, &e, "was not found; install it");
	assert_int_equal(c.pid, -1);
	assert_int_equal(test_count_fds(), before);
	/* No zombie either. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void test_fds(void **state)
{
	struct spawn_options o = probe("fds");
	/* Neither CLOEXEC nor listed: it must not reach the child all the same. */
	CLEANUP_FD int stray = dup(2), far_stray = fcntl(2, F_DUPFD, 200);
	int fds[SPAWN_FDS_MAX];

	assert_true(stray >= 0 && far_stray >= 200);
	assert_output(&o, "0 1 2 ");
	for (size_t i = 0; i < SPAWN_FDS_MAX; i++)
		fds[i] = stray;
	o.fds = fds;
	o.n_fds = 2;
	assert_output(&o, "0 1 2 3 4 ");
	o.n_fds = SPAWN_FDS_MAX;
	assert_output(&o, "0 1 2 3 4 5 6 7 8 9 10 ");
}

/* The order of the list counts, also where source and target numbers overlap. */
static void test_fds_order(void **state)
{
	struct spawn_options o = probe("inodes");
	CLEANUP_FD int a = open("/", O_PATH | O_CLOEXEC), b = open("/etc", O_PATH | O_CLOEXEC),
			c = open("/proc", O_PATH | O_CLOEXEC);
	int fds[] = { c, a, b, a };
	unsigned long long inode[3];
	char text[200];
	struct stat st;

	assert_int_equal(fstat(a, &st), 0);
	inode[0] = st.st_ino;
	assert_int_equal(fstat(b, &st), 0);
	inode[1] = st.st_ino;
	assert_int_equal(fstat(c, &st), 0);
	inode[2] = st.st_ino;
	(void)snprintf(text, sizeof(text), "%llu %llu %llu %llu ", inode[2], inode[0], inode[1], inode[0]);
	o.fds = fds;
	o.n_fds = 4;
	assert_output(&o, text);
}

static void test_stdio(void **state)
{
	struct spawn_options o = probe("cat");
	CLEANUP_FREE char *out = NULL;
	struct error e = ERROR_INIT;
	int in[2], saved[3], r;

	/* /dev/null by default: the end at once. */
	assert_output(&o, "");
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(write(in[1], "through\n", 8), 8);
	(void)close(in[1]);
	o.stdin_fd = in[0];
	assert_output(&o, "through\n");
	(void)close(in[0]);

	/* Even a parent with nothing on 0 to 2 starts a child without holes there. */
	for (int i = 0; i < 3; i++) {
		saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
		(void)close(i);
	}
	o = probe("fds");
	r = spawn_capture(&o, LONG_MS, 4096, &out, &e);
	for (int i = 0; i < 3; i++) {
		(void)dup2(saved[i], i);
		(void)close(saved[i]);
	}
	assert_ok(r, &e);
	assert_string_equal(out, "0 1 2 ");
}

static void test_signals(void **state)
{
	struct spawn_options o = probe("signals");
	CLEANUP_FREE char *out = NULL;
	struct error e = ERROR_INIT;
	sigset_t set, old;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGUSR1);
	(void)sigprocmask(SIG_BLOCK, &set, &old);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	assert_ok(spawn_capture(&o, LONG_MS, 4096, &out, &e), &e);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	assert_non_null(strstr(out, "SigBlk:\t0000000000000000\n"));
	assert_non_null(strstr(out, "SigIgn:\t0000000000000000\n"));
	/* And the mask of the parent is what it was. */
	(void)sigprocmask(SIG_SETMASK, &old, &set);
	assert_true(sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGUSR1) == 1);
	assert_int_equal(sigismember(&set, SIGINT), 0);
}

static void test_environment(void **state)
{
	static const char *const own[] = { "ONLY=this", NULL };
	struct spawn_options o = probe("env");
	CLEANUP_FREE char *out = NULL;
	struct error e = ERROR_INIT;

	(void)setenv("BOXERY_TEST_VALUE", "7", 1);
	(void)setenv("XDG_TEST_VALUE", "8", 1);
	(void)setenv("GITHUB_TOKEN", "canary", 1);
	(void)setenv("LANG", "xx_XX", 1);
	assert_ok(spawn_capture(&o, LONG_MS, 65536, &out, &e), &e);
	assert_non_null(strstr(out, "BOXERY_TEST_VALUE=7\n"));
	assert_non_null(strstr(out, "XDG_TEST_VALUE=8\n"));
	assert_non_null(strstr(out, "LANG=C.UTF-8\n"));
	assert_non_null(strstr(out, "PATH="));
	assert_null(strstr(out, "canary"));
	assert_null(strstr(out, "xx_XX"));
	o.env = own;
	assert_output(&o, "ONLY=this\n");
}

static void test_deadline(void **state)
{
	struct spawn_options o = probe("sleep");
	struct child c = CHILD_INIT;
	struct error e = ERROR_INIT;
	uint64_t start = clock_boot_us();
	int status = 0;
	pid_t pid;

	assert_ok(spawn(&o, &c, &e), &e);
	pid = c.pid;
	assert_fails(spawn_wait(&c, 100, &status, &e), ETIMEDOUT, &e, "after 100 ms and was killed");
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(clock_boot_us() - start < 20000000);
	assert_int_equal(c.pid, -1);
	assert_int_equal(kill(pid, 0), -1);
	assert_fails(spawn_capture(&o, 100, 10, NULL, &e), ETIMEDOUT, &e, "had not ended after 100 ms");
	child_kill(&c);
	assert_ok(spawn(&o, &c, &e), &e);
	pid = c.pid;
	child_kill(&c);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(c.pidfd, -1);
}

/* The parent of the sleeper is killed; the sleeper must follow although nobody told it to. */
static void test_death_signal(void **state)
{
	struct spawn_options o = probe("parent");
	struct child c = CHILD_INIT;
	struct error e = ERROR_INIT;
	char text[32] = "";
	int out[2], status, sleeper;

	/* So that the orphan becomes ours and its end can be seen. */
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	o.stdout_fd = out[1];
	assert_ok(spawn(&o, &c, &e), &e);
	assert_true(read(out[0], text, sizeof(text) - 1) > 0);
	(void)close(out[0]);
	(void)close(out[1]);
	assert_int_equal(sscanf(text, "%d", &sleeper), 1);
	assert_ok(spawn_wait(&c, LONG_MS, &status, &e), &e);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(waitpid(sleeper, &status, 0), sleeper);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
}

static void test_detach(void **state)
{
	struct spawn_options o = probe("session");
	int status;

	status = run(&o);
	assert_int_equal(WEXITSTATUS(status), 1);
	o.detach = true;
	status = run(&o);
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_capture(void **state)
{
	struct spawn_options o = probe("complain");
	CLEANUP_FREE char *out = NULL;
	struct error e = ERROR_INIT;
	unsigned before = test_count_fds();
	uint64_t start;

	assert_fails(spawn_capture(&o, LONG_MS, 100, &out, &e), EIO, &e,
			"failed with status 3: the \\x1b[31mlast line");
	o = probe("abort");
	assert_fails(spawn_capture(&o, LONG_MS, 100, &out, &e), EIO, &e, "was ended by signal 15");
	o = probe("flood");
	assert_fails(spawn_capture(&o, LONG_MS, 100000, &out, &e), E2BIG, &e, "more than the 100000 bytes");
	assert_null(out);
	/* Who keeps the pipes open does not matter, only the child does. */
	start = clock_boot_us();
	o = probe("orphan");
	assert_ok(spawn_capture(&o, LONG_MS, 100, &out, &e), &e);
	assert_string_equal(out, "before");
	assert_true(clock_boot_us() - start < 15000000);
	assert_int_equal(test_count_fds(), before);
}

static void test_program_path(void **state)
{
	char path[PATH_MAX], small[4] = "old";
	const char *self = probe_self(), *name = strrchr(self, '/') + 1;
	struct error e = ERROR_INIT;

	assert_ok(program_path(name, path, sizeof(path), &e), &e);
	assert_string_equal(path, self);
	assert_fails(program_path(name, small, sizeof(small), &e), ENAMETOOLONG, &e, "too long");
	assert_string_equal(small, "old");
	assert_fails(program_path("../x", path, sizeof(path), &e), EINVAL, &e, "is not the name of a program");
	assert_fails(program_path("", path, sizeof(path), &e), EINVAL, &e, "is not the name of a program");
	assert_fails(program_path("boxery-nonexistent", path, sizeof(path), &e), ENOENT, &e, "is missing; it should be in");
	assert_ok(program_search("sh", path, sizeof(path), &e), &e);
	assert_int_equal(path[0], '/');
	(void)setenv("PATH", "relative:.::/nonexistent", 1);
	assert_fails(program_search("sh", path, sizeof(path), &e), ENOENT, &e, "was not found");
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status), cmocka_unit_test(test_missing), cmocka_unit_test(test_fds),
		cmocka_unit_test(test_fds_order), cmocka_unit_test(test_stdio), cmocka_unit_test(test_signals),
		cmocka_unit_test(test_environment), cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_death_signal), cmocka_unit_test(test_detach), cmocka_unit_test(test_capture),
		cmocka_unit_test(test_program_path),
	};

	if (argc == 2)
		return probe_run(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
