/*
 * The schema, as the list of steps from each version to the next. A step is never edited once a release has
 * it; a new word in an enum needs a step that rebuilds the table whose CHECK lists the words, and the words of
 * the older step spelt out (a unit test pins them per version).
 *
 * What the schema itself guarantees, whatever the code above it does: states and registrations are words of
 * the enums; a VM has at most one open lease, and a VM with one cannot be deleted; a life (VM, generation) is
 * leased at most once and delivered to at most once; generations never go back; runner names never repeat
 * while a row remembers them; a VM whose clean state others start from cannot be deleted. Rows of history point at a VM by vm_id while it exists and keep its name when
 * it is gone.
 */
#include "pool/store_internal.h"
#include "base/str.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Its states have gained a word since; the step stays what it was. */
#define STATES_1                                                                                             \
	"'PLAIN', 'COLD', 'STARTING', 'READY', 'LEASED', 'DELIVERED', 'BUSY', 'RESETTING', 'BROKEN',"        \
	" 'MAINTENANCE', 'ADDING'"

/* The columns that both versions of the table have, for carrying rows over. */
#define VMS_1                                                                                                \
	"id, name, pool, image, slot, cpus, memory_mib, disk_gib, state, generation, attempts, step,"        \
	" reason, host_key, address, since_event, since_boot_us, since_wall_us, since_boot_id"

