#ifndef BOXERY_POOL_KILLPOINTS_H
#define BOXERY_POOL_KILLPOINTS_H
/*
 * Places where the fault tests kill the keeper, as kill -9 would. Built only with -Dkill_points=true (and in the tests'
 * own keeper); otherwise nothing of this is in the program. BOXERY_TEST_KILL=NAME kills at the first passage,
 * BOXERY_TEST_KILL=NAME/N at the Nth.
 *
 *   before-HAPPENING, after-HAPPENING   around the commit of each happening that changes a state ("after-DELIVER")
 *   new-inserted       NEW: the row is committed, nothing is made yet
 *   new-made           NEW: made, the reply not sent
 *   other-inserted     POOL_ADD with a count: the row of one more is committed, nothing is made yet
 *   granted            LEASE with an ssh key: the guest has the key, and only memory knows
 *   halted             the domain of a kept VM is off, and only memory knows
 *   removing           REMOVE, POOL_REMOVE: the wish is committed, nothing is done yet
 *   removed            REMOVE: nothing is left of the VM but its row
 *   patch-wished       POOL_PATCH: the wishes are committed, nothing is done yet
 *   patched            the first start has proven a patch, what is left of the old clean state is there
 *   spawned-VERB       a child of boxery-vm was started ("spawned-START")
 *   result-VERB        its result is in memory only
 *   life-recorded      START: key and address are in the store, STARTED is not
 *   wake-recorded      LEASE of a VM in standby: it is awake, key and address are in the store, nobody was answered
 *   filter-checked     DELIVER: the filter was found active
 *   connected          DELIVER: the socket to the guest is connected
 *   deliver-spawned    DELIVER: the child has the secret
 *   deliver-result     DELIVER: the guest has it, and only memory knows
 *   deliver-recorded   DELIVER: recorded, the reply not sent
 */
#ifdef BOXERY_KILL_POINTS
void kill_point(const char *kind, const char *name); /* the two make one name, "KIND-NAME"; name may be NULL */
#define KILL_POINT(kind) kill_point((kind), NULL)
#define KILL_POINT_OF(kind, name) kill_point((kind), (name))
#else
#define KILL_POINT(kind) ((void)0)
#define KILL_POINT_OF(kind, name) ((void)0)
#endif
#endif
