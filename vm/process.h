#ifndef BOXERY_VM_PROCESS_H
#define BOXERY_VM_PROCESS_H
/*
 * The QEMU of a life whose disk nobody wants any more. libvirt's destroy asks it to end with SIGTERM and then looks only
 * every 200 ms whether it has (src/util/virprocess.c of libvirt 9, virProcessKillPainfullyDelay). Of one that is dead already
 * it only takes the rest away, so a reset kills first: of 220 ms some 20 are left.
 */
#include "vm/virt.h"

/*
 * Kills the QEMU of a domain of ours and waits, at most PROCESS_KILL_MS, until it is dead. libvirt has no call that tells its pid:
 * the pid file of libvirt's QEMU driver does, and is believed only when that process was started for the domain's UUID. True:
 * it is dead. False: there is none to be found, or it may not be killed; then virt_destroy() does all the work, as it must
 * be called in any case. Never for a disk that is kept: QEMU has no time to write what it holds.
 */
#define PROCESS_KILL_MS 2000
bool process_kill(const struct host *h, virDomainPtr d);
#endif
