#ifndef BOXERY_POOL_PROTO_H
#define BOXERY_POOL_PROTO_H
/*
 * The keeper's socket (hostconf.keeper_socket, 0600): boxery-host, boxery-runners, `once`. One keeper_request, then any
 * number of KEEPER_PROGRESS with the same seq, then one KEEPER_REPLY with it. Lists come as a JSON document in a sealed
 * memfd on the reply. After KEEPER_SUBSCRIBE the connection also gets KEEPER_EVENT (seq 0) for every transition.
 * Caller identity is SO_PEERCRED: the keeper's own uid and root may do everything; nobody else gets in.
 *
 * request            takes                                      reply
 * HELLO              -                                          text: version, name: host id
 * NEW                name, image, cpus, memory_mib, disk_gib    -                       (0: the defaults 2, 2048, 20)
 * LIST               -                                          JSON {"vms":[...]}: every VM, pool or not
 * START, STOP        name (PLAIN)                               address
 * REMOVE             name, FORCE                                -
 * POOL_ADD           name, pool, count                          -  captured, COLD; with WAIT: READY. count > 1: name and further
 *                                                               VMs name-2 .. name-count that share its clean state
 * POOL_REMOVE        name, FORCE                                -  leaves the pool and is removed, clean image included
 * POOL_REPAIR        name                                       -  BROKEN -> RESETTING; with WAIT: READY
 * POOL_PATCH         name, or ALL and pool ("": all), image      -  its clean state, and that of those which share it, is to be on this base
 *                                                               image; done when it is its turn, see vms. image "": not any more
 * POOL_SET           pool, settings (0: leave as it is)         -  limits of every later start of the pool's VMs; reservations
 * POOLS              -                                          JSON {"pools":[...]}
 * POOL_KEEP          name, ttl_ms                               -  the lease that runs now ends in KEPT instead of RESETTING: domain off,
 *                                                               overlay kept for an admin to look, reset when ttl_ms is over,
 *                                                               or by POOL_REPAIR; ttl_ms 0 takes it back
 * LEASE              pool or name, holder, scope, ttl_ms, BIND  lease, name, generation, address, runner_name
 *                    wait_ms: -EAGAIN now, or wait this long    host_key. text: an ssh public key that shall open root's login
 *                                                               (installed before anybody's code runs; then the agent is
 *                                                               not believed any more); never for the runners' holders.
 *                    name + BROKEN: an admin looks: no repair   generation, text: where the kept overlay is
 *                                                               and no reset until it is released (state MAINTENANCE)
 * RENEW              lease, ttl_ms, BIND                        -  from now; never shorter than what is left only if FORCE. BIND: a
 *                                                               lease that was bound to an earlier keeper's connection is to this one
 * LEASES             holder ("" all), name of a VM ("" all)     JSON {"leases":[...],"left_off":N}: open ones, and closed ones
 *                                                               whose registration is not known to be gone (the sweep list); of
 *                                                               too many the oldest are left off, open ones last
 * REGISTER           lease, registration, runner_id             -  what is known about the GitHub registration
 * DELIVER            lease + the sealed memfd                   -  when the guest has it; DELIVERED is committed first
 * JOB_SEEN           lease, text: job name                      -
 * RELEASE            lease, text: outcome word                  -  RESETTING is committed; unknown lease -ENOENT,
 *                                                                  already closed -EALREADY
 * OUTCOME            lease (open or closed), text               -  last word on a closed lease (once; a second is -EALREADY)
 * NOTE               lease, text (one short line)               -  a row in the lease's timeline, for people: "runner is online"
 * HISTORY            lease or name                              JSON {"events":[{at,boot_us,vm,lease,generation,kind,text,took_us}]}
 * SUBSCRIBE          -                                          -
 * CHECK              -                                          JSON {"checks":[{name,ok,text}]} (boxery-vm VM_CHECK)
 * FILTER             name                                       -  0 when this life's filter is in force
 * UNINSTALL          FORCE                                      -  network, filter and host rules go; -EBUSY while there is any VM, or
 *                                                               files of one that is in no row, unless FORCE
 * QUIT               -                                          -  the keeper ends after the reply; VMs are left alone
 *
 * A connection's requests are answered one after the other: the next one is read when the last one has its reply. Who
 * wants to wait and to ask at the same time opens two.
 * LEASE: a name wins over a pool. ttl_ms 0 is KEEPER_TTL_DEFAULT_MS. wait_ms that passes in vain is -EAGAIN too; -EBUSY when KEEPER_LESSEES_MAX wait already.
 *
 * Documents (numbers are integers, "" and 0 where there is nothing to say, times are UTC text):
 * vms      (also: evidence: where a BROKEN or KEPT VM's overlay is kept, or why it is not, kept_for_ms, clean_of: whose clean state it starts from,
 *          waits: how a READY VM waits for a holder, "paused" or "running", else "",
 *          patch: the base image it is to be patched to, patching: that has begun, patch_waits: why not yet, patch_failed: why the
 *          last one came to nothing,
 *          trouble: what is wrong with its files or domain right now, as libvirt or the host show it)
 *          name pool image state generation attempts step reason slot cpus memory_mib disk_gib address host_key running
 *          (what libvirt said last) work (operation under way, or "") lease holder since age_ms (-1: of another boot)
 * leases   lease vm pool holder scope runner_name generation runner_id registration open bound state (of its VM while open;
 *          an open lease of a RESETTING VM has ended and is closed with the reset) opened closed expires_in_ms job outcome
 *          end_reason
 *          (outcome: the holder's last word; until then, or when it has never said one, the keeper's own: delivery-failed,
 *          grant-failed, wake-failed, removed, and not-delivered of a runners' lease that ended before anything was planned)
 * pools    name vms ready leased broken, and the settings under their names (0: none set; start and standby are words)
 */
