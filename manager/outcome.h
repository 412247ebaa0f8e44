#ifndef BOXERY_MANAGER_OUTCOME_H
#define BOXERY_MANAGER_OUTCOME_H
/*
 * The one word (or two) that is left of a lease. GitHub's conclusion decides when there is one; the rest is
 * told apart by how the life ended. What the guest's console says refines the word only where no job ran, so that
 * nobody can have put it there.
 */
#include "manager/demand.h"
#include "pool/state.h"
#include <stdbool.h>

enum outcome {
	OUTCOME_UNKNOWN, /* not found out yet */
	OUTCOME_SUCCEEDED,
	OUTCOME_FAILED,
	OUTCOME_CANCELLED,
	OUTCOME_NO_JOB,		 /* the runner came and went, or idled until it was taken back */
	OUTCOME_NEVER_CONNECTED, /* delivered, but GitHub never saw it within start_timeout */
	OUTCOME_JOB_DEADLINE,	 /* the lease ran out during the job */
	OUTCOME_GUEST_DIED,	 /* crash, kill, or an end that left the job unfinished */
	OUTCOME_DELIVERY_FAILED,
	OUTCOME_MINT_FAILED,   /* GitHub refused a registration; the VM saw nothing */
	OUTCOME_MINT_CONFLICT, /* the name was taken, or may have been; a new lease has a new name */
	OUTCOME_NOT_DELIVERED, /* the service or the keeper ended before anything was delivered */
	OUTCOME_START_FAILED,	    /* its VM ended before anything was delivered */
	OUTCOME_SESSION_CONFLICT,   /* GitHub had another session for this runner */
	OUTCOME_VERSION_DEPRECATED, /* GitHub gives this version of the runner no jobs any more */
	OUTCOME_UPDATED_ITSELF,	    /* the runner ended to update itself */
	OUTCOME_COUNT
};
const char *outcome_to_string(enum outcome v); /* "succeeded", "no job" ... */
int outcome_from_string(const char *s, enum outcome *ret);
/* Did the lease take a job? */
bool outcome_had_job(enum outcome v);

/* What an outcome does to its entry. */
enum reaction {
	REACTION_GO_ON,
	REACTION_BACK_OFF, /* waits longer and longer, with an alarm when it goes on */
	REACTION_STOP,	   /* no lease any more until an admin resumes it: the next one would end in the same way */
	REACTION_NONE,	   /* what was counted when GitHub refused is enough */
};
enum reaction outcome_reaction(enum outcome v);

/* How the listener ended, as the guest's console says. */
enum hint { HINT_NONE, HINT_SESSION_CONFLICT, HINT_VERSION_DEPRECATED, HINT_UPDATED_ITSELF };
/* Of a console's text: the last exit code, or the line that the runner prints about its version. */
enum hint hint_of_console(const char *text, size_t len);

struct outcome_facts {
	const struct job_view *job; /* what JOB_OF says; NULL: no job ran on this runner */
	enum vm_happening cause;    /* why the keeper ended the lease */
	bool clean_end;		    /* STOPPED and the hypervisor calls it a shutdown */
	bool seen_online, seen_busy;
	enum hint hint; /* believed only where GitHub says that nobody's code has run on this runner */
	bool patient; /* GitHub may still change its answer: do not settle for an unfinished job yet */
};
/* OUTCOME_UNKNOWN: ask again later (never when !patient). */
enum outcome outcome_decide(const struct outcome_facts *f);
#endif
