#ifndef BOXERY_MANAGER_SERVICE_H
#define BOXERY_MANAGER_SERVICE_H
/*
 * The runner service: entries of runners.yaml that ask for demand (entry.c), leases that answer it (life.c; delivery.c
 * and watch.c while the VM is ours, closing.c after that), and what the keeper remembers about both across restarts
 * (reconcile.c). Everything runs in one sd-event loop; an answer names its work by number, because the work
 * may be gone by then.
 *
 * The keeper's leases and GitHub's registrations are the whole truth, and every process may be killed at any moment; in a file
 * is only what an admin has paused.
 */
#include "manager/backoff.h"
#include "manager/github_link.h"
#include "manager/keeper_link.h"
#include "manager/steady.h"
#include "manager/work.h"
#include <jansson.h>

enum entry_state {
	/* The repository has not been looked at yet. */
	ENTRY_CHECKING,
	/* Jobs are asked for and leases taken. */
	ENTRY_SERVING,
	/* The repository is not private: nothing is leased or minted until it is. */
	ENTRY_PUBLIC,
	/* GitHub refuses (credential, permission, absent, invalid): an admin has to act; looked at again, slowly. */
	ENTRY_REFUSED,
	/* An outcome that the next lease would have too (outcome.h): nothing is leased until an admin resumes it. */
	ENTRY_STOPPED,
	ENTRY_STATE_COUNT
};
const char *entry_state_to_string(enum entry_state v);

/* A wait that grows with each failure. What was begun before the last failure was noticed fails for the same reason,
 * and does not let it grow further: ten leases that fail together are one failure. */
struct hold {
	struct backoff backoff;
	uint64_t noticed_ms, until_ms;
};

enum entry_pause {
	PAUSE_NONE,
	PAUSE_LEASES, /* no new lease; registered runners may still take a job */
	PAUSE_DRAIN,  /* and runners without a job are taken back */
	PAUSE_COUNT
};
const char *entry_pause_to_string(enum entry_pause v); /* "" paused draining */

struct service;
struct work_entry {
	struct service *service;
	uint64_t number; /* names it in callbacks: a reload may have taken it away */
	enum entry_pause pause;
	char repos[RUNNERS_REPOS_MAX][SCOPE_MAX]; /* where jobs are looked for */
	unsigned n_repos, repo_at, seen_wanted;
	struct job_near near[JOB_NEAR_MAX]; /* queued jobs that no entry is for */
	unsigned n_near;
	uint64_t since_ms;	  /* state entered */
	char why[ERROR_TEXT_MAX]; /* of the state, or why GitHub could not be read last */
	const struct runners_entry *conf;
	enum entry_state state;
	bool orphans; /* for leases of no entry: watches, never serves */
	bool listing; /* RUNNERS is on its way */
	uint64_t roster_ms; /* the list of runners is of no use before: not all of them fit one page */
	bool polling; /* JOBS, GROUP or REPOSITORY is on its way */
	sd_event_source *timer;
	unsigned wanted, missing; /* as of the last list of jobs; missing counts down as leases are taken */
	uint64_t wanted_ms;
	uint64_t look_ms; /* GitHub is not asked about jobs or the repository before */
	enum outcome last_outcome;
	unsigned jobless; /* leases in a row that ended and are not known to have had a job */
	/* No new lease before both are over. */
	struct hold mint_hold, jobless_hold;
	struct backoff poll_backoff, refused_backoff;
	char trouble[ERROR_TEXT_MAX]; /* why no job could be served, as last logged */
};

struct service {
	sd_event *ev;
	const struct hostconf *host;
	struct runners_config *config;
	struct keeper_link *keeper;
	struct github_link *github;
	struct work_entry *entries; /* one per entry of config, and the one for orphans as the last */
	unsigned n_entries;
	struct runners_entry orphan_conf;
	enum entry_pause pause_all; /* what a new entry begins with */
	struct work *works;
	uint64_t next_number;
	sd_event_source *settle, *due, *stop, *leases, *housekeeping;
	struct control *control;
	struct alarms *alarms;
	struct metrics *metrics;
	struct versions *versions;
	struct steady steady;
	const char *config_path;
	uint64_t began_ms, pruned_ms, expiry_told; /* expiry_told: days left, as last announced */
	bool budget_told;
	bool stopping, leases_asked, leases_known;
	char status[256]; /* as last told to systemd */
};

#define SERVICE_STOP_GRACE_MS 8000

/* service.c */
/* config_path: where a reload reads from; takes config over on success. */
int service_new(const struct hostconf *host, const char *config_path, struct runners_config *config,
	const char *const *keeper_argv, struct service **ret, struct error *e);
struct service *service_free(struct service *s);
DEFINE_CLEANUP(struct service *, service_free);
int service_run(struct service *s, struct error *e); /* until SIGTERM or SIGINT; the exit status or -errno */
uint64_t service_now_ms(void);
uint64_t service_wall_us(struct service *s); /* as far as it is to be believed: steady.h */
/* Says when the configuration may need more calls than GitHub allows. */
void service_forecast(struct service *s);
/* After anything changed: ended works are freed, waits armed, status told. Done by the loop, not at once. */
void service_settle(struct service *s);
struct work *service_work_new(struct service *s, struct work_entry *entry);
struct work *service_work_find(struct service *s, uint64_t number);

