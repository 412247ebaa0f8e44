/* Opening: whose file, which version, is it sound, is it writable; and the way back from damage. */
#include "tests/unit/store_testing.h"
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define NOBODY 65534

static bool private_mounts; /* we may mount, and nobody else sees it */

static void check_mode(const char *path, mode_t mode)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
}

static char *read_all(const char *path, size_t *ret_len)
{
	CLEANUP_FILE FILE *f = fopen(path, "re");
	char *data = malloc(1 << 22);
	assert_true(f && data);
	*ret_len = fread(data, 1, 1 << 22, f);
	return data;
}

/* Opens, expects the refusal, and that not one byte of the database has changed. */
static void check_refused(const char *path, int code, const char *words)
{
	struct store *s = NULL;
	struct error e = ERROR_INIT;
	size_t before_len, after_len;
	CLEANUP_FREE char *before = read_all(path, &before_len);

	assert_fails(store_open(path, &s, &e), code, &e, words);
	assert_null(s);
	CLEANUP_FREE char *after = read_all(path, &after_len);
	assert_int_equal(before_len, after_len);
	assert_memory_equal(before, after, before_len);
}

static void test_fresh(void **state)
{
	mode_t mask = umask(0);
	unsigned fds = test_count_fds();
	struct store *s = open_store(state);
	char host_id[9];

	(void)snprintf(host_id, sizeof(host_id), "%s", store_host_id(s));
	assert_int_equal(strspn(host_id, "0123456789abcdef"), 8);
	add_vm(s, "a");
	check_mode(store_path(state), 0600);
	check_mode(beside(state, "-wal"), 0600);
	assert_int_equal(access(beside(state, "-shm"), F_OK), -1);
	assert_int_equal(access(beside(state, ".last-good"), F_OK), -1); /* nothing worth a copy yet */
	s = store_free(s);
	assert_int_equal(access(beside(state, "-wal"), F_OK), -1); /* a clean end leaves one file */

	s = open_store(state);
	assert_string_equal(store_host_id(s), host_id);
	check_mode(beside(state, ".last-good"), 0600);
	s = store_free(s);
	assert_null(store_free(NULL));
	assert_int_equal(test_count_fds(), fds);
	(void)umask(mask);
}

static void test_file_refused(void **state)
{
	struct store *s = NULL;
	struct error e = ERROR_INIT;
	struct test_folder *f = *state;

	assert_fails(store_open(f->path, &s, &e), EINVAL, &e, "not a regular file");
	assert_fails(store_open("/nonexistent/boxery.db", &s, &e), ENOENT, &e, "/nonexistent/boxery.db");
	assert_int_equal(symlink("/etc/passwd", store_path(state)), 0);
	assert_fails(store_open(store_path(state), &s, &e), EINVAL, &e, "not a regular file");
	assert_int_equal(unlink(store_path(state)), 0);

	s = open_store(state);
	s = store_free(s);
	assert_int_equal(chmod(store_path(state), 0640), 0);
	check_refused(store_path(state), EACCES, "chmod 600");
	assert_int_equal(chmod(store_path(state), 0600), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(store_path(state), NOBODY, NOBODY), 0);
		check_refused(store_path(state), EACCES, "belongs to uid 65534");
	}
}

static void test_newer_version(void **state)
{
	struct store *s = open_store(state);
	s = store_free(s);
	assert_int_equal(raw(store_path(state), "PRAGMA user_version = 99"), SQLITE_OK);
	check_refused(store_path(state), EPROTO, "version 99");
	assert_int_equal(access(beside(state, ".last-good"), F_OK), -1);

	/* The same when the newer program was killed and its last words are in the -wal. */
	assert_int_equal(raw(store_path(state), "PRAGMA user_version = 6"), SQLITE_OK);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		sqlite3 *db;
		bool ok = sqlite3_open(store_path(state), &db) == SQLITE_OK &&
			  sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA user_version = 98", NULL,
				  NULL, NULL) == SQLITE_OK;
		_exit(ok ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	size_t before_len, after_len;
	CLEANUP_FREE char *before = read_all(beside(state, "-wal"), &before_len);
	assert_true(before_len > 0);
	check_refused(store_path(state), EPROTO, "version 98");
	CLEANUP_FREE char *after = read_all(beside(state, "-wal"), &after_len);
	assert_int_equal(before_len, after_len);
	assert_memory_equal(before, after, before_len);
}

