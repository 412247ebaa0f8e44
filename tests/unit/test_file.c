#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "linux/file.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#define NOBODY 65534

/* Root may write everywhere, so the tests of refusals become somebody else for a moment. */
static void become_nobody(void)
{
	if (geteuid() == 0)
		assert_int_equal(seteuid(NOBODY), 0);
}

static void become_root(void)
{
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
}

static void assert_content(int dirfd, const char *name, const char *text)
{
	CLEANUP_FREE char *data = NULL;
	struct error e = ERROR_INIT;
	size_t len;

	assert_ok(file_read(dirfd, name, 1000, &data, &len, &e), &e);
	assert_string_equal(data, text);
	assert_int_equal(len, strlen(text));
}

static void test_write(void **state)
{
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	unsigned fds = test_count_fds();
	char path[100];
	struct stat st;
	mode_t mask = umask(077);

	assert_ok(file_write_atomic(f->fd, "a", "one", 3, 0640, &e), &e);
	(void)umask(mask);
	assert_content(f->fd, "a", "one");
	assert_int_equal(fstatat(f->fd, "a", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_ok(file_write_atomic(f->fd, "a", "", 0, 0600, &e), &e);
	assert_content(f->fd, "a", "");
	(void)snprintf(path, sizeof(path), "%s/a", f->path);
	assert_ok(file_write_atomic(AT_FDCWD, path, "two", 3, 0600, &e), &e);
	assert_content(f->fd, "a", "two");
	assert_ok(file_write_unsynced(f->fd, "a", "three", 5, 0640, &e), &e);
	assert_content(f->fd, "a", "three");
	assert_int_equal(fstatat(f->fd, "a", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(test_count_entries(f->path), 1);
	assert_int_equal(test_count_fds(), fds);
}

/* Every failure leaves the old content, and nothing beside it. */
static void test_write_fails(void **state)
{
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	char name[300];

	assert_ok(file_write_atomic(f->fd, "a", "old", 3, 0644, &e), &e);
	assert_int_equal(mkdirat(f->fd, "d", 0755), 0);
	assert_int_equal(mkdirat(f->fd, "d/x", 0755), 0);

	assert_fails(file_write_atomic(f->fd, "d", "new", 3, 0600, &e), EISDIR, &e, "cannot write d");
	assert_fails(file_write_atomic(f->fd, "missing/a", "new", 3, 0600, &e), ENOENT, &e, "folder of missing/a");
	assert_fails(file_write_atomic(f->fd, "a/b", "new", 3, 0600, &e), ENOTDIR, &e, "folder of a/b");
	assert_fails(file_write_atomic(f->fd, "d/", "new", 3, 0600, &e), EINVAL, &e, "does not name a file");
	assert_fails(file_write_atomic(f->fd, "..", "new", 3, 0600, &e), EINVAL, &e, "does not name a file");
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	assert_fails(file_write_atomic(f->fd, name, "new", 3, 0600, &e), ENAMETOOLONG, &e, "cannot create");

	assert_int_equal(fchmod(f->fd, 0555), 0);
	become_nobody();
	assert_fails(file_write_atomic(f->fd, "a", "new", 3, 0600, &e), EACCES, &e, "cannot create a new file beside a");
	become_root();
	assert_int_equal(fchmod(f->fd, 0755), 0);

	assert_content(f->fd, "a", "old");
	assert_int_equal(test_count_entries(f->path), 2);
}

/* A file size limit stands in for a full disk: the write fails half-way. */
static void test_write_half(void **state)
{
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	static char big[1 << 16];
	struct rlimit before, small;
	int r;

	assert_ok(file_write_atomic(f->fd, "a", "old", 3, 0644, &e), &e);
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 4096;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	r = file_write_atomic(f->fd, "a", big, sizeof(big), 0600, &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	(void)signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(r, -EFBIG);
	assert_content(f->fd, "a", "old");
	assert_int_equal(test_count_entries(f->path), 1);
}

static void test_read(void **state)
{
	struct test_folder *f = *state;
	CLEANUP_FREE char *data = NULL;
	struct error e = ERROR_INIT;
	unsigned fds = test_count_fds();
	size_t len = 77;

	assert_fails(file_read(f->fd, "missing", 10, &data, &len, &e), ENOENT, &e, "cannot open missing");
	assert_ok(file_write_atomic(f->fd, "a", "0123456789", 10, 0600, &e), &e);
	assert_fails(file_read(f->fd, "a", 9, &data, &len, &e), EFBIG, &e, "a is larger than 9 bytes");
	assert_fails(file_read(f->fd, ".", 9, &data, &len, &e), EISDIR, &e, "is not a regular file");
	assert_int_equal(mkfifoat(f->fd, "fifo", 0600), 0);
	assert_fails(file_read(f->fd, "fifo", 9, &data, &len, &e), EBADMSG, &e, "is not a regular file");
	assert_null(data);
	assert_int_equal(len, 77);
	assert_ok(file_read(f->fd, "a", 10, &data, &len, &e), &e);
	assert_int_equal(len, 10);
	assert_string_equal(data, "0123456789");
	assert_int_equal(test_count_fds(), fds);
}

/* Files of /proc say that they have no bytes, and have many. */
static void test_read_unknown_size(void **state)
{
	CLEANUP_FREE char *data = NULL;
	struct error e = ERROR_INIT;
	size_t len;

	assert_ok(file_read(AT_FDCWD, "/proc/self/status", 65536, &data, &len, &e), &e);
	assert_true(len > 100 && strlen(data) == len);
	assert_fails(file_read(AT_FDCWD, "/proc/self/status", 50, &data, &len, &e), EFBIG, &e, "larger than 50");
}

static void test_read_private(void **state)
{
	struct test_folder *f = *state;
	CLEANUP_FREE char *data = NULL;
	struct error e = ERROR_INIT;

	assert_ok(file_write_atomic(f->fd, "env", "x", 1, 0640, &e), &e);
	assert_fails(file_read_private(f->fd, "env", 10, &data, NULL, &e), EACCES, &e,
			"env has mode 0640, so others can reach it; run: chmod 600 env");
	assert_int_equal(fchmodat(f->fd, "env", 0604, 0), 0);
	assert_fails(file_read_private(f->fd, "env", 10, &data, NULL, &e), EACCES, &e, "0604");
	assert_int_equal(fchmodat(f->fd, "env", 0400, 0), 0);
	assert_ok(file_read_private(f->fd, "env", 10, &data, NULL, &e), &e);
	assert_string_equal(data, "x");
	if (getuid() == 0) {
		assert_int_equal(fchownat(f->fd, "env", NOBODY, NOBODY, 0), 0);
		assert_fails(file_read_private(f->fd, "env", 10, &data, NULL, &e), EACCES, &e,
				"belongs to user 65534, not to user 0");
	}
}

static void test_dirs(void **state)
{
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	char path[200];
	struct stat st;
	int fd = -1;
	mode_t mask = umask(077);

	(void)snprintf(path, sizeof(path), "%s//x/y/z/", f->path);
	assert_ok(dir_make(path, 0750, &e), &e);
	(void)umask(mask);
	assert_int_equal(fstatat(f->fd, "x/y/z", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	/* Once more: nothing to do, and the mode of what exists is left alone. */
	assert_ok(dir_make(path, 0700, &e), &e);
	assert_int_equal(fstatat(f->fd, "x/y/z", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0750);

	assert_ok(file_write_atomic(f->fd, "file", "", 0, 0600, &e), &e);
	(void)snprintf(path, sizeof(path), "%s/file", f->path);
	assert_fails(dir_make(path, 0700, &e), ENOTDIR, &e, "is not a folder");
	(void)snprintf(path, sizeof(path), "%s/file/x", f->path);
	assert_fails(dir_make(path, 0700, &e), ENOTDIR, &e, "cannot make the folder");
	assert_fails(dir_make("", 0700, &e), EINVAL, &e, "without a name");

	assert_fails(dir_open(f->fd, "file", &fd, &e), ENOTDIR, &e, "cannot open the folder file");
	assert_int_equal(symlinkat("x", f->fd, "link"), 0);
	assert_int_equal(dir_open(f->fd, "link", &fd, &e), -ENOTDIR);
	assert_int_equal(fd, -1);
	assert_ok(dir_open(f->fd, "x/y", &fd, &e), &e);
	assert_ok(dir_sync(fd, &e), &e);
	fd = fd_close(fd);
	assert_fails(dir_sync(-1, &e), EBADF, &e, "folder");
}

static void test_remove(void **state)
{
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;

	assert_ok(file_write_atomic(f->fd, "a", "", 0, 0600, &e), &e);
	assert_ok(file_remove(f->fd, "a", false, &e), &e);
	assert_ok(file_remove(f->fd, "a", true, &e), &e);
	assert_fails(file_remove(f->fd, "a", false, &e), ENOENT, &e, "cannot remove a");
	assert_int_equal(mkdirat(f->fd, "d", 0755), 0);
	assert_int_equal(file_remove(f->fd, "d", true, &e), -EISDIR);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)
	const struct CMUnitTest tests[] = {
		IN_FOLDER(test_write), IN_FOLDER(test_write_fails), IN_FOLDER(test_write_half), IN_FOLDER(test_read),
		cmocka_unit_test(test_read_unknown_size), IN_FOLDER(test_read_private), IN_FOLDER(test_dirs),
		IN_FOLDER(test_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