#include "base/parse.h"
#include "linux/msg.h"

#define HOLDER_MAX 48
#define LEASE_ID_MAX 33   /* 32 hex digits */
#define RUNNER_NAME_MAX 65
#define KEEPER_TEXT_MAX ERROR_TEXT_MAX
#define KEEPER_LINE_MAX 1024 /* of a request's text: an ssh public key is the longest */
#define KEEPER_CLIENTS_MAX 256
#define KEEPER_TTL_DEFAULT_MS (6ull * 3600 * 1000)
#define KEEPER_TTL_MAX_MS (7ull * 24 * 3600 * 1000)
#define KEEPER_WAIT_MAX_MS (24ull * 3600 * 1000)
#define HOLDER_SERVICE "github-runner"
#define HOLDER_ONCE "github-runner-local"
#define POOL_DEFAULT "default"

enum keeper_type {
	KEEPER_HELLO = 1,
	KEEPER_NEW,
	KEEPER_LIST,
	KEEPER_START,
	KEEPER_STOP,
	KEEPER_REMOVE,
	KEEPER_POOL_ADD,
	KEEPER_POOL_REMOVE,
	KEEPER_POOL_REPAIR,
	KEEPER_LEASE,
	KEEPER_LEASES,
	KEEPER_REGISTER,
	KEEPER_DELIVER,
	KEEPER_JOB_SEEN,
	KEEPER_RELEASE,
	KEEPER_OUTCOME,
	KEEPER_HISTORY,
	KEEPER_SUBSCRIBE,
	KEEPER_CHECK,
	KEEPER_FILTER,
	KEEPER_QUIT,
	KEEPER_NOTE,
	KEEPER_POOL_SET,
	KEEPER_POOLS,
	KEEPER_POOL_KEEP,
	KEEPER_RENEW,
	KEEPER_UNINSTALL,
	KEEPER_POOL_PATCH,
	KEEPER_REQUEST_COUNT,
	/* keeper -> client */
	KEEPER_PROGRESS = 64,
	KEEPER_REPLY,
	KEEPER_EVENT,
	KEEPER_TYPE_COUNT
};