/* @states@ and @registrations@ become the quoted words of their enums, @random8@ eight digits. */
static const char *const steps[] = {
	"CREATE TABLE meta (\n"
	"  id INTEGER PRIMARY KEY CHECK (id = 1),\n"
	"  host_id TEXT NOT NULL CHECK (length(host_id) = 8 AND host_id NOT GLOB '*[^0-9a-f]*')\n"
	") STRICT;\n"
	"INSERT INTO meta (id, host_id) VALUES (1, '@random8@');\n"

	"CREATE TABLE vms (\n"
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
	"  name TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 40 AND name NOT GLOB "
	"'*[^0-9a-z-]*'),\n"
	"  pool TEXT NOT NULL CHECK (length(pool) <= 40),\n"
	"  image TEXT NOT NULL CHECK (length(image) <= 40),\n"
	"  slot INTEGER NOT NULL UNIQUE CHECK (slot BETWEEN 0 AND 999),\n"
	"  cpus INTEGER NOT NULL CHECK (cpus BETWEEN 0 AND 4294967295),\n"
	"  memory_mib INTEGER NOT NULL CHECK (memory_mib BETWEEN 0 AND 4294967295),\n"
	"  disk_gib INTEGER NOT NULL CHECK (disk_gib BETWEEN 0 AND 4294967295),\n"
	"  state TEXT NOT NULL CHECK (state IN (" STATES_1 ")),\n"
	"  generation INTEGER NOT NULL CHECK (generation >= 0),\n"
	"  attempts INTEGER NOT NULL CHECK (attempts BETWEEN 0 AND 2147483647),\n"
	"  step TEXT NOT NULL CHECK (length(step) <= 31),\n"
	"  reason TEXT NOT NULL CHECK (length(reason) <= 511),\n"
	"  host_key TEXT NOT NULL CHECK (length(host_key) <= 511),\n"
	"  address TEXT NOT NULL CHECK (length(address) <= 45),\n"
	"  since_event INTEGER NOT NULL,\n" /* the event row of the last transition: an order that no clock
					       can upset */
	"  since_boot_us INTEGER NOT NULL,\n"
	"  since_wall_us INTEGER NOT NULL,\n"
	"  since_boot_id TEXT NOT NULL CHECK (length(since_boot_id) <= 36),\n"
	"  CHECK ((state = 'PLAIN') = (pool = ''))\n"
	") STRICT;\n"
	"CREATE INDEX vms_ready ON vms (pool, since_event) WHERE state = 'READY';\n"
	"CREATE TRIGGER vms_generation BEFORE UPDATE OF generation ON vms WHEN NEW.generation < "
	"OLD.generation\n"
	"  BEGIN SELECT RAISE(ABORT, 'a generation never goes back'); END;\n"

	"CREATE TABLE leases (\n"
	"  seq INTEGER PRIMARY KEY AUTOINCREMENT,\n"
	"  id TEXT NOT NULL UNIQUE CHECK (length(id) = 32 AND id NOT GLOB '*[^0-9a-f]*'),\n"
	"  vm_id INTEGER REFERENCES vms (id) ON DELETE SET NULL,\n"
	"  vm TEXT NOT NULL CHECK (length(vm) BETWEEN 1 AND 40),\n"
	"  pool TEXT NOT NULL CHECK (length(pool) BETWEEN 1 AND 40),\n"
	"  holder TEXT NOT NULL CHECK (length(holder) BETWEEN 1 AND 47),\n"
	"  scope TEXT NOT NULL CHECK (length(scope) <= 140),\n"
	"  runner_name TEXT NOT NULL UNIQUE CHECK (length(runner_name) BETWEEN 1 AND 64),\n"
	"  generation INTEGER NOT NULL CHECK (generation >= 1),\n"
	"  registration TEXT NOT NULL CHECK (registration IN (@registrations@)),\n"
	"  runner_id INTEGER NOT NULL CHECK (runner_id >= 0),\n"
	"  open INTEGER NOT NULL CHECK (open IN (0, 1)),\n"
	"  bound INTEGER NOT NULL CHECK (bound IN (0, 1)),\n"
	"  opened_wall_us INTEGER NOT NULL,\n"
	"  delivered_wall_us INTEGER NOT NULL,\n"
	"  closed_wall_us INTEGER NOT NULL,\n"
	"  closed_order INTEGER NOT NULL,\n" /* 1, 2, ... in the order of closing; 0 while open */
	"  expires_boot_us INTEGER NOT NULL,\n"
	"  boot_id TEXT NOT NULL CHECK (length(boot_id) <= 36),\n"
	"  job TEXT NOT NULL CHECK (length(job) <= 127),\n"
	"  outcome TEXT NOT NULL CHECK (length(outcome) <= 63),\n"
	"  outcome_final INTEGER NOT NULL CHECK (outcome_final IN (0, 1)),\n"
	"  end_reason TEXT NOT NULL CHECK (length(end_reason) <= 511),\n"
	"  CHECK (open = 0 OR vm_id IS NOT NULL),\n"
	"  CHECK (open = 1 OR (end_reason <> '' AND closed_order > 0)),\n"
	"  CHECK (registration <> 'made' OR runner_id > 0)\n"
	") STRICT;\n"
	"CREATE UNIQUE INDEX leases_one_open ON leases (vm_id) WHERE open = 1;\n"
	"CREATE UNIQUE INDEX leases_one_per_life ON leases (vm_id, generation) WHERE vm_id IS NOT NULL;\n"
	"CREATE INDEX leases_closed ON leases (closed_order);\n"
	"CREATE TRIGGER leases_delivered BEFORE UPDATE OF delivered_wall_us ON leases WHEN "
	"OLD.delivered_wall_us <> 0\n"
	"  BEGIN SELECT RAISE(ABORT, 'a life is delivered to once'); END;\n"
	"CREATE TRIGGER leases_reopened BEFORE UPDATE OF open ON leases WHEN OLD.open = 0 AND NEW.open = 1\n"
	"  BEGIN SELECT RAISE(ABORT, 'a closed lease stays closed'); END;\n"

	"CREATE TABLE events (\n"
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
	"  vm_id INTEGER REFERENCES vms (id) ON DELETE SET NULL,\n"
	"  wall_us INTEGER NOT NULL,\n"
	"  boot_us INTEGER NOT NULL,\n"
	"  vm TEXT NOT NULL CHECK (length(vm) <= 40),\n"
	"  lease TEXT NOT NULL CHECK (length(lease) <= 32),\n"
	"  generation INTEGER NOT NULL CHECK (generation >= 0),\n"
	"  kind TEXT NOT NULL CHECK (length(kind) BETWEEN 1 AND 31),\n"
	"  text TEXT NOT NULL CHECK (length(text) <= 511),\n"
	"  took_us INTEGER NOT NULL CHECK (took_us >= 0)\n"
	") STRICT;\n"
	"CREATE INDEX events_vm_id ON events (vm_id, id);\n"
	"CREATE INDEX events_vm ON events (vm, id);\n"
	"CREATE INDEX events_lease ON events (lease, id) WHERE lease <> '';\n",

	/*
	 * 2: KEPT; VMs that share a clean state; kept overlays; settings of pools. A CHECK cannot be changed, so
	 * the table of VMs is built anew and its rows are carried over (with foreign keys off, see below: dropping
	 * the old one would else cut every lease and event from its VM).
	 */
	"CREATE TABLE vms_2 (\n"
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
	"  name TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 40 AND name NOT GLOB "
	"'*[^0-9a-z-]*'),\n"
	"  pool TEXT NOT NULL CHECK (length(pool) <= 40),\n"
	"  image TEXT NOT NULL CHECK (length(image) <= 40),\n"
	"  clean_of TEXT NOT NULL DEFAULT '' CHECK (length(clean_of) <= 40 AND clean_of <> name),\n"
	"  slot INTEGER NOT NULL UNIQUE CHECK (slot BETWEEN 0 AND 999),\n"
	"  cpus INTEGER NOT NULL CHECK (cpus BETWEEN 0 AND 4294967295),\n"
	"  memory_mib INTEGER NOT NULL CHECK (memory_mib BETWEEN 0 AND 4294967295),\n"
	"  disk_gib INTEGER NOT NULL CHECK (disk_gib BETWEEN 0 AND 4294967295),\n"
	"  state TEXT NOT NULL CHECK (state IN (@states@)),\n"
	"  generation INTEGER NOT NULL CHECK (generation >= 0),\n"
	"  attempts INTEGER NOT NULL CHECK (attempts BETWEEN 0 AND 2147483647),\n"
	/* What READY made of attempts, until the VM has shown that it lives. */
	"  cleared INTEGER NOT NULL DEFAULT 0 CHECK (cleared BETWEEN 0 AND 2147483647),\n"
	"  step TEXT NOT NULL CHECK (length(step) <= 31),\n"
	"  reason TEXT NOT NULL CHECK (length(reason) <= 511),\n"
	"  evidence TEXT NOT NULL DEFAULT '' CHECK (length(evidence) <= 511),\n"
	"  host_key TEXT NOT NULL CHECK (length(host_key) <= 511),\n"
	"  address TEXT NOT NULL CHECK (length(address) <= 45),\n"
	"  since_event INTEGER NOT NULL,\n"
	"  since_boot_us INTEGER NOT NULL,\n"
	"  since_wall_us INTEGER NOT NULL,\n"
	"  since_boot_id TEXT NOT NULL CHECK (length(since_boot_id) <= 36),\n"
	"  CHECK ((state = 'PLAIN') = (pool = ''))\n"
	") STRICT;\n"
	"INSERT INTO vms_2 (" VMS_1 ") SELECT " VMS_1 " FROM vms;\n"
	"DROP TABLE vms;\n"
	"ALTER TABLE vms_2 RENAME TO vms;\n"
	"CREATE INDEX vms_ready ON vms (pool, since_event) WHERE state = 'READY';\n"
	"CREATE TRIGGER vms_generation BEFORE UPDATE OF generation ON vms WHEN NEW.generation < "
	"OLD.generation\n"
	"  BEGIN SELECT RAISE(ABORT, 'a generation never goes back'); END;\n"
	"CREATE TRIGGER vms_shared BEFORE DELETE ON vms WHEN EXISTS (SELECT 1 FROM vms WHERE clean_of = OLD.name)\n"
	"  BEGIN SELECT RAISE(ABORT, 'others start from the clean state of this VM'); END;\n"
	"ALTER TABLE leases ADD COLUMN keep_ms INTEGER NOT NULL DEFAULT 0 CHECK (keep_ms >= 0);\n"
	"CREATE TABLE pools (\n"
	"  name TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 40),\n"
	"  cpus INTEGER NOT NULL CHECK (cpus BETWEEN 0 AND 4294967294),\n"
	"  memory_mib INTEGER NOT NULL CHECK (memory_mib BETWEEN 0 AND 4294967294),\n"
	"  disk_mib_per_s INTEGER NOT NULL CHECK (disk_mib_per_s BETWEEN 0 AND 4294967294),\n"
	"  disk_iops INTEGER NOT NULL CHECK (disk_iops BETWEEN 0 AND 4294967294),\n"
	"  net_kib_per_s INTEGER NOT NULL CHECK (net_kib_per_s BETWEEN 0 AND 4294967294),\n"
	"  reserve_service INTEGER NOT NULL CHECK (reserve_service BETWEEN 0 AND 4294967294),\n"
	"  reserve_local INTEGER NOT NULL CHECK (reserve_local BETWEEN 0 AND 4294967294)\n"
	") STRICT;\n",

	/* 3: a removal outlives the keeper that began it. */
	"ALTER TABLE vms ADD COLUMN removing INTEGER NOT NULL DEFAULT 0 CHECK (removing IN (0, 1));\n",

	/* 4: how the VMs of a pool start, and how they wait. */
	("ALTER TABLE pools ADD COLUMN start TEXT NOT NULL DEFAULT 'warm' CHECK (start IN ('warm', 'cold'));\n"
	 "ALTER TABLE pools ADD COLUMN standby TEXT NOT NULL DEFAULT 'paused' CHECK (standby IN ('paused', 'running'));\n"),

	/* 5: warm lives that fail are counted on their own. What waits without a key was started warm. */
	("ALTER TABLE vms ADD COLUMN warm INTEGER NOT NULL DEFAULT 0 CHECK (warm IN (0, 1));\n"
	 "ALTER TABLE vms ADD COLUMN warm_failures INTEGER NOT NULL DEFAULT 0"
	 " CHECK (warm_failures BETWEEN 0 AND 2147483647);\n"
	 "ALTER TABLE vms ADD COLUMN warm_reason TEXT NOT NULL DEFAULT '' CHECK (length(warm_reason) <= 511);\n"
	 "UPDATE vms SET warm = 1 WHERE state IN ('READY', 'LEASED') AND host_key = '';\n"),

	/* 6: the base image a VM is to be patched to, whether its clean state is on it and not proven yet, and why the last one came to nothing. */
	("ALTER TABLE vms ADD COLUMN patch TEXT NOT NULL DEFAULT '' CHECK (length(patch) <= 40);\n"
	 "ALTER TABLE vms ADD COLUMN trial INTEGER NOT NULL DEFAULT 0 CHECK (trial IN (0, 1));\n"
	 "ALTER TABLE vms ADD COLUMN patch_reason TEXT NOT NULL DEFAULT '' CHECK (length(patch_reason) <= 511);\n"),
};
_Static_assert(ARRAY_SIZE(steps) == STORE_VERSION, "one step per version");

