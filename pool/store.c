/*
 * Opening the store. The order matters: nothing is written before the file is known to be ours, of a version
 * we know, and sound; the copy for the way back is made from the file as it was found, before a migration;
 * and a refused file is closed without the checkpoint that SQLite would do, so that it stays as it is.
 */
#include "pool/store_internal.h"
#include "base/str.h"
#include "linux/file.h"
#include "linux/holder.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>

#define LAST_GOOD ".last-good"
/* Where SQLite locks its files, by its file format. */
#define LOCKS_START 0x40000000
#define LOCKS_LENGTH 512
#define BUSY_TIMEOUT_MS 2000 /* a keeper that is just ending */

static int file_beside(const struct store *s, const char *suffix, char **ret, struct error *e)
{
	if (asprintf(ret, "%s%s", s->path, suffix) < 0) {
		*ret = NULL;
		return error_set(e, ENOMEM, "out of memory");
	}
	return 0;
}

/* There is a copy that is not empty. */
static bool has_copy(const struct store *s)
{
	CLEANUP_FREE char *good = NULL;
	struct stat st;

	return file_beside(s, LAST_GOOD, &good, NULL) == 0 && good && lstat(good, &st) == 0 && st.st_size > 0;
}

/* The one sentence for every kind of damage. It has to fit into the line that a command shows of it: the folder is said once. */
static int refuse_damaged(const struct store *s, const char *what, struct error *e)
{
	const char *name = strrchr(s->path, '/');

	if (!has_copy(s))
		return error_set(e, EUCLEAN,
			"%s is damaged (%.100s) and was left as it is, and there is no copy of it: move it and its -wal file aside to begin"
			" without any VM",
			s->path, what);
	return error_set(e, EUCLEAN,
		"%s is damaged (%.100s) and was left as it is. Way back: move it and its -wal file aside,"
		" copy %s" LAST_GOOD " beside it (the last clean start) to its place with mode 0600, start again;"
		" VMs that have moved on are reset",
		s->path, what, name ? name + 1 : s->path);
}

/* After store_error() said that it is held: who that is. We have no lock on it that this could drop. */
static int refuse_busy(const struct store *s, struct error *e)
{
	struct holder other;

	if (!holder_find(s->path, LOCKS_START, LOCKS_LENGTH, &other))
		return -EBUSY;
	return error_set(e, EBUSY,
		"%s is open in another process (pid %d, %s); only one keeper may have it: end that process first", s->path,
		(int)other.pid, other.name);
}

static int open_parent(const struct store *s, int *ret_fd, struct error *e)
{
	CLEANUP_FREE char *copy = strdup(s->path);
	if (!copy)
		return error_set(e, ENOMEM, "out of memory");
	/* The folder may be reached by a symlink. */
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(e, errno, "opening the folder of %s", s->path);
	*ret_fd = fd;
	return 0;
}

static int create_file(const char *path, struct error *e)
{
	CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(e, errno, "creating %s", path);
	if (fchmod(fd, 0600) < 0 || fsync(fd) < 0)
		return error_errno(e, errno, "creating %s", path);
	return 0;
}

/* Starting empty beside a copy that is not would forget every VM without a word. */
static int refuse_empty(const struct store *s, const char *how, struct error *e)
{
	const char *name = strrchr(s->path, '/');

	if (!has_copy(s))
		return 0;
	return error_set(e, EUCLEAN,
		"%s is %s, but there is %s" LAST_GOOD " from its last clean start: copy that to its place with mode 0600,"
		" or remove it too to begin without any VM",
		s->path, how, name ? name + 1 : s->path);
}

/* -wal and -journal get their mode from this file, so it has to be right before SQLite sees it. */
static int check_file(const struct store *s, struct error *e)
{
	CLEANUP_FD int dirfd = -1;
	struct stat st;

	if (lstat(s->path, &st) == 0) {
		if (!S_ISREG(st.st_mode))
			return error_set(e, EINVAL, "%s is not a regular file", s->path);
		if (st.st_uid != geteuid())
			return error_set(e, EACCES, "%s belongs to uid %u, not to us (uid %u)", s->path,
				(unsigned)st.st_uid, (unsigned)geteuid());
		if (st.st_mode & 077)
			return error_set(e, EACCES,
				"%s has mode %04o; others may not read or write it: chmod 600 %s", s->path,
				(unsigned)(st.st_mode & 07777), s->path);
		return st.st_size > 0 ? 0 : refuse_empty(s, "empty", e);
	}
	if (errno != ENOENT)
		return error_errno(e, errno, "looking at %s", s->path);
	int r = refuse_empty(s, "missing", e);
	if (r == 0)
		r = create_file(s->path, e);
	if (r == 0)
		r = open_parent(s, &dirfd, e);
	return r < 0 ? r : dir_sync(dirfd, e);
}

