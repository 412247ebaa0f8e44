#ifndef BOXERY_POOL_STORE_H
#define BOXERY_POOL_STORE_H
/*
 * The keeper's database (SQLite: WAL, synchronous=FULL, STRICT tables, CHECKs, user_version migrations). Only
 * the keeper opens it, 0600, with an exclusive lock. One function changes a VM's state: store_apply(), one
 * transaction for state, generation, attempts, lease row and event row, committed before the caller acts. A
 * commit that fails leaves everything as it was. A database of a newer version is refused (-EPROTO) and never
 * touched; a damaged one is refused (-EUCLEAN), with the way back in words: every open of a sound database
 * first copies it, whole and synced, to PATH.last-good. Text that only informs (step, reason, job, outcome,
 * event text) is made printable and cut to its field, so that a long answer from outside can never stop a
 * transition. One process, one thread, one open store per file.
 *
 * Errors: -EROFS -EACCES -ENOSPC -EIO the file cannot be written (nothing was changed), -EBUSY another keeper
 * has it open (store_open), -EINVAL -ENAMETOOLONG an argument is out of its range, -EUCLEAN damage found
 * later.
 */
#include "base/cleanup.h"
#include "pool/proto.h"
#include "pool/state.h"
#include "linux/clock.h"

#define STORE_EVENTS_PER_VM_MAX 500  /* older ones are dropped in the same transaction */
#define STORE_LEASES_CLOSED_MAX 1000 /* closed and swept leases kept */
#define STORE_EVENTS_LOOSE_MAX 2000  /* events of no VM or of a removed one */
#ifndef STORE_VMS_MAX /* a test without a network has more */
#define STORE_VMS_MAX 240 /* the slots that a network has (vm/slot.h) */
#endif
#define STEP_MAX 32
#define REASON_MAX ERROR_TEXT_MAX

struct store;
int store_open(const char *path, struct store **ret, struct error *e);
struct store *store_free(struct store *s);
DEFINE_CLEANUP(struct store *, store_free);
const char *store_host_id(const struct store *s); /* 8 hex digits, made at the first open */
/* "", or one sentence for the log: the open succeeded but PATH.last-good could not be renewed. */
const char *store_warning(const struct store *s);
int store_backup(
	struct store *s, struct error *e); /* renews PATH.last-good; the last one stays on any failure */

struct vm_row {
	char name[VM_NAME_MAX], pool[VM_NAME_MAX], image[VM_NAME_MAX];
	char clean_of[VM_NAME_MAX]; /* the VM whose clean state this one starts from; "": its own */
	uint32_t slot, cpus, memory_mib, disk_gib;
	enum vm_state state;
	uint64_t generation;
	int32_t attempts;
	int32_t cleared; /* what READY made of attempts: a SHORT_LIFE or a WAKE_FAILED goes on from there */
	/*
	 * Failures in a row of lives that were started warm, and the last one in words. A cold life changes neither, or a VM whose
	 * memory image is no good would go round for ever: warm fails, cold succeeds, and all is forgotten.
	 */
	int32_t warm_failures;
	bool warm; /* this life, or the last one, was started warm */
	char warm_reason[REASON_MAX];
	char evidence[REASON_MAX];		 /* of BROKEN and KEPT: where the overlay is kept, or "" */
	char step[STEP_MAX], reason[REASON_MAX]; /* of the last failure; cleared by READY */
	char host_key[512], address[46];	 /* of this life; of one in standby "" until it is woken */
	uint64_t since_boot_us, since_wall_us;	 /* when the state was entered */
	char since_boot_id[BOOT_ID_MAX];
	char lease[LEASE_ID_MAX]; /* the open lease, or "" */
	bool removing;		  /* an admin wants it gone: once it is at rest it is removed, whoever is killed meanwhile */
	/*
	 * An admin wants its clean state on this base image, "": on `image`, as it is. While `trial` it is there, `image` is the one
	 * before, and the next start decides: STARTED makes patch the image, and the clean state the VM's own; what fails goes back.
	 */
	char patch[VM_NAME_MAX];
	bool trial;
	char patch_reason[REASON_MAX]; /* why the last patch came to nothing; "" with a new one */
};
bool vm_sleeps(const struct vm_row *v); /* READY in standby, or LEASED and not awake yet */