static int add_words(struct buf *b, const char *(*word)(unsigned), unsigned count)
{
	int r = 0;
	for (unsigned i = 0; r == 0 && i < count; i++)
		r = buf_addf(b, "%s'%s'", i ? ", " : "", word(i));
	return r;
}
static const char *state_word(unsigned i)
{
	return state_to_string((enum vm_state)i);
}
static const char *registration_word(unsigned i)
{
	return registration_to_string((enum registration)i);
}

/* The text of a step with its placeholders filled in. */
static int expand(struct buf *b, const char *step, const char *random8)
{
	int r = 0;
	while (r == 0 && *step) {
		size_t plain = strcspn(step, "@");
		r = buf_add(b, step, plain);
		step += plain;
		if (r < 0 || !*step)
			break;
		const char *end = strchr(step + 1, '@');
		size_t len = end ? (size_t)(end - step) + 1 : 1;
		if (len == strlen("@states@") && strncmp(step, "@states@", len) == 0)
			r = add_words(b, state_word, STATE_COUNT);
		else if (len == strlen("@registrations@") && strncmp(step, "@registrations@", len) == 0)
			r = add_words(b, registration_word, REGISTRATION_COUNT);
		else if (len == strlen("@random8@") && strncmp(step, "@random8@", len) == 0)
			r = buf_addf(b, "%s", random8);
		else
			r = -EINVAL;
		step += len;
	}
	return r;
}

