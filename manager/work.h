#ifndef BOXERY_MANAGER_WORK_H
#define BOXERY_MANAGER_WORK_H
/*
 * The life of one lease as the runner service sees it, as data: pure, no I/O, no clock. work_step() is the
 * only place that knows an edge and the only one that changes a state; absent means ignored, so late and
 * repeated answers do no harm. What a state does when it is entered is in delivery.c, watch.c and closing.c.
 *
 *   LEASING -> PLANNING -> MINTING -> RECORDING -> DELIVERING -> WAITING -> IDLE <-> BUSY      the VM is ours
 *                  \          \           \            \           \        /        /
 *                   +----------+-----------+------------+-> RELEASING <- DELETING <-+
 *                                                               |      (asks GitHub first)
 *   VM ended by itself: from any of these ----------> closing: ASKING, NAMING, SPENT, LOOKING, CLEARING, FORGETTING
 *                                                              (PAUSED between tries) -> DONE
 *
 * The order inside closing is work_close()'s: outcome first, the registration's end last, because the keeper
 * lists a closed lease until its registration is known to be gone. That list is what a restart works off.
 */
#include "manager/config.h"
#include "manager/outcome.h"
#include <stdbool.h>
#include <stdint.h>

enum work_state {
	/* The keeper was asked for a VM. Refused: nothing to undo. */
	WORK_LEASING,
	/* The keeper commits that a registration may exist from now on, before GitHub is asked for one. */
	WORK_PLANNING,
	/* GitHub is asked for a registration. */
	WORK_MINTING,
	/* The keeper commits the registration's id. The JIT config is a sealed memfd in our hands. */
	WORK_RECORDING,
	/* The keeper delivers. What a lost answer means is for LEASES to say, never guessed. */
	WORK_DELIVERING,
	/* Delivered; GitHub has not seen the runner yet. */
	WORK_WAITING,
	/* GitHub sees the runner, without a job. */
	WORK_IDLE,
	/* GitHub says that it has a job. Nothing here ends it; the lease's own expiry does. */
	WORK_BUSY,
	/* A running guest is to be taken back: its registration goes first, and GitHub decides (422: it is busy). */
	WORK_DELETING,
	/* The keeper is asked to take the VM back. Repeated until it answers. */
	WORK_RELEASING,
	/* From here on the VM is no longer ours. GitHub is asked which job ran on this runner. */
	WORK_ASKING,
	/* The keeper is told the outcome. */
	WORK_NAMING,
	/* GitHub says that its job has ended. It takes such a registration back by itself, so that a list of runners which is
	 * read for others, too, may save a DELETE; where it does not, CLEARING follows. */
	WORK_SPENT,
	/* The id is not known: GitHub is asked for exactly this runner name. */
	WORK_LOOKING,
	/* GitHub is asked to delete exactly this id. */
	WORK_CLEARING,
	/* The keeper commits that the registration is gone. */
	WORK_FORGETTING,
	/* Something could not be asked; again when due. "Cannot tell" is never "gone". */
	WORK_PAUSED,
	WORK_DONE,
	WORK_STATE_COUNT
};
const char *work_state_to_string(enum work_state v);

enum work_event {
	WORK_EV_LEASED,
	WORK_EV_REFUSED, /* no VM READY, no such pool ... */
	WORK_EV_PLANNED,
	WORK_EV_MINTED,
	WORK_EV_MINT_FAILED,
	WORK_EV_RECORDED,
	WORK_EV_DELIVERED,
	WORK_EV_DELIVER_FAILED,
	WORK_EV_ONLINE, /* seen, without a job */
	WORK_EV_BUSY,	/* seen with a job, or a DELETE was refused for that reason */
	WORK_EV_OVERDUE,
	WORK_EV_DELETED,      /* 204 or 404 */
	WORK_EV_UNKNOWN,      /* GitHub could not be asked */
	WORK_EV_RELEASED,     /* or was closed already */
	WORK_EV_ENDED,	      /* the keeper is resetting the VM */
	WORK_EV_STOP,	      /* the service is ending */
	WORK_EV_KEEPER_ERROR, /* the keeper could not be asked, or refused */
	WORK_EV_DECIDED,      /* the outcome is known */
	WORK_EV_AGAIN,	      /* it is too early to tell */
	WORK_EV_NAMED,
	WORK_EV_FOUND,
	WORK_EV_ABSENT,
	WORK_EV_FORGOTTEN,
	WORK_EV_DUE, /* the wait of PAUSED, DELETING, RELEASING or SPENT is over */
	WORK_EVENT_COUNT
};
const char *work_event_to_string(enum work_event v);