/* First column of the first row; not cached, these run once. ret_text or ret_number may be NULL. */
static int one_value(
	struct store *s, const char *sql, char *ret_text, size_t size, uint32_t *ret_number, struct error *e)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	int r = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_error(s, rc, "opening the database", e);
	if (r == 0 && ret_text)
		store_inform(
			ret_text, size, rc == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : "");
	if (r == 0 && ret_number)
		*ret_number = rc == SQLITE_ROW ? (uint32_t)sqlite3_column_int64(stmt, 0) : 0;
	(void)sqlite3_finalize(stmt);
	return r;
}

/* Settings that write nothing. Exclusive first: then WAL needs no shared memory file, and we are alone. */
static int configure(struct store *s, struct error *e)
{
	(void)sqlite3_extended_result_codes(s->db, 1);
	(void)sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_MS);
	if (sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) != SQLITE_OK ||
		sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) != SQLITE_OK ||
		sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL) != SQLITE_OK)
		return error_set(e, EIO, "this SQLite (%s) lacks a setting that the store needs",
			sqlite3_libversion());
	if (sqlite3_db_readonly(s->db, "main") != 0)
		return error_set(
			e, EROFS, "%s cannot be written: check its file system, owner and mode", s->path);
	return store_exec(s,
		"PRAGMA locking_mode = EXCLUSIVE; PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON;"
		"PRAGMA temp_store = MEMORY",
		"opening the database", e);
}

/* *ret_version: 0 for a file without content, which is also what a kill in the first open leaves. */
static int check_content(struct store *s, unsigned *ret_version, struct error *e)
{
	char said[160];
	uint32_t application = 0, version = 0, objects = 0;
	/* Takes the lock for good. Two first starts at once would else both read, and then stop each other.
	 */
	int r = store_exec(s, "BEGIN EXCLUSIVE; COMMIT", "opening the database", e);
	if (r == 0)
		r = one_value(s, "PRAGMA application_id", NULL, 0, &application, e);
	if (r == 0)
		r = one_value(s, "PRAGMA user_version", NULL, 0, &version, e);
	if (r == 0)
		r = one_value(s, "SELECT count(*) FROM sqlite_master", NULL, 0, &objects, e);
	if (r == -EUCLEAN)
		return refuse_damaged(s, sqlite3_errmsg(s->db), e);
	if (r < 0)
		return r;
	if (application == 0 && version == 0 && objects == 0) {
		*ret_version = 0;
		return refuse_empty(s, "empty", e);
	}
	if (application != STORE_APPLICATION_ID || version == 0)
		return refuse_damaged(s, "it is not a database of boxery", e);
	if (version > STORE_VERSION)
		return error_set(e, EPROTO,
			"%s is of version %u, this program knows versions up to %u: it was not touched;"
			" use the newer program",
			s->path, version, (unsigned)STORE_VERSION);
	/* The limits in store.h bound the file and so the time of this. */
	r = one_value(s, "PRAGMA quick_check(1)", said, sizeof(said), NULL, e);
	if (r == -EUCLEAN)
		return refuse_damaged(s, sqlite3_errmsg(s->db), e);
	if (r < 0)
		return r;
	if (!str_equal(said, "ok"))
		return refuse_damaged(s, said, e);
	r = store_schema_check(s, version, said, sizeof(said), e);
	if (r == 0 && said[0])
		return refuse_damaged(s, said, e);
	*ret_version = version;
	return r;
}

