#ifndef BOXERY_MANAGER_SERVICE_H
#define BOXERY_MANAGER_SERVICE_H
/*
 * The runner service: entries of runners.yaml that ask for demand (entry.c), leases that answer it (life.c
 * while the VM is ours, closing.c after that), and what the keeper remembers about both across restarts
 * (reconcile.c). Everything runs in one sd-event loop; an answer names its work by number, because the work
 * may be gone by then.
 *
 * Nothing is kept in files: the keeper's leases and GitHub's registrations are the whole truth, and every
 * process may be killed at any moment.
 */
#include "manager/backoff.h"
#include "manager/github_link.h"
#include "manager/keeper_link.h"
#include "manager/work.h"

enum entry_state {
	/* The repository has not been looked at yet. */
	ENTRY_CHECKING,
	/* Jobs are asked for and leases taken. */
	ENTRY_SERVING,
	/* The repository is not private: nothing is leased or minted until it is. */
	ENTRY_PUBLIC,
	/* GitHub refuses (credential, permission, absent, invalid): an admin has to act; looked at again,
	   slowly. */
	ENTRY_REFUSED,
	ENTRY_STATE_COUNT
};
const char *entry_state_to_string(enum entry_state v);

struct service;
struct work_entry {
	struct service *service;
	const struct runners_entry *conf;
	enum entry_state state;
	bool orphans; /* for leases of no entry: watches, never serves */
	bool polling; /* JOBS or REPOSITORY is on its way */
	sd_event_source *timer;
	unsigned wanted, missing; /* as of the last list of jobs; missing counts down as leases are taken */
	uint64_t wanted_ms;
	uint64_t hold_ms; /* no new leases before */
	uint64_t look_ms; /* GitHub is not asked about jobs or the repository before */
	unsigned jobless; /* leases in a row that got no job */
	struct backoff poll_backoff, mint_backoff, jobless_backoff, refused_backoff;
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
	struct work *works;
	uint64_t next_number;
	sd_event_source *settle, *due, *stop, *leases;
	bool stopping, leases_asked, leases_known;
	char status[256]; /* as last told to systemd */
};

#define SERVICE_STOP_GRACE_MS 8000

/* service.c */
int service_new(const struct hostconf *host, struct runners_config *config, const char *const *keeper_argv,
	struct service **ret, struct error *e); /* takes config over on success */
struct service *service_free(struct service *s);
DEFINE_CLEANUP(struct service *, service_free);
int service_run(struct service *s, struct error *e); /* until SIGTERM or SIGINT; the exit status or -errno */
uint64_t service_now_ms(void);
/* After anything changed: ended works are freed, waits armed, status told. Done by the loop, not at once. */
void service_settle(struct service *s);
struct work *service_work_new(struct service *s, struct work_entry *entry);
struct work *service_work_find(struct service *s, uint64_t number);

/* life.c */
void work_enter(struct service *s, struct work *w); /* does what its state does when it is entered */
void work_feed(struct service *s, struct work *w, enum work_event event);
void work_report(
	struct service *s, struct work *w); /* the outcome is stored: one line, and the entry is told */
void work_watch(struct service *s, struct work_entry *entry, const struct jobs *jobs); /* jobs may be NULL */
/* closing.c: what the closing states do */
void work_enter_asking(struct service *s, struct work *w);
void work_enter_naming(struct service *s, struct work *w);
void work_enter_looking(struct service *s, struct work *w);
void work_enter_clearing(struct service *s, struct work *w);
void work_enter_forgetting(struct service *s, struct work *w);
void work_enter_paused(struct service *s, struct work *w);
/* How long to wait after this answer: what GitHub asks for, else growing with w->tries. */
uint64_t work_wait_ms(struct work *w, const struct github_reply *reply);

/* entry.c */
void entry_init(struct work_entry *entry, struct service *s, const struct runners_entry *conf);
void entry_poll_in(struct work_entry *entry, uint64_t in_ms);
void entry_take(struct work_entry *entry); /* leases what is missing, as far as allowed now */
void entry_fault(
	struct work_entry *entry, const struct github_reply *reply); /* a mint or a poll was refused */
void entry_lease_over(struct work_entry *entry, enum outcome outcome);
void entry_job_taken(struct work_entry *entry);
uint64_t entry_lease_ttl_ms(const struct work_entry *entry);

/* reconcile.c */
void service_ask_leases(struct service *s, uint64_t in_ms);
void service_take_event(struct service *s, const struct keeper_event *event);
void service_ask_pools(struct service *s); /* are there VMs to lease at all? */
#endif