/* Version 2 was made with these words; another list needs another version, with a step that rebuilds the
 * tables. */
static void test_words_of_version(void **state)
{
	static const char states[] =
		"'PLAIN', 'COLD', 'STARTING', 'READY', 'LEASED', 'DELIVERED', 'BUSY', 'RESETTING',"
		" 'BROKEN', 'MAINTENANCE', 'ADDING', 'KEPT'";
	static const char registrations[] = "'none', 'planned', 'made', 'gone'";
	static const struct {
		const char *table, *words;
	} pinned[] = {{"vms", states}, {"leases", registrations}};
	struct store *s = open_store(state);
	sqlite3 *db = NULL;
	sqlite3_stmt *stmt = NULL;

	s = store_free(s);
	assert_int_equal(sqlite3_open(store_path(state), &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_prepare_v2(db, "SELECT sql FROM sqlite_master WHERE name = ?1", -1, &stmt, NULL),
		SQLITE_OK);
	for (size_t i = 0; i < ARRAY_SIZE(pinned); i++) {
		assert_int_equal(sqlite3_bind_text(stmt, 1, pinned[i].table, -1, SQLITE_STATIC), SQLITE_OK);
		assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
		assert_non_null(strstr((const char *)sqlite3_column_text(stmt, 0), pinned[i].words));
		(void)sqlite3_reset(stmt);
	}
	(void)sqlite3_finalize(stmt);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void overwrite(const char *path, off_t at, const char *data, size_t len)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, len, at), len);
}

/* A database with something to lose, and its copy. */
static void make_pool(void **state)
{
	struct store *s = open_store(state);
	(void)bring_to(s, "a", STATE_READY);
	(void)bring_to(s, "b", STATE_BUSY);
	s = store_free(s);
	s = open_store(state); /* makes the copy */
	s = store_free(s);
}

/* What the refusal tells people to do. */
static void take_way_back(void **state)
{
	struct vm_row row;
	struct error e = ERROR_INIT;

	assert_int_equal(rename(store_path(state), beside(state, ".damaged")), 0);
	assert_true(rename(beside(state, "-wal"), beside(state, ".damaged-wal")) == 0 || errno == ENOENT);
	copy_file(beside(state, ".last-good"), store_path(state));
	struct store *s = open_store(state);
	assert_ok(store_vm_get(s, "b", &row, &e), &e);
	assert_int_equal(row.state, STATE_BUSY);
	s = store_free(s);
}

static void test_damaged_header(void **state)
{
	make_pool(state);
	overwrite(store_path(state), 0, "not a database, sorry", 21);
	check_refused(store_path(state), EUCLEAN, "Way back");
	take_way_back(state);
}

static void test_damaged_pages(void **state)
{
	char junk[3000];
	struct stat st;
	unsigned refused = 0;

	make_pool(state);
	memset(junk, 0xa5, sizeof(junk));
	assert_int_equal(stat(store_path(state), &st), 0);
	copy_file(store_path(state), beside(state, ".sound"));
	/* Every page in turn: each is refused, or (a free page) it does not matter. */
	for (off_t page = 0; page < st.st_size / 4096; page++) {
		struct store *s = NULL;
		struct error e = ERROR_INIT;
		overwrite(store_path(state), page ? page * 4096 : 100, junk, sizeof(junk));
		int r = store_open(store_path(state), &s, &e);
		if (r < 0) {
			assert_int_equal(r, -EUCLEAN);
			assert_non_null(strstr(e.text, "Way back"));
			refused++;
		}
		s = store_free(s);
		copy_file(beside(state, ".sound"), store_path(state));
		(void)unlink(beside(state, "-wal"));
	}
	assert_true(refused >= (unsigned)(st.st_size / 4096) / 2);
	assert_int_equal(truncate(store_path(state), 4096 * 3), 0);
	check_refused(store_path(state), EUCLEAN, "Way back");
	take_way_back(state);
}

static void test_missing_or_empty(void **state)
{
	struct store *s = NULL;
	struct error e = ERROR_INIT;

	make_pool(state);
	assert_int_equal(rename(store_path(state), beside(state, ".away")), 0);
	assert_fails(store_open(store_path(state), &s, &e), EUCLEAN, &e, "is missing, but there is");
	assert_int_equal(access(store_path(state), F_OK), -1);
	copy_file("/dev/null", store_path(state));
	check_refused(store_path(state), EUCLEAN, "is empty, but there is");
	/* The words say that removing the copy too begins anew. */
	assert_int_equal(unlink(beside(state, ".last-good")), 0);
	s = open_store(state);
	s = store_free(s);
}