/* The steps from one version to another, as one text. */
static int write_steps(struct buf *sql, unsigned from, unsigned to, struct error *e)
{
	char random8[9];
	int r = store_random_hex(random8, 4, e);

	if (r < 0)
		return r;
	for (unsigned i = from; i < to; i++)
		if ((r = expand(sql, steps[i], random8)) < 0)
			return error_errno(e, -r, "writing schema step %u", i + 1);
	return 0;
}

/* A row that points nowhere would be found at the next open; better not to commit it. */
static int check_references(struct store *s, struct error *e)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(s->db, "PRAGMA foreign_key_check", -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	(void)sqlite3_finalize(stmt);
	if (rc == SQLITE_ROW)
		return error_set(e, EUCLEAN, "%s: the new tables would not fit together; it was left as it is", s->path);
	return rc == SQLITE_DONE ? 0 : store_error(s, rc, "checking the new tables", e);
}

int store_schema_migrate(struct store *s, unsigned from, unsigned to, struct error *e)
{
	CLEANUP_BUF struct buf sql = BUF_INIT(64 * 1024);
	int r = write_steps(&sql, from, to, e), on;

	if (r < 0)
		return r;
	r = buf_addf(&sql, "PRAGMA application_id = %d;\nPRAGMA user_version = %u;\n", STORE_APPLICATION_ID, to);
	if (r < 0)
		return error_errno(e, -r, "writing the schema");

	/* This one knows no transaction, so it stands around ours. */
	r = store_exec(s, "PRAGMA foreign_keys = OFF", "creating the tables", e);
	if (r == 0) {
		CLEANUP_TRANSACTION struct transaction t = {0};

		r = transaction_start(&t, s, e);
		if (r == 0)
			r = store_exec(s, sql.data, "creating the tables", e);
		if (r == 0)
			r = check_references(s, e);
		if (r == 0)
			r = transaction_commit(&t, e);
	}
	on = store_exec(s, "PRAGMA foreign_keys = ON", "creating the tables", r < 0 ? NULL : e);
	return r < 0 ? r : on;
}