enum keeper_flag {
	KEEPER_FLAG_FORCE = 1 << 0,
	KEEPER_FLAG_BIND = 1 << 1, /* the lease ends with this connection */
	KEEPER_FLAG_WAIT = 1 << 2,
	KEEPER_FLAG_BROKEN = 1 << 4, /* LEASE: a BROKEN VM, to look at it */
	KEEPER_FLAG_ALL = 1 << 3,  /* LEASES: every closed lease that is still kept, too. POOL_PATCH: not one VM */
};

/* What is known about a lease's registration with GitHub; never moves backwards. */
enum registration {
	REGISTRATION_NONE,    /* nothing was asked of GitHub */
	REGISTRATION_PLANNED, /* the mint was sent; it may exist under the leased name */
	REGISTRATION_MADE,    /* exists with runner_id */
	REGISTRATION_GONE,    /* deleted, or GitHub says 404 */
	REGISTRATION_COUNT
};
const char *registration_to_string(enum registration v); /* none planned made gone */
int registration_from_string(const char *s, enum registration *ret);

/*
 * What a pool's VMs may use, and how many of its VMs only certain holders may take. A reservation of n for a holder means:
 * others are refused (or wait) while fewer than n VMs of the pool, READY or already that holder's, would be left for it.
 */
#define POOL_SETTING_NONE UINT32_MAX
struct pool_settings {
	uint32_t cpus, memory_mib;                /* of each VM, instead of what `new` said */
	uint32_t disk_mib_per_s, disk_iops;       /* each VM's disk, reads and writes together */
	uint32_t net_kib_per_s;                   /* each VM's network, each way */
	uint32_t reserve_service, reserve_local;  /* VMs for HOLDER_SERVICE and for HOLDER_ONCE */
	uint32_t start;                           /* enum pool_start */
	uint32_t standby;                         /* enum pool_standby */
};
/* How a VM starts: from its memory image, or by booting. A start after one that has failed is cold in either case. */
enum pool_start { POOL_START_WARM = 1, POOL_START_COLD, POOL_START_COUNT };
const char *pool_start_to_string(enum pool_start v); /* warm cold */
int pool_start_from_string(const char *s, enum pool_start *ret);
/* How a warm VM waits for a holder. */
enum pool_standby { POOL_STANDBY_PAUSED = 1, POOL_STANDBY_RUNNING, POOL_STANDBY_COUNT };
const char *pool_standby_to_string(enum pool_standby v); /* paused running */
int pool_standby_from_string(const char *s, enum pool_standby *ret);

struct keeper_request {
	struct msg_head head;
	char name[VM_NAME_MAX], pool[VM_NAME_MAX], image[VM_NAME_MAX];
	char holder[HOLDER_MAX], lease[LEASE_ID_MAX], scope[SCOPE_MAX];
	uint32_t flags, registration;
	uint32_t cpus, memory_mib, disk_gib;
	uint64_t ttl_ms, wait_ms, runner_id;
	char text[KEEPER_LINE_MAX];
	uint32_t count; /* POOL_ADD; 0 is 1 */
	struct pool_settings settings; /* POOL_SET; 0: leave as it is, POOL_SETTING_NONE: no limit any more */
};

struct keeper_progress {
	struct msg_head head;
	char text[KEEPER_TEXT_MAX];
};

struct keeper_reply {
	struct msg_head head;
	int32_t code; /* 0 or -errno, then text says it */
	char name[VM_NAME_MAX], lease[LEASE_ID_MAX], runner_name[RUNNER_NAME_MAX], address[46];
	uint64_t generation;
	char text[KEEPER_TEXT_MAX];
	char host_key[512]; /* LEASE: "ssh-ed25519 BASE64" of this life */
};

struct keeper_event {
	struct msg_head head;
	char name[VM_NAME_MAX], lease[LEASE_ID_MAX];
	uint64_t generation;
	int32_t from, to, what; /* enum vm_state, enum vm_happening */
	char text[KEEPER_TEXT_MAX];
};
extern const size_t keeper_request_sizes[KEEPER_TYPE_COUNT]; /* what the keeper accepts */
extern const size_t keeper_answer_sizes[KEEPER_TYPE_COUNT];  /* what a client accepts */
#endif