static void test_not_ours(void **state)
{
	copy_file("/dev/null", store_path(state));
	assert_int_equal(raw(store_path(state), "CREATE TABLE notes (text)"), SQLITE_OK);
	check_refused(store_path(state), EUCLEAN, "not a database of boxery");
}

static void test_contradiction(void **state)
{
	make_pool(state);
	assert_int_equal(
		raw(store_path(state), "UPDATE vms SET state = 'READY' WHERE name = 'b'"), SQLITE_OK);
	check_refused(store_path(state), EUCLEAN, "lease of VM b");
	take_way_back(state);
	assert_int_equal(
		raw(store_path(state), "UPDATE vms SET state = 'LEASED' WHERE name = 'a'"), SQLITE_OK);
	check_refused(store_path(state), EUCLEAN, "lease of VM a");
}

/* SQLite finds nothing wrong with it; the copy from before must outlive the attempt to start. */
static void test_incomplete(void **state)
{
	static const struct {
		const char *sql, *words;
	} cases[] = {{"DROP TABLE events", "table events is missing"}, {"DROP INDEX leases_one_open", "index leases_one_open is missing"},
		{"DROP TRIGGER vms_shared", "trigger vms_shared is missing"},
		{"ALTER TABLE vms DROP COLUMN evidence", "table vms is missing or lacks the column evidence"}};
	struct store *s;

	make_pool(state);
	copy_file(store_path(state), beside(state, ".sound"));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(raw(store_path(state), cases[i].sql), SQLITE_OK);
		check_refused(store_path(state), EUCLEAN, cases[i].words);
		copy_file(beside(state, ".sound"), store_path(state));
	}
	assert_int_equal(raw(store_path(state), "DROP TABLE events"), SQLITE_OK);
	check_refused(store_path(state), EUCLEAN, "Way back");
	take_way_back(state);
	/* What somebody has added harms nobody. */
	assert_int_equal(raw(store_path(state), "CREATE TABLE notes (text); CREATE INDEX mine ON events (kind)"), SQLITE_OK);
	s = open_store(state);
	s = store_free(s);
}

static void test_backup(void **state)
{
	struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	char folder[100];

	add_vm(s, "a");
	assert_ok(store_backup(s, &e), &e);
	(void)snprintf(folder, sizeof(folder), "%s", beside(state, ".last-good.new"));
	assert_int_equal(mkdir(folder, 0700), 0); /* in the way: the copy cannot be made, the old one stays */
	add_vm(s, "b");
	assert_fails(store_backup(s, &e), EISDIR, &e, "last-good.new");
	s = store_free(s);
	assert_ok(store_open(store_path(state), &s, &e), &e); /* and that stops nobody */
	assert_non_null(strstr(store_warning(s), "last-good.new"));
	s = store_free(s);
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(beside(state, ".last-good"), &db), SQLITE_OK);
	sqlite3_stmt *stmt = NULL;
	assert_int_equal(
		sqlite3_prepare_v2(db, "SELECT group_concat(name) FROM vms", -1, &stmt, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(stmt, 0), "a");
	(void)sqlite3_finalize(stmt);
	(void)sqlite3_close(db);
}