struct lease_row {
	char id[LEASE_ID_MAX], vm[VM_NAME_MAX], pool[VM_NAME_MAX], holder[HOLDER_MAX], scope[SCOPE_MAX];
	char runner_name[RUNNER_NAME_MAX]; /* boxery-HOSTID-RANDOM, made here, unique for ever */
	uint64_t generation, runner_id;
	enum registration registration;
	bool open, bound;
	uint64_t opened_wall_us, closed_wall_us;
	uint64_t delivered_wall_us; /* when DELIVERED was committed; 0: no secret can have left the host */
	uint64_t expires_boot_us;   /* with boot_id; another boot id means: look again at start-up */
	char boot_id[BOOT_ID_MAX];
	uint64_t keep_ms; /* its VM is to be kept this long when it ends; 0: reset at once */
	char job[128], outcome[64], end_reason[REASON_MAX];
};

/*
 * -EEXIST; -ENOSPC at STORE_VMS_MAX. Picks the lowest free slot (slot and since_* of *v are not read). Two
 * births only: PLAIN without a pool, or RESETTING with one (a pool VM found on the host whose row is lost:
 * its past is unknown). clean_of, when it is set, names a pool VM that has a clean state of its own.
 */
int store_vm_insert(struct store *s, const struct vm_row *v, struct error *e);
int store_vm_get(struct store *s, const char *name, struct vm_row *ret, struct error *e); /* -ENOENT */
int store_vm_delete(
	struct store *s, const char *name, struct error *e); /* -EBUSY with an open lease, or while others start from its clean state; history stays */
/* The wish for a patch, "": none; reason: why the last one is over, or "". Not while it is being done: -EBUSY. */
int store_vm_set_patch(struct store *s, const char *name, const char *image, const char *reason, struct error *e);
int store_vm_set_removing(struct store *s, const char *name, bool removing, struct error *e);
int store_vm_forgive_warm(struct store *s, const char *name, struct error *e); /* warm_failures = 0 */
/*
 * A life newer than the recorded one was seen on the host (an older copy of the database came back): raises
 * the number so that it is never given out again. Never lowers it. The caller raises DOUBT next.
 */
int store_vm_raise_generation(struct store *s, const char *name, uint64_t generation, struct error *e);
/*
 * Calls back for every VM in name order; a non-zero return stops and is returned. The rows are those of the
 * moment of the call; the callback may use the store (this holds for all three _each).
 */
int store_vm_each(
	struct store *s, int (*cb)(void *userdata, const struct vm_row *v), void *userdata, struct error *e);
int store_vm_set_life(struct store *s, const char *name, uint64_t generation, const char *host_key,
	const char *address, struct error *e); /* what a start found out; only while STARTING or PLAIN, with
						  that generation: else -ESTALE */
struct event_row;
/*
 * What a wake-up found out, and its steps, in one commit: the VM has lived, and a later
 * failure is the first in its row. Only while LEASED and asleep, with that generation: else -ESTALE.
 */
int store_vm_woken(struct store *s, const char *name, uint64_t generation, const char *host_key, const char *address,
	const struct event_row *steps, size_t n_steps, struct error *e);