/* life.c */
void work_enter(struct service *s, struct work *w); /* does what its state does when it is entered */
void work_feed(struct service *s, struct work *w, enum work_event event);
/* The outcome is stored: one line, and the entry is told. */
void work_report(struct service *s, struct work *w);
void work_log(int level, const struct work *w, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A question about this lease or its runner. An error is logged, and cb is not called. */
int work_ask_keeper(struct service *s, struct work *w, struct keeper_request *r, int fd, keeper_cb cb);
int work_ask_github(struct service *s, struct work *w, enum github_type type, github_cb cb);
/* delivery.c: what the states up to the delivery do */
void work_enter_leasing(struct service *s, struct work *w);
void work_enter_registering(struct service *s, struct work *w);
void work_enter_minting(struct service *s, struct work *w);
void work_enter_delivering(struct service *s, struct work *w);
/* watch.c: what the states of a running guest do, and taking it back */
void work_enter_idle(struct service *s, struct work *w);
void work_enter_busy(struct service *s, struct work *w);
void work_enter_deleting(struct service *s, struct work *w);
/* GitHub's time of a step of the job, for the timeline (manager/proto.h); epoch seconds, 0: not told. Each once. */
void work_note_time(struct service *s, struct work *w, const char *what, uint64_t epoch_s);
void work_enter_releasing(struct service *s, struct work *w);
/* A new round: no list has named a runner of the entry yet. */
void work_unlist(struct service *s, struct work_entry *entry);
void work_take_jobs(struct service *s, struct work_entry *entry, const char *repo, const struct jobs *jobs);
/* Asks about every running runner that no list of this round has named, and now and then about the others: one by its id,
 * several with the one list of runners, which also says whose registration GitHub has taken back. */
void work_watch(struct service *s, struct work_entry *entry);
/* closing.c: what the closing states do */
void work_enter_asking(struct service *s, struct work *w);
void work_enter_naming(struct service *s, struct work *w);
void work_enter_spent(struct service *s, struct work *w);
void work_enter_looking(struct service *s, struct work *w);
void work_enter_clearing(struct service *s, struct work *w);
void work_enter_forgetting(struct service *s, struct work *w);
void work_enter_paused(struct service *s, struct work *w);
/* How long to wait after this answer: what GitHub asks for, else growing with w->tries. */
uint64_t work_wait_ms(struct work *w, const struct github_reply *reply);

/* poll.c */
struct work_entry *service_entry_find(struct service *s, uint64_t number); /* NULL: a reload has taken it away */
uint64_t entry_interval_ms(const struct work_entry *entry); /* longer than the file says when the budget is low */
const char *entry_source(const struct work_entry *entry);

/* reload.c */
/* The configuration file again, built aside and swapped whole; on failure nothing changes. */
int service_reload(struct service *s, struct error *e);
int service_watch_hup(struct service *s, struct error *e);
/* An array of config->n_entries + 1, the last for what belongs to none; *ret is the caller's. */
int service_entries_new(struct service *s, const struct runners_config *config, struct work_entry **ret, struct error *e);

/* pause.c */
/* scope "": all. Kept in a file, so that it outlives a restart. -ENOENT: no such entry. */
int service_pause(struct service *s, const char *scope, enum entry_pause pause, struct error *e);
void service_pause_load(struct service *s);

/* status.c */
json_t *service_status(struct service *s);
json_t *service_explain(struct service *s);

/* entry.c */
void entry_set(struct work_entry *entry, enum entry_state to, const char *why);
bool entry_refused(struct work_entry *entry, const struct github_reply *reply); /* the faults that stop an entry */
void entry_count(const struct work_entry *entry, unsigned *ret_held, unsigned *ret_unfilled);
uint64_t entry_next_ms(const struct work_entry *entry); /* no lease before */
void entry_resume(struct work_entry *entry);		 /* whatever made it wait or stop is forgotten */
void entry_drop_idle(struct work_entry *entry);		 /* its runners without a job are taken back */
void entry_init(struct work_entry *entry, struct service *s, const struct runners_entry *conf);
void entry_poll_in(struct work_entry *entry, uint64_t in_ms);
void entry_take(struct work_entry *entry); /* leases what is missing, as far as allowed now */
void entry_minted(struct work_entry *entry);
void entry_fault(struct work_entry *entry, const struct work *w, const struct github_reply *reply); /* a mint failed */
/* Why a lease came to nothing: logged when it is another reason than the last one. */
void entry_trouble(struct work_entry *entry, const struct work *w, const char *what, const char *why);
void entry_job_seen(struct work_entry *entry); /* a runner has one; how that ends is not known */
void entry_lease_ended(struct work_entry *entry, const struct work *w);  /* its VM is not ours any more */
void entry_lease_over(struct work_entry *entry, enum outcome outcome); /* and later: what became of it */
uint64_t entry_lease_ttl_ms(const struct work_entry *entry);

/* reconcile.c */
void service_ask_leases(struct service *s, uint64_t in_ms);
void service_take_event(struct service *s, const struct keeper_event *event);
void service_ask_pools(struct service *s); /* are there VMs to lease at all? */
#endif