struct work_entry; /* the service's side of a runners.yaml entry */

struct work {
	struct work *next;
	uint64_t number; /* names it in callbacks: a work may be gone when an answer comes */
	struct work_entry *entry;
	enum work_state state;
	char lease[LEASE_ID_MAX], vm[VM_NAME_MAX], scope[SCOPE_MAX], runner_name[RUNNER_NAME_MAX];
	uint64_t runner_id; /* 0: not known */
	enum registration registration; /* what the keeper has committed */
	int jit_fd;

	bool delivered; /* the secret may have left the host */
	bool deleted;	/* GitHub has no such registration (any more), or never had one */
	bool seen_online, noted_online, took_job, job_told;
	bool queued_noted; /* the timeline has when the job was queued */
	bool limited;	 /* the lease ends when the job's time is over, or the keeper is being told so */
	bool asking;	 /* a question about the running runner is on its way */
	bool in_roster;	 /* a list of runners that answers for it is on its way */
	bool spent;	 /* GitHub says that a job ended on it, and the list of runners was not waited for yet */
	bool listed;	 /* its job was among those of the last list */
	bool delivering; /* the keeper's answer to DELIVER is on its way */
	char job[JOB_NAME_SHOWN_MAX];
	char job_repo[SCOPE_MAX]; /* where the job's run is, once it was seen; an organization's runner may have it in any of its repositories */
	uint64_t job_run;	  /* 0: not known */
	uint64_t queued_s;	  /* how long the job waited, by GitHub's clock; 0: not known */
	unsigned repo_at;	  /* ASKING: which of the entry's repositories is being asked */
	enum hint hint;
	enum outcome outcome;
	bool outcome_stored;
	enum vm_happening cause; /* when the keeper has ended it */
	bool clean_end;

	uint64_t begun_ms;   /* boot clock: when the lease was asked for, or found again */
	uint64_t since_ms;   /* state entered */
	uint64_t due_ms;     /* PAUSED, DELETING, RELEASING, SPENT: when to try again; 0: an answer is awaited */
	uint64_t first_ms[WORK_STATE_COUNT]; /* boot clock: when each state was entered first; 0: never */
	uint64_t offline_ms; /* since when GitHub sees a running guest's runner offline, as far as it was seen online; 0: it does not */
	uint64_t asked_ms;   /* when GitHub was last asked about the runner itself */
	uint64_t gone_ms;    /* since when GitHub does not know the runner of a running guest; 0: it does */
	uint64_t settle_ms;  /* until when "not found" may only mean "not yet" */
	uint64_t patient_ms; /* until when an unfinished job may only mean "not listed yet" */
	uint64_t wait_ms;    /* for the next PAUSED; 0: grows with tries */
	unsigned tries;
};

/* True when the event changed the state (or entered it again, after a wait); false: ignored, nothing changed. */
bool work_step(struct work *w, enum work_event event, uint64_t now_ms);
/* What is still to be done for a lease whose VM is not ours any more. Sets the outcome of a guest that got nothing. */
enum work_state work_close(struct work *w);
bool work_is_open(enum work_state s);	     /* the VM is ours, or may become so */
bool work_is_watched(enum work_state s);     /* WAITING, IDLE, BUSY: GitHub is asked about the runner */
bool work_is_unfilled(const struct work *w); /* open, and will take a job that is queued now */

/* GitHub gives up a runner that has not been heard of for about 10 minutes; after this one it is not waited for any more. */
#define WORK_OFFLINE_GRACE_MS (15 * 60 * 1000)
#define WORK_GONE_GRACE_MS 120000 /* a runner without registration has this long to power its guest off */
/* Is it time to take a watched VM back? Whether it happens is GitHub's word. */
bool work_overdue(const struct work *w, const struct runners_entry *conf, uint64_t now_ms);
/* The outcome of a voluntary stop, as far as it is known without asking. */
enum outcome work_overdue_outcome(const struct work *w);
#endif