/* Reads the host's id, and checks what no constraint inside one table can say: VM and lease agree. */
static int check_story(struct store *s, struct error *e)
{
	char bad[64] = "", what[128];
	int r = one_value(s, "SELECT host_id FROM meta", s->host_id, sizeof(s->host_id), NULL, e);
	if (r == 0 && strlen(s->host_id) != 8)
		return refuse_damaged(s, "no host id in it", e);
	if (r == 0)
		r = one_value(s,
			"SELECT v.name FROM vms v LEFT JOIN leases l ON l.vm_id = v.id AND l.open = 1 WHERE"
			" (v.state IN ('LEASED', 'DELIVERED', 'BUSY', 'KEPT') AND"
			"  (l.id IS NULL OR l.generation <> v.generation))"
			" OR (v.state NOT IN ('LEASED', 'DELIVERED', 'BUSY', 'KEPT', 'RESETTING', 'MAINTENANCE')"
			"  AND l.id IS NOT NULL)"
			" OR (v.state IN ('DELIVERED', 'BUSY') AND l.delivered_wall_us = 0) LIMIT 1",
			bad, sizeof(bad), NULL, e);
	if (r < 0)
		return r;
	if (bad[0] == '\0')
		return 0;
	(void)str_format(what, "state and lease of VM %s contradict each other", bad);
	return refuse_damaged(s, what, e);
}

int store_backup(struct store *s, struct error *e)
{
	static const char sql[] = "VACUUM INTO ?1";
	CLEANUP_FREE char *next = NULL, *good = NULL;
	CLEANUP_FD int fd = -1, dirfd = -1;
	int r = file_beside(s, LAST_GOOD ".new", &next, e);
	if (r == 0)
		r = file_beside(s, LAST_GOOD, &good, e);
	if (r == 0)
		r = open_parent(s, &dirfd, e);
	if (r < 0)
		return r;
	if (unlink(next) < 0 && errno != ENOENT) /* of an open that was cut short */
		return error_errno(e, errno, "removing %s", next);
	r = create_file(next, e); /* SQLite takes an empty file; made by us it has our mode */
	if (r == 0) {
		CLEANUP_QUERY struct query q = {0};
		r = query_start(&q, s, sql, e);
		if (r == 0) {
			query_text(&q, next);
			r = query_step(&q, e);
		}
	}
	if (r == 0) {
		fd = open(next, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || fsync(fd) < 0 || rename(next, good) < 0)
			r = error_errno(e, errno, "keeping %s", good);
	}
	if (r < 0) {
		(void)unlink(next);
		return r;
	}
	return dir_sync(dirfd, e);
}

int store_open(const char *path, struct store **ret, struct error *e)
{
	CLEANUP(store_freep) struct store *s = calloc(1, sizeof(*s));
	char mode[16];
	unsigned version = 0;

	if (!s || !(s->path = strdup(path)))
		return error_set(e, ENOMEM, "out of memory");
	int r = clock_boot_id(s->boot_id, e);
	if (r == 0)
		r = check_file(s, e);
	if (r < 0)
		return r;
	int rc = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	if (rc != SQLITE_OK)
		return store_error(s, rc, "opening the database", e);
	r = configure(s, e);
	if (r == 0)
		r = check_content(s, &version, e);
	if (r == 0 && version == STORE_VERSION) /* before the copy: a bad one must not replace a good one */
		r = check_story(s, e);
	if (r < 0)
		return r == -EBUSY ? refuse_busy(s, e) : r;

	/* From here on the file is ours to write. */
	r = one_value(s, "PRAGMA journal_mode = WAL", mode, sizeof(mode), NULL, e);
	if (r == 0 && !str_equal(mode, "wal"))
		return error_set(e, EIO, "%s: SQLite offers journal mode %s instead of wal", path, mode);
	if (r == 0)
		/* A cache of 1 MiB; 2 are the default. Here, because it reads the file. */
		r = store_exec(s, "PRAGMA synchronous = FULL; PRAGMA cache_size = -1024", "opening the database", e);
	if (r < 0)
		return r;
	if (version > 0) {
		/* The store is as good without a new copy; the old one is still there. */
		struct error warning = ERROR_INIT;
		if (store_backup(s, &warning) < 0)
			store_inform(s->warning, sizeof(s->warning), warning.text);
	}
	if (version < STORE_VERSION) {
		r = store_schema_migrate(s, version, STORE_VERSION, e);
		if (r == 0)
			r = check_story(s, e);
	}
	if (r < 0)
		return r;
	(void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
	*ret = TAKE_PTR(s);
	return 0;
}

struct store *store_free(struct store *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->n_statements; i++)
		(void)sqlite3_finalize(s->statements[i].stmt);
	(void)sqlite3_close(s->db);
	free(s->path);
	free(s);
	return NULL;
}

const char *store_host_id(const struct store *s)
{
	return s->host_id;
}

const char *store_warning(const struct store *s)
{
	return s->warning;
}