/* Columns: what it is, its name, and for each column of a table that one's name. */
#define OBJECTS                                                                                              \
	"SELECT m.type, m.name, ifnull(c.name, '') FROM sqlite_master m"                                     \
	" LEFT JOIN pragma_table_info(m.name) c ON m.type = 'table' WHERE m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"

/* Looks for one object of the model in the store. */
static int find_object(struct store *s, sqlite3_stmt *model, sqlite3_stmt *find, char *what, size_t size, struct error *e)
{
	const char *v[3] = {"", "", ""};
	int rc = SQLITE_OK;

	for (int i = 0; i < 3 && rc == SQLITE_OK; i++) {
		const char *text = (const char *)sqlite3_column_text(model, i);

		if (text)
			v[i] = text;
		rc = text ? sqlite3_bind_text(find, i + 1, text, -1, SQLITE_STATIC) : SQLITE_NOMEM;
	}
	if (rc == SQLITE_OK)
		rc = sqlite3_step(find);
	(void)sqlite3_reset(find);
	if (rc == SQLITE_DONE)
		(void)snprintf(what, size, "%s %s is missing%s%s", v[0], v[1], v[2][0] ? " or lacks the column " : "", v[2]);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_error(s, rc, "checking the tables", e);
}

static int compare(struct store *s, struct store *model, char *what, size_t size, struct error *e)
{
	sqlite3_stmt *all = NULL, *find = NULL;
	int rc = sqlite3_prepare_v2(model->db, OBJECTS, -1, &all, NULL), r = 0;

	if (rc != SQLITE_OK)
		r = store_error(model, rc, "checking the tables", e);
	else if ((rc = sqlite3_prepare_v2(s->db, OBJECTS " AND m.type = ?1 AND m.name = ?2 AND ifnull(c.name, '') = ?3", -1, &find,
			  NULL)) != SQLITE_OK)
		r = store_error(s, rc, "checking the tables", e);
	while (r == 0 && !what[0] && (rc = sqlite3_step(all)) == SQLITE_ROW)
		r = find_object(s, all, find, what, size, e);
	if (r == 0 && !what[0] && rc != SQLITE_DONE)
		r = store_error(model, rc, "checking the tables", e);
	(void)sqlite3_finalize(find);
	(void)sqlite3_finalize(all);
	return r;
}

int store_schema_check(struct store *s, unsigned version, char *what, size_t size, struct error *e)
{
	CLEANUP_BUF struct buf sql = BUF_INIT(64 * 1024);
	struct store model = {.path = s->path};
	int r = write_steps(&sql, 0, version, e), rc;

	what[0] = '\0';
	if (r < 0)
		return r;
	rc = sqlite3_open_v2(":memory:", &model.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
	r = rc == SQLITE_OK ? store_exec(&model, sql.data, "checking the tables", e) : store_error(&model, rc, "checking the tables", e);
	if (r == 0)
		r = compare(s, &model, what, size, e);
	(void)sqlite3_close(model.db);
	return r;
}
