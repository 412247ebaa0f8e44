#ifndef BOXERY_POOL_KEEPER_LIMITS_H
#define BOXERY_POOL_KEEPER_LIMITS_H
/*
 * Every number the keeper waits for or stops at. The fault tests build a keeper whose times are shorter; that is what
 * the #ifndefs are for.
 */
#ifndef KEEPER_BACKOFF_1_MS
#define KEEPER_BACKOFF_1_MS 2000 /* after the first failure in a row */
#define KEEPER_BACKOFF_2_MS 10000 /* after the second; the third is BROKEN */
/*
 * A VM that stops by itself so soon after it was READY counts as a failed start. Long enough for a guest that panics or is
 * killed for its memory once it has booted, short enough that a guest somebody ends three times in a day is none.
 */
#define KEEPER_SHORT_LIFE_MS 20000
#define KEEPER_COMMIT_RETRY_MS 5000 /* the database could not be written */
#define KEEPER_START_GRACE_MS 5000 /* on top of BOXERY_START_TIMEOUT, which boxery-vm keeps itself */
#define KEEPER_RESET_TIMEOUT_MS 60000
#define KEEPER_STOP_TIMEOUT_MS 30000 /* of a clean shutdown, then the domain is destroyed */
#define KEEPER_STOP_GRACE_MS 15000
#define KEEPER_CAPTURE_TIMEOUT_MS 900000 /* hashes a whole disk */
#define KEEPER_WORK_TIMEOUT_MS 120000 /* new, remove */
#define KEEPER_CHECK_TIMEOUT_MS 180000 /* starts a guest to see whether KVM is real */
#define KEEPER_ASK_TIMEOUT_MS 30000 /* filter, list: a connection to libvirt alone may take seconds */
#define KEEPER_RESULT_GRACE_MS 2000 /* from a child's result to its end */
/*
 * A holder waits meanwhile. Three in a row and their graces have to fit into what the runner service waits for a lease
 * (QUICK_TIMEOUT_MS in manager/keeper_link.c).
 */
#define KEEPER_WAKE_TIMEOUT_MS 15000
#define KEEPER_WAKE_GRACE_MS 2000 /* on top; boxery-vm keeps the first itself, and knows the step */
#define KEEPER_WARM_START_MS 120000 /* on top of BOXERY_START_TIMEOUT: a first warm start captures and restores as well */
#define KEEPER_CONNECT_TIMEOUT_MS 10000
#define KEEPER_CONNECT_AGAIN_MS 200
#define KEEPER_DELIVER_TIMEOUT_MS 60000
#define KEEPER_DELIVER_GRACE_MS 1000
#define KEEPER_STOPPED_GRACE_MS 10000 /* from "stopped" until a start that says nothing is given up */
#define KEEPER_SHUTDOWN_MS 10000
/*
 * So long libvirt may be away before that is anybody's failure: an upgrade restarts it in seconds, and no VM may become BROKEN by
 * that. What fails after it counts, so that a libvirt that stays away is seen.
 */
#define KEEPER_OUTAGE_MS 30000
#define KEEPER_RECONNECT_MS 1000 /* watch and listing: doubled each time ... */
#define KEEPER_RECONNECT_MAX_MS 30000 /* ... up to this */
/*
 * How long a state may last. An operation's own deadline is shorter and says more; these are for a VM that has none, or whose
 * operation was lost. One that only waits for its turn is not the VM's fault and gets the time again.
 */
#define KEEPER_STARTING_GRACE_MS 60000 /* on top of BOXERY_START_TIMEOUT and KEEPER_START_GRACE_MS */
#define KEEPER_RESETTING_MS 300000
#define KEEPER_CAPTURING_MS 1200000 /* ADDING and MAINTENANCE; one with an open lease ends with that */
#define KEEPER_LEASED_MS 1800000 /* the runners' holders: a lease that is not delivered to by then waits for nothing good */
/* From a keeper's start; above RECONNECT_MAX_MS of manager/keeper_link.c, by which a holder tries again. */
#define KEEPER_REJOIN_MS 30000
#define KEEPER_SPARE_DELAY_MS 50 /* from the use of a spare child to the start of the next: whoever uses it comes first */
#define KEEPER_SPARE_AGAIN_MS 10000 /* after one has ended by itself, or could not be started */
#define KEEPER_HOST_RETRY_MS 15000 /* the host was short of memory or disk */
#define KEEPER_MEMINFO "/proc/meminfo"
#endif
/* An operation that has used this part of its time does not hold a place any more: others go on beside it. */
#define KEEPER_SLOW_PART 3
#define KEEPER_SLOW_MAX 16 /* so many at once; the next one keeps its place */
#define KEEPER_REMOVE_DOUBLINGS 6 /* of KEEPER_HOST_RETRY_MS: a removal that keeps failing is tried every 16 minutes */
#define KEEPER_MEMORY_SPARE_MIB 512 /* left to the host when a VM is started */
#define KEEPER_POOL_COUNT_MAX 240 /* VMs of one POOL_ADD */
#define KEEPER_POOLS_MAX 240 /* that have settings: as many as there may be VMs */
#define KEEPER_RATE_MAX 1000000 /* of any rate in pool_settings */

#define KEEPER_SPARES 2 /* children of boxery-vm that wait for an order: a reset is followed by a start */
#define KEEPER_ASKS_MAX 8 /* children that only look or are short, at once; starts and resets: BOXERY_PARALLEL */
#define KEEPER_WAKES_MAX 16 /* VMs woken at once, beside all that: somebody waits for each of them */
#define KEEPER_WAKE_TRIES 3 /* VMs tried for one LEASE whose wait is over */
#define KEEPER_WARM_FAILURES_MAX 3 /* in a row of lives that were started warm; then the VM starts cold until a repair */
#define KEEPER_STEPS_MS 100 /* the steps of an operation are recorded with its end, or so long after the first of them */
#define KEEPER_STEPS_MAX 64 /* VM_STEPs one operation may send */
#define KEEPER_ENTRIES_MAX 4096 /* VM_ENTRYs one listing may have */
#define KEEPER_READ_BATCH 64 /* messages read from one child before others have their turn */
#define KEEPER_BLAME_MAX 3 /* failures in a row of one VM that are put down to libvirt, which answers in between; then they count */
#define KEEPER_UNREAD_MAX 3 /* tries in a row to read what the database has of a life under a lease; then it is in doubt */
#define KEEPER_STRANGERS_MAX 32 /* foreign names that are told; who has more has seen enough of them */
#define KEEPER_DELIVER_PORT 22
#define KEEPER_MEMORY_MIN_MIB 64
#define KEEPER_CPUS_MAX 64
#define KEEPER_DISK_MAX_GIB 16384
#define KEEPER_DISK_SPARE_MIB 1024 /* free space below which no VM is made */
#define KEEPER_HISTORY_MAX 1000 /* event rows in one answer */
#define KEEPER_LESSEES_MAX 224 /* leases waited for at once, each on a connection of its own: the rest of KEEPER_CLIENTS_MAX is for all else */
#define KEEPER_LEASES_MAX 1500 /* leases in one answer: of the longest texts they still fit into a document */
#endif