struct store_detail { /* all optional, NULL, "" or 0; the pointer to it may be NULL as well */
	const char *step, *reason;
	uint64_t took_us;
	/* HAPPENING_LEASE and HAPPENING_INSPECT only; holder and ttl_ms (1..STORE_TTL_MAX_MS) are needed: */
	const char *holder, *scope;
	uint64_t ttl_ms;
	bool bound;
	/* what ends a lease: the holder's last word with RELEASE, a preliminary one with anything else; without one, a
	 * runners' lease that got nothing and that no registration was planned for is "not-delivered" */
	const char *outcome;
	const char *pool; /* HAPPENING_ADD: the pool to join */
	bool warm; /* HAPPENING_START: this life is started warm */
	const char *evidence; /* what makes a VM BROKEN or KEPT: where its overlay is */
	enum vm_happening cause; /* HAPPENING_KEEP: what ended the lease */
	/* what the operation did that has led to this, with times of their own: written in the same commit, before it */
	const struct event_row *steps;
	size_t n_steps;
};
#define STORE_TTL_MAX_MS (30ull * 24 * 3600 * 1000)
/*
 * The one way to change a state. `generation`: the life the happening speaks of; 0 means "the current one";
 * another than the stored one is ignored. Returns 1 with *ret_change and *ret_row (after; both may be NULL)
 * when something changed, 0 when the table has no such edge, -errno when the commit failed. DELIVER commits
 * only when the open lease of this very life has not been delivered before. A new generation clears host_key
 * and address. step and reason are set by what counts as a failure, by DOUBT and by MAINTAIN_FAILED.
 */
int store_apply(struct store *s, const char *name, uint64_t generation, enum vm_happening what,
	const struct store_detail *d, struct state_change *ret_change, struct vm_row *ret_row,
	struct error *e);

int store_lease_get(struct store *s, const char *id, struct lease_row *ret, struct error *e);
struct lease_filter {
	const char *holder, *vm; /* NULL or "": any */
	bool unfinished;	 /* only open ones, and closed ones whose registration is not known to be gone */
	unsigned limit;		 /* 0: none. Open ones are never left off for closed ones, nor unfinished ones for finished; newest first */
};
/* In the order in which they were opened; *ret_left_off (may be NULL): how many more there are than the limit. */
int store_lease_each(struct store *s, const struct lease_filter *which, unsigned *ret_left_off,
	int (*cb)(void *userdata, const struct lease_row *l), void *userdata, struct error *e);
/* Never backwards (-EALREADY); the same again is 0. MADE needs the runner_id and keeps it: another one is
 * -EEXIST. */
int store_lease_register(
	struct store *s, const char *id, enum registration r, uint64_t runner_id, struct error *e);
int store_lease_job(struct store *s, const char *id, const char *job, struct error *e);
/* The holder's last word, on an open or a closed lease. Once, a RELEASE with an outcome included: then
 * -EALREADY. */
int store_lease_outcome(struct store *s, const char *id, const char *outcome, struct error *e);
int store_lease_renew(
	struct store *s, const char *id, uint64_t ttl_ms, struct error *e); /* -EALREADY when it has ended */
/* Before it ends, or while its VM is KEPT: then the time counts from when that began. -EALREADY. */
int store_lease_keep(struct store *s, const char *id, uint64_t keep_ms, struct error *e);

struct pool_row {
	char name[VM_NAME_MAX];
	struct pool_settings set; /* 0: no limit, warm, paused; never POOL_SETTING_NONE. As read: start and standby are never 0 */
};
/* Replaces the pool's row; one without any setting is removed. A pool that is not stored has none. */
int store_pool_put(struct store *s, const struct pool_row *p, struct error *e);
int store_pool_each(
	struct store *s, int (*cb)(void *userdata, const struct pool_row *p), void *userdata, struct error *e);

/* Free-standing event rows (stages of a start, delivery steps). vm and lease may be NULL. A transition writes
 * its own row: kind is the happening's word, text "FROM -> TO", then ": step: reason". */
int store_event(struct store *s, const char *vm, const char *lease, uint64_t generation, const char *kind,
	const char *text, uint64_t took_us, struct error *e);
struct event_row {
	uint64_t id, wall_us, boot_us, generation, took_us;
	char vm[VM_NAME_MAX], lease[LEASE_ID_MAX], kind[STEP_MAX], text[REASON_MAX];
};
/* Several of one VM, with times of their own, in one commit; their ids are not read. */
int store_events(struct store *s, const struct event_row *v, size_t n, struct error *e);
/* Oldest first. lease: all events of that lease, and the reset and start that followed it; else vm, or NULL
 * for all: the newest `limit` (0: STORE_EVENTS_PER_VM_MAX). */
int store_event_each(struct store *s, const char *vm, const char *lease, unsigned limit,
	int (*cb)(void *userdata, const struct event_row *v), void *userdata, struct error *e);
#endif
