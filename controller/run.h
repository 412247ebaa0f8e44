#ifndef BOXERY_CONTROLLER_RUN_H
#define BOXERY_CONTROLLER_RUN_H
/*
 * `boxery runners once`: one run is one link to the host, one lease, one registration, one job. Several runs share a plan and
 * nothing else. A run is over when the host has given its VM back and GitHub has forgotten its registration, or both have been
 * tried for long enough; there is one way out, run_end(), for all that can happen.
 *
 * GitHub decides: whether the runner is there, busy, deletable, how its job ended. What the guest's console says only makes
 * this ask sooner. Nothing is concluded from an answer that did not come.
 */
#include "base/parse.h"
#include "controller/gh.h"

#define RUN_COUNT_MAX 16
#define RUN_LABELS_MAX 16
#define RUN_NAME_MAX 65
#define RUN_JOB_MAX 200
#define RUN_BASE_MAX 160
#define RUN_STARTING_MS 180000 /* a runner that GitHub has not seen by then never comes */

#define RUN_DELIVERING_MS 240000 /* above the keeper's */
#define RUN_STOPPING_MS 60000
#define RUN_RUNNING_RUNS 40 /* so many runs of workflows are looked through: those in progress, */
#define RUN_LATEST_RUNS 20  /* then the latest */

/* What a run comes to, in the words of the lease's outcome on the host. */
enum result {
	RESULT_UNKNOWN, /* not found out, or GitHub did not confirm it */
	RESULT_SUCCEEDED,
	RESULT_FAILED,
	RESULT_CANCELLED,
	RESULT_NO_JOB,
	RESULT_NEVER_CONNECTED,
	RESULT_JOB_DEADLINE,
	RESULT_GUEST_DIED,
	RESULT_DELIVERY_FAILED,
	RESULT_MINT_FAILED,
	RESULT_MINT_CONFLICT,
	RESULT_NOT_DELIVERED,
	RESULT_COUNT
};
const char *result_to_string(enum result v);
int result_from_string(const char *s, enum result *ret);
/* Exit statuses beside those of base/error.h. */
enum run_exit_status {
	RUN_EXIT_JOB_FAILED = 10,
	RUN_EXIT_JOB_CANCELLED = 11,
	RUN_EXIT_NO_JOB = 12,
	RUN_EXIT_JOB_DEADLINE = 13,
	RUN_EXIT_VM_LOST = 14,
	RUN_EXIT_UNKNOWN = 15,
};
int result_exit_status(enum result v);

/* Only run_enter() changes it. */
enum run_state {
	RUN_NEW,
	RUN_GREETING,   /* the link is being made; no hello yet */
	RUN_READY,      /* waits for the check of the repository */
	RUN_LEASING,
	RUN_MINTING,    /* leased; GitHub registers */
	RUN_DELIVERING,
	RUN_STARTING,   /* the guest has its config; GitHub has not seen the runner */
	RUN_LISTENING,
	RUN_BUSY,
	RUN_STOPPING,   /* GitHub is asked to delete the runner while it is idle; 422 leads back to BUSY */
	RUN_ENDING,     /* the VM goes back, the result is found, the registration is deleted */
	RUN_DONE,
	RUN_STATE_COUNT
};
const char *run_state_to_string(enum run_state v);
int run_state_from_string(const char *s, enum run_state *ret);

/* What is known of the registration. */
enum run_registration {
	RUN_NOT_REGISTERED,
	RUN_PERHAPS_REGISTERED, /* asked for; under this name it may be there */
	RUN_REGISTERED,
	RUN_UNREGISTERED
};

/* What all runs share; set up by once.c, read-only for a run. */
struct plan {
	const char *host;           /* "": this machine */
	char scope[SCOPE_MAX];      /* OWNER/REPO or ORG */
	char base[RUN_BASE_MAX];    /* "repos/OWNER/REPO" or "orgs/ORG" */
	char repo[SCOPE_MAX];       /* whose jobs can be looked through; "": none */
	uint64_t group_id;
	const char *labels[RUN_LABELS_MAX];
	size_t n_labels;            /* 0: the default ones */
	const char *pool;
	uint64_t idle_ms, job_ms, wait_ms;
	bool follow, json, terminal;
	unsigned count;
	uint64_t began_ms;
};

struct run {
	const struct plan *plan;
	unsigned number;
	enum run_state state;
	uint64_t due_ms;  /* of the state; 0: none */
	/* the host */
	struct process link;
	struct link_buffer in, out;
	uint64_t heard_ms, beat_ms, lost_ms, progress_ms;
	unsigned n_progress, left_out; /* of the second that began at progress_ms */
	char arch[LINK_ARCH_MAX], vm[VM_NAME_MAX], name[RUN_NAME_MAX];
	bool leased, ended, clean, reset_told, link_lost, told;
	uint64_t ended_ms;
	/* GitHub */
	struct gh gh;
	enum run_registration registration;
	uint64_t runner_id, ask_ms, absent_ms;
	unsigned failures, asked_by_name, refused, rounds;
	bool name_was_free; /* GitHub had no runner of this name before it was registered */
	bool online, busy, hint_running, listened;
	/* the job */
	uint64_t job_id, runs[RUN_RUNNING_RUNS + RUN_LATEST_RUNS], busy_ms;
	size_t n_runs, next_run;
	enum { SEARCH_NONE, SEARCH_RUNNING, SEARCH_LATEST, SEARCH_JOBS, SEARCH_OVER } search;
	char job[RUN_JOB_MAX], hint[RUN_JOB_MAX];
	bool job_told;
	/* how it comes out */
	enum result result;
	bool result_known, result_told;
	unsigned interrupts;
	int status; /* -1: by the result */
	char why[ERROR_TEXT_MAX];
};

void run_init(struct run *r, const struct plan *plan, unsigned number);
void run_start(struct run *r);
void run_go(struct run *r); /* the repository may be served: lease */
void run_poll(struct run *r, struct poller *p);
void run_tick(struct run *r);
void run_interrupt(struct run *r); /* Ctrl-C; the second one does not wait for the job */
void run_free(struct run *r);
int run_exit_status(const struct run *r);

/* Between the files of a run. */
void run_enter(struct run *r, enum run_state state, uint64_t within_ms);
/* The one way out. status -1: by the result. why: NULL, or what the person is told. */
void run_end(struct run *r, enum result result, bool known, int status, const char *why);
void run_tidy(struct run *r); /* the next step of ENDING */
void run_send(struct run *r, enum link_type type, json_t *message);
void run_link_open(struct run *r);
void run_link_poll(struct run *r, struct poller *p);
void run_link_tick(struct run *r);
void run_link_close(struct run *r);
void run_link_last_words(struct run *r); /* what ssh has said and nobody has read yet */
/* GitHub; each asks one thing, the answer leads on. */
void run_mint(struct run *r); /* looks first whether the name is free */
void run_watch(struct run *r);
void run_tell_job(struct run *r);
void run_stop(struct run *r, const char *why);
void run_unregister(struct run *r);
void run_find_result(struct run *r);
void run_find_job(struct run *r);
bool run_ask(struct run *r, const char *method, gh_cb cb, json_t *body, const char *path_format, ...)
		__attribute__((format(printf, 5, 6)));
/* After an answer that does not help: when to ask again. */
void run_ask_later(struct run *r, const struct gh_answer *a);
#endif
