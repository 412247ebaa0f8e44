#ifndef BOXERY_MANAGER_CONFIG_H
#define BOXERY_MANAGER_CONFIG_H
/*
 * runners.yaml: what to serve. Strict: an unknown or repeated key, an anchor, a tag, a value outside its
 * limits is an error "FILE:LINE: ..." (-EBADMSG) that says what is allowed; nothing is guessed. The whole
 * file is read into a new object, so a running service never sees half of one.
 *
 *   version: 1
 *   poll_interval: 15s            # 5s..5m
 *   metrics_file: /DIR/NAME.prom  # Prometheus text, written anew every 15 s; default none
 *   alarm_command: /DIR/PROGRAM   # run as PROGRAM KIND SCOPE TEXT when an admin is needed; default none
 *   log_keep: 14d                 # 1h..365d; how long the consoles of ended leases are kept
 *   runners:
 *     - repo: OWNER/REPO          # this or org; each once
 *       org: NAME                 # a whole organization, by a runner group that no public repository can use
 *       group: NAME               # of org; default "Default"
 *       repos: [NAME]             # of org: where jobs are looked for; default: the group's selected repositories
 *       registered: 2             # 0..max; keep so many runners registered and waiting instead of looking for jobs. 0: look
 *       priority: 0               # 0..100; a higher one gets a VM first
 *       labels: [self-hosted, linux, x64, boxery]   # default: these, with this machine's architecture (x64 or arm64)
 *       pool: default             # the pool whose VMs are leased
 *       min_ready: 1              # 0..max; fewer pool VMs than this is reported. How many VMs are kept READY is the
 *                                 # pool's own matter; registrations are made on demand only
 *       max: 2                    # 1..100 leases at once
 *       start_timeout: 5m         # 10s..1h   delivered, but GitHub never saw the runner
 *       idle_timeout: 10m         # 10s..1d   online without a job
 *       job_timeout: 6h           # 1m..5d    a job; GitHub's own limit is 5 days
 */
#include "base/cleanup.h"
#include "github/proto.h"
#include "pool/proto.h"
#include <stdbool.h>
#include <stdint.h>

#define RUNNERS_CONFIG_MAX (64 * 1024) /* bytes */
#define RUNNERS_ENTRIES_MAX 50
#define RUNNERS_LABELS_MAX 20
#define RUNNERS_LABEL_MAX 65 /* with the NUL */
#define RUNNERS_REPOS_MAX 30
#define RUNNERS_REPO_MAX 101 /* with the NUL */
#define RUNNERS_PATH_MAX 256
#define RUNNERS_CONFIG_NAME "runners.yaml"

struct runners_entry {
	unsigned line; /* where it starts, for messages */
	char scope[SCOPE_MAX]; /* OWNER/REPO or ORG */
	char group[GITHUB_GROUP_MAX];
	char repos[RUNNERS_REPOS_MAX][RUNNERS_REPO_MAX]; /* names within ORG */
	unsigned n_repos;
	uint32_t registered, priority;
	char labels[RUNNERS_LABELS_MAX][RUNNERS_LABEL_MAX];
	unsigned n_labels; /* at least one */
	char pool[VM_NAME_MAX];
	uint32_t min_ready, max;
	uint64_t start_timeout_ms, idle_timeout_ms, job_timeout_ms;
};

struct runners_config {
	uint64_t poll_interval_ms, log_keep_ms;
	char metrics_file[RUNNERS_PATH_MAX], alarm_command[RUNNERS_PATH_MAX]; /* "": none */
	unsigned n_entries; /* at least one */
	struct runners_entry entries[]; /* by priority, then as in the file */
};

/* shown_name is what messages call the file. *ret is the caller's, to be freed with runners_config_free. */
int runners_config_parse(
	const char *shown_name, const char *data, size_t len, struct runners_config **ret, struct error *e);
/* As above, from a file; a missing one is -ENOENT with a hint. */
int runners_config_load(const char *path, struct runners_config **ret, struct error *e);
struct runners_config *runners_config_free(struct runners_config *c);
DEFINE_CLEANUP(struct runners_config *, runners_config_free);

/* For a forecast: repositories that jobs are looked for in, and jobs at once. */
void runners_config_size(const struct runners_config *c, unsigned *ret_repositories, unsigned *ret_jobs);
/* An entry with every default, for what belongs to no entry any more. */
void runners_entry_defaults(struct runners_entry *entry);
/* "a,b,c" into dst of GITHUB_LABELS_MAX bytes; the limits above make it fit. */
void runners_entry_labels(const struct runners_entry *entry, char dst[static GITHUB_LABELS_MAX]);
#endif