static void test_two_openers(void **state)
{
	int ready[2], status;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork(); /* before our open, so that the child knows nothing of it */
	assert_true(pid >= 0);
	if (pid == 0) {
		char c;
		struct store *s = NULL;
		struct error e = ERROR_INIT;
		(void)close(ready[1]);
		if (read(ready[0], &c, 1) != 1)
			_exit(2);
		int r = store_open(store_path(state), &s, &e);
		char who[32];
		(void)snprintf(who, sizeof(who), "(pid %d, ", (int)getppid());
		_exit(r == -EBUSY && strstr(e.text, "only one keeper") && strstr(e.text, who) ? 0 : 1);
	}
	struct store *s = open_store(state);
	assert_int_equal(write(ready[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	add_vm(s, "still-works");
	s = store_free(s);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

/* Root writes everywhere, so a mode that forbids it is tried as somebody else. */
static void test_read_only_mode(void **state)
{
	struct test_folder *f = *state;
	struct store *s = open_store(state);
	struct error e = ERROR_INIT;

	s = store_free(s);
	assert_int_equal(chmod(store_path(state), 0400), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(f->path, NOBODY, NOBODY), 0);
		assert_int_equal(chown(store_path(state), NOBODY, NOBODY), 0);
		assert_int_equal(seteuid(NOBODY), 0);
	}
	int r = store_open(store_path(state), &s, &e);
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(r, -EROFS);
	assert_non_null(strstr(e.text, "cannot be written"));
}

static void test_read_only_mount(void **state)
{
	struct test_folder *f = *state;
	struct store *s = NULL;
	struct error e = ERROR_INIT;
	if (!private_mounts)
		skip();
	s = open_store(state);
	add_vm(s, "a");
	s = store_free(s);
	assert_int_equal(mount(f->path, f->path, "", MS_BIND, NULL), 0);
	assert_int_equal(mount("", f->path, "", MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
	check_refused(store_path(state), EROFS, "cannot be written");
	assert_int_equal(umount(f->path), 0);
	s = open_store(state);
	assert_int_equal(store_vm_get(s, "a", &(struct vm_row){0}, &e), 0);
	s = store_free(s);
}

/* Fills the file system under an open store: changes fail with a sentence, reading goes on, room again and
 * all is well. */
static void test_full_disk(void **state)
{
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	struct vm_row row = {0}, before;
	static const char zeros[4096];
	if (!private_mounts)
		skip();
	assert_int_equal(mount("none", f->path, "tmpfs", 0, "size=1m,mode=700"), 0);
	struct store *s = open_store(state);
	before = bring_to(s, "a", STATE_READY);

	int fd = open(beside(state, ".filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	(void)close(fd);
	int r = 0;
	for (unsigned i = 0; r == 0 && i < 1000; i++)
		r = store_event(s, "a", NULL, 1, "x", "", 0, &e);
	assert_int_equal(r, -ENOSPC);
	assert_non_null(strstr(e.text, "room"));
	r = store_apply(s, "a", 0, HAPPENING_DOUBT, NULL, NULL, &row, &e);
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(row.state, STATE_PLAIN); /* untouched */
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_memory_equal(&row, &before, sizeof(row));
	/* The folder may be as full as it is: an open still works, only the copy has to wait. */
	s = store_free(s);
	assert_ok(store_open(store_path(state), &s, &e), &e);
	assert_int_equal(unlink(beside(state, ".filler")), 0);
	(void)go(s, "a", HAPPENING_DOUBT);
	s = store_free(s);
	s = open_store(state);
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_int_equal(row.state, STATE_RESETTING);
	s = store_free(s);
	assert_int_equal(umount(f->path), 0);
}

/* A limit on the file's size: the system says EFBIG below SQLite. */
static void test_write_error(void **state)
{
	struct store *s = open_store(state);
	struct error e = ERROR_INIT;
	struct vm_row before = bring_to(s, "a", STATE_READY), row;
	struct rlimit old, now;

	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	now = old;
	now.rlim_cur = 4096;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
	int r = store_apply(s, "a", 0, HAPPENING_DOUBT, NULL, NULL, NULL, &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(r == -EFBIG || r == -EIO || r == -ENOSPC);
	assert_non_null(strstr(e.text, "nothing was changed"));
	assert_ok(store_vm_get(s, "a", &row, &e), &e);
	assert_memory_equal(&row, &before, sizeof(row));
	(void)go(s, "a", HAPPENING_DOUBT);
	s = store_free(s);
	s = open_store(state);
	s = store_free(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_folder_setup, test_folder_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_fresh),
		TEST(test_file_refused),
		TEST(test_newer_version),
		TEST(test_words_of_version),
		TEST(test_damaged_header),
		TEST(test_damaged_pages),
		TEST(test_missing_or_empty),
		TEST(test_not_ours),
		TEST(test_contradiction),
		TEST(test_incomplete),
		TEST(test_backup),
		TEST(test_two_openers),
		TEST(test_read_only_mode),
		TEST(test_read_only_mount),
		TEST(test_full_disk),
		TEST(test_write_error),
	};
	private_mounts = geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
			 mount("", "/", "", MS_REC | MS_PRIVATE, NULL) == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
