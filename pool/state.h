#ifndef BOXERY_POOL_STATE_H
#define BOXERY_POOL_STATE_H
/*
 * The life of a VM as data: pure, no I/O, no clock. state_next() is the only place that knows an edge; absent
 * means ignored. The picture and the reasons are in docs/architecture.md, section 4.
 *
 * Failures are counted in a row: `attempts` grows with every failed start and every failed reset, is kept
 * through COLD and STARTING, and only READY (or an admin's hand) clears it. A VM that was READY for no more than a
 * moment (SHORT_LIFE) never was: its count goes on where READY had cleared it. Nor was one that waited in standby
 * and could not be woken for its lease (WAKE_FAILED). A failed start always goes to
 * RESETTING first, so that a VM is off when it becomes BROKEN; the verdict falls where the reset ends
 * (RESET_DONE or RESET_FAILED at STATE_ATTEMPTS_MAX). A lease is opened by READY -> LEASED, or by BROKEN ->
 * MAINTENANCE for an admin who looks, and closed where the reset ends, in COLD or in BROKEN.
 */
#include <stdbool.h>
#include <stdint.h>

enum vm_state {
	/* Outside the pool: an admin's VM. Operations: new, start, stop, rm, pool add. Caveat: never leased;
	 * whether it runs is libvirt's to say, START only gives it a new generation. */
	STATE_PLAIN,
	/* No domain, no overlay. Operations: start (with a new generation), maintenance, rm. */
	STATE_COLD,
	/* A start is under way or was lost. The only way into READY is from here, after the check. */
	STATE_STARTING,
	/*
	 * Clean, checked, nobody's. The only state that can be leased. It runs, or it is paused (standby): then it
	 * has no host key yet, since what makes it a life of its own is done when it is woken.
	 */
	STATE_READY,
	/* A holder has it, or will when it is awake; no secret has left the host yet, nobody's key is in the guest. */
	STATE_LEASED,
	/* The secret, or the holder's key, may have left the host. Nothing the guest says is believed from here on. */
	STATE_DELIVERED,
	/* GitHub says that its runner is busy. */
	STATE_BUSY,
	/* Being destroyed. Also the answer to every doubt. */
	STATE_RESETTING,
	/* Quarantined after three failures in a row. Leaves only by an admin's hand. */
	STATE_BROKEN,
	/*
	 * In an admin's hands: a pool VM that is being captured again or patched, or, with an open lease, a
	 * quarantined one that somebody looks at. It has a clean state to go back to.
	 */
	STATE_MAINTENANCE,
	/*
	 * An admin's VM that is being captured for the first time. A state of its own and not MAINTENANCE,
	 * because its failure leads back to PLAIN (there is nothing to reset to) and a keeper that starts
	 * anew must know that without a flag.
	 */
	STATE_ADDING,
	/*
	 * The lease has ended, the domain is off, the overlay is kept for an admin to look, until the time that was
	 * asked for is over. Caveat: what the job had is still on the overlay, credentials included. The lease is
	 * open in the store and closed with the reset.
	 */
	STATE_KEPT,
	STATE_COUNT
};
const char *state_to_string(enum vm_state v); /* "PLAIN" ... */
int state_from_string(const char *s, enum vm_state *ret);

enum vm_happening {
	HAPPENING_START,   /* the pool wants it READY */
	HAPPENING_STARTED, /* boxery-vm start succeeded, check included */
	HAPPENING_START_FAILED,
	HAPPENING_LEASE,
	HAPPENING_DELIVER,     /* the secret is about to leave the host */
	HAPPENING_JOB_SEEN,    /* GitHub says busy */
	HAPPENING_RELEASE,     /* by its holder */
	HAPPENING_STOPPED,     /* the hypervisor says that the domain is gone */
	HAPPENING_DEADLINE,    /* the state's own deadline */
	HAPPENING_EXPIRED,     /* the lease's ttl */
	HAPPENING_HOLDER_LOST, /* a connection-bound holder went away */
	HAPPENING_DOUBT,       /* anything that does not add up */
	HAPPENING_RESET_DONE,
	HAPPENING_RESET_FAILED,
	HAPPENING_REPAIR,
	HAPPENING_ADD,	      /* PLAIN: capture and join the pool */
	HAPPENING_MAINTAIN,   /* COLD or READY: capture again, patch */
	HAPPENING_MAINTAINED, /* capture done */
	HAPPENING_MAINTAIN_FAILED, /* or, STARTING: the first start of what was patched */
	HAPPENING_INTERRUPTED, /* a new keeper finds it in flight: done over, and not counted as the VM's
				  failure */
	HAPPENING_KEEP,	       /* a lease ends, and an admin has asked to keep its VM */
	HAPPENING_INSPECT,     /* an admin leases a BROKEN VM to look at it */
	HAPPENING_SHORT_LIFE,  /* STOPPED or DOUBT within seconds of becoming READY */
	HAPPENING_WAKE_FAILED, /* it was leased out of standby, and did not come out of it */
	HAPPENING_COUNT
};
const char *happening_to_string(enum vm_happening v); /* "START" ... */
int happening_from_string(const char *s, enum vm_happening *ret);

#define STATE_ATTEMPTS_MAX 3 /* failures in a row before BROKEN */

enum state_effect { /* what the keeper does after the commit */
	EFFECT_NONE,
	EFFECT_START,
	EFFECT_WAKE, /* a VM in standby; nothing for one that runs */
	EFFECT_DELIVER,
	EFFECT_RESET,
	EFFECT_CAPTURE,
	EFFECT_HALT,  /* the domain ends, its overlay stays */
	EFFECT_ALARM, /* loud log; nothing automatic */
};

struct state_change {
	enum vm_state to;
	enum state_effect effect;
	int32_t attempts;    /* the new count */
	bool new_generation; /* generation + 1 in the same transaction */
	bool opens_lease, closes_lease;
};
/*
 * Returns true and fills *ret when the happening changes something in this state; false: ignored, *ret
 * untouched. An edge may lead to the state it comes from: PLAIN on START (a new generation), RESETTING on a
 * failed or interrupted reset, KEPT when the host was restarted (its time counts anew). `attempts` is the
 * row's count; for SHORT_LIFE and WAKE_FAILED the one that READY had cleared.
 */
bool state_next(enum vm_state from, enum vm_happening what, int32_t attempts, struct state_change *ret);
bool state_has_lease(enum vm_state s); /* a holder has it: LEASED, DELIVERED, BUSY */
#endif
