#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "linux/memfd.h"
#include "linux/secret.h"
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static int setup(void **state)
{
	struct error e = ERROR_INIT;

	return secret_init(&e);
}

static void test_init(void **state)
{
	struct rlimit l;

	assert_int_equal(getrlimit(RLIMIT_CORE, &l), 0);
	assert_int_equal(l.rlim_cur, 0);
	assert_int_equal(l.rlim_max, 0);
	assert_int_equal(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 0);
}

static void test_new(void **state)
{
	CLEANUP(secret_freep) struct secret *s = NULL;
	struct error e = ERROR_INIT;

	assert_ok(secret_new("canary", 6, &s, &e), &e);
	assert_int_equal(secret_len(s), 6);
	assert_memory_equal(secret_bytes(s), "canary", 6);
	assert_null(secret_free(NULL));
}

static void test_limits(void **state)
{
	CLEANUP(secret_freep) struct secret *s = NULL;
	CLEANUP_FREE char *big = calloc(1, SECRET_MAX + 1);
	struct error e = ERROR_INIT;

	assert_non_null(big);
	assert_fails(secret_new("", 0, &s, &e), EINVAL, &e, "0 bytes");
	assert_fails(secret_new(big, SECRET_MAX + 1, &s, &e), EINVAL, &e, "65537 bytes");
	assert_null(s);
	assert_ok(secret_new(big, SECRET_MAX, &s, &e), &e);
}

/* A stray write must end the process and not change the secret. */
static void test_read_only(void **state)
{
	CLEANUP(secret_freep) struct secret *s = NULL;
	struct error e = ERROR_INIT;
	int status;
	pid_t pid;

	assert_ok(secret_new("canary", 6, &s, &e), &e);
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		*(volatile char *)(uintptr_t)secret_bytes(s) = 'X';
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void test_from_fd(void **state)
{
	CLEANUP(secret_freep) struct secret *s = NULL, *t = NULL;
	CLEANUP_FD int fd = -1, empty = memfd_create("x", MFD_CLOEXEC), null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct error e = ERROR_INIT;

	assert_ok(secret_memfd("x", "token", 5, &fd, &e), &e);
	/* From offset 0, wherever the file stands. */
	assert_int_equal(lseek(fd, 3, SEEK_SET), 3);
	assert_ok(secret_from_fd(fd, &s, &e), &e);
	assert_int_equal(secret_len(s), 5);
	assert_memory_equal(secret_bytes(s), "token", 5);

	assert_fails(secret_from_fd(empty, &t, &e), EINVAL, &e, "0 bytes");
	assert_fails(secret_from_fd(null_fd, &t, &e), EINVAL, &e, "not a regular file");
	assert_fails(secret_from_fd(-1, &t, &e), EBADF, &e, "cannot look at");
	assert_int_equal(ftruncate(empty, SECRET_MAX + 1), 0);
	assert_fails(secret_from_fd(empty, &t, &e), EINVAL, &e, "65537 bytes");
	assert_null(t);
}

static void test_memfd(void **state)
{
	CLEANUP_FD int fd = -1;
	struct error e = ERROR_INIT;
	size_t len = 0;

	assert_fails(secret_memfd("x", "", 0, &fd, &e), EINVAL, &e, "0 bytes");
	assert_int_equal(fd, -1);
	assert_ok(secret_memfd("x", "token", 5, &fd, &e), &e);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_ok(secret_memfd_check(fd, 5, &len, &e), &e);
	assert_int_equal(len, 5);
	assert_fails(secret_memfd_check(fd, 4, &len, &e), EBADMSG, &e, "has 5 bytes, allowed are 1 to 4");
	assert_int_equal(pwrite(fd, "X", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, 10), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
}

/* Each of the four seals is needed; so is being a memfd at all. */
static void test_unsealed(void **state)
{
	static const int seals[] = { F_SEAL_WRITE, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_SEAL };
	const int all = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
	CLEANUP_FD int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	struct error e = ERROR_INIT;
	size_t len = 77;

	for (size_t i = 0; i < ARRAY_SIZE(seals); i++) {
		CLEANUP_FD int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

		assert_int_equal(write(fd, "token", 5), 5);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, all & ~seals[i]), 0);
		assert_fails(secret_memfd_check(fd, 100, &len, &e), EBADMSG, &e, "not a sealed memory file");
	}
	assert_fails(secret_memfd_check(file, 100, &len, &e), EBADMSG, &e, "not a sealed memory file");
	assert_fails(secret_memfd_check(-1, 100, &len, &e), EBADMSG, &e, "not a sealed memory file");
	assert_int_equal(len, 77);
}

static void test_memfd_empty(void **state)
{
	CLEANUP_FD int fd = -1;
	struct error e = ERROR_INIT;
	char byte;

	assert_ok(memfd_sealed_new("x", "", 0, &fd, &e), &e);
	assert_fails(secret_memfd_check(fd, 100, NULL, &e), EBADMSG, &e, "has 0 bytes");
	assert_ok(memfd_sealed_check(fd, 0, 100, NULL, &e), &e);
	assert_fails(memfd_read(fd, &byte, 1, &e), EBADMSG, &e, "ended early");
}

static void test_wipe(void **state)
{
	char text[] = "canary";

	secret_wipe(text, sizeof(text));
	for (size_t i = 0; i < sizeof(text); i++)
		assert_int_equal(text[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_init), cmocka_unit_test(test_new), cmocka_unit_test(test_limits),
		cmocka_unit_test(test_read_only), cmocka_unit_test(test_from_fd), cmocka_unit_test(test_memfd),
		cmocka_unit_test(test_unsealed), cmocka_unit_test(test_memfd_empty), cmocka_unit_test(test_wipe),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
