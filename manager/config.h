#ifndef BOXERY_MANAGER_CONFIG_H
#define BOXERY_MANAGER_CONFIG_H
/*
 * runners.yaml: what to serve. Strict: an unknown or repeated key, an anchor, a tag, a value outside its
 * limits is an error "FILE:LINE: ..." (-EBADMSG) that says what is allowed; nothing is guessed. The whole
 * file is read into a new object, so a running service never sees half of one.
 *
 *   version: 1
 *   poll_interval: 15s            # 5s..5m
 *   runners:
 *     - repo: OWNER/REPO          # required; each repository once
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
#define RUNNERS_CONFIG_NAME "runners.yaml"

struct runners_entry {
	unsigned line; /* where it starts, for messages */
	char repo[SCOPE_MAX];
	char labels[RUNNERS_LABELS_MAX][RUNNERS_LABEL_MAX];
	unsigned n_labels; /* at least one */
	char pool[VM_NAME_MAX];
	uint32_t min_ready, max;
	uint64_t start_timeout_ms, idle_timeout_ms, job_timeout_ms;
};

struct runners_config {
	uint64_t poll_interval_ms;
	unsigned n_entries; /* at least one */
	struct runners_entry entries[];
};

/* shown_name is what messages call the file. *ret is the caller's, to be freed with runners_config_free. */
int runners_config_parse(
	const char *shown_name, const char *data, size_t len, struct runners_config **ret, struct error *e);
/* As above, from a file; a missing one is -ENOENT with a hint. */
int runners_config_load(const char *path, struct runners_config **ret, struct error *e);
struct runners_config *runners_config_free(struct runners_config *c);
DEFINE_CLEANUP(struct runners_config *, runners_config_free);

/* An entry with every default, for what belongs to no entry any more. */
void runners_entry_defaults(struct runners_entry *entry);
/* "a,b,c" into dst of GITHUB_LABELS_MAX bytes; the limits above make it fit. */
void runners_entry_labels(const struct runners_entry *entry, char dst[static GITHUB_LABELS_MAX]);
#endif
