#include "manager/metrics.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/file.h"
#include "manager/budget.h"
#include "manager/service.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX (256 * 1024)
#define RESETS_MAX 256 /* VMs being reset that are timed at once */

static const double bounds[] = {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 21600};

struct histogram {
	uint64_t buckets[ARRAY_SIZE(bounds)], count;
	double sum;
};

enum stage { STAGE_WAIT, STAGE_REGISTER, STAGE_DELIVER, STAGE_RUNNER_START, STAGE_JOB, STAGE_RESET, STAGE_COUNT };
static const struct {
	const char *name, *help;
} stages[STAGE_COUNT] = {
	[STAGE_WAIT] = {"job_wait", "From a job being queued to its start, by GitHub's clock"},
	[STAGE_REGISTER] = {"registration", "From the lease to the registration"},
	[STAGE_DELIVER] = {"delivery", "From the registration to the guest having it"},
	[STAGE_RUNNER_START] = {"runner_start", "From the delivery to the runner being seen online"},
	[STAGE_JOB] = {"job", "From the job being seen to the VM's end"},
	[STAGE_RESET] = {"reset", "From a lease's end to its VM being READY again"},
};

struct metrics {
	struct histogram stages[STAGE_COUNT];
	uint64_t outcomes[OUTCOME_COUNT], leases;
	struct {
		char vm[VM_NAME_MAX];
		uint64_t since_ms;
	} resets[RESETS_MAX];
};

int metrics_new(struct metrics **ret, struct error *e)
{
	struct metrics *m = calloc(1, sizeof(*m));

	if (!m)
		return error_errno(e, ENOMEM, "cannot start");
	*ret = m;
	return 0;
}

struct metrics *metrics_free(struct metrics *m)
{
	free(m);
	return NULL;
}

static void observe(struct metrics *m, enum stage stage, double seconds)
{
	struct histogram *h = &m->stages[stage];

	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++)
		h->buckets[i] += seconds <= bounds[i];
	h->count++;
	h->sum += seconds;
}

static void observe_between(struct metrics *m, enum stage stage, uint64_t from_ms, uint64_t to_ms)
{
	if (from_ms && to_ms >= from_ms)
		observe(m, stage, (double)(to_ms - from_ms) / 1000);
}

static void begin_reset(struct metrics *m, const char *vm, uint64_t now_ms)
{
	for (size_t i = 0; i < RESETS_MAX; i++) {
		if (m->resets[i].vm[0] && !str_equal(m->resets[i].vm, vm))
			continue;
		(void)str_copy(m->resets[i].vm, vm);
		m->resets[i].since_ms = now_ms;
		return;
	}
}

void metrics_ready(struct metrics *m, const char *vm, uint64_t now_ms)
{
	for (size_t i = 0; m && i < RESETS_MAX; i++)
		if (m->resets[i].vm[0] && str_equal(m->resets[i].vm, vm)) {
			observe_between(m, STAGE_RESET, m->resets[i].since_ms, now_ms);
			m->resets[i].vm[0] = '\0';
		}
}

void metrics_step(struct metrics *m, const struct work *w, enum work_state from)
{
	const uint64_t *first = w->first_ms;
	bool was_online = first[WORK_IDLE] || first[WORK_BUSY];

	if (!m)
		return;
	m->leases += from == WORK_LEASING && w->lease[0];
	if (w->state == WORK_RECORDING && from == WORK_MINTING)
		observe_between(m, STAGE_REGISTER, w->begun_ms, w->since_ms);
	if (w->state == WORK_WAITING && from == WORK_DELIVERING)
		observe_between(m, STAGE_DELIVER, first[WORK_DELIVERING], w->since_ms);
	if (from == WORK_WAITING && was_online && (w->state == WORK_IDLE || w->state == WORK_BUSY))
		observe_between(m, STAGE_RUNNER_START, first[WORK_WAITING], w->since_ms);
	if (!work_is_open(from) || work_is_open(w->state) || !w->vm[0])
		return;
	observe_between(m, STAGE_JOB, first[WORK_BUSY], w->since_ms);
	begin_reset(m, w->vm, w->since_ms);
}

void metrics_outcome(struct metrics *m, const struct work *w)
{
	if (!m)
		return;
	m->outcomes[w->outcome]++;
	if (w->queued_s)
		observe(m, STAGE_WAIT, (double)w->queued_s);
}

/* Pages of a process, in bytes; 0: it is gone. */
static unsigned long long rss_of(pid_t pid)
{
	CLEANUP_FD int fd = -1;
	unsigned long long pages = 0;
	char path[64], text[128], *second;
	ssize_t n;

	(void)str_format(path, "/proc/%d/statm", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	second = strchr(text, ' ');
	pages = second ? strtoull(second + 1, NULL, 10) : 0;
	return pages * (unsigned long long)sysconf(_SC_PAGESIZE);
}

#define HEAD(b, name, type, help) buf_addf((b), "# HELP boxery_" name " " help "\n# TYPE boxery_" name " " type "\n")

static int add_histogram(struct buf *b, const char *name, const char *help, const struct histogram *h)
{
	int r = buf_addf(b, "# HELP boxery_%s_seconds %s\n# TYPE boxery_%s_seconds histogram\n", name, help, name);

	for (size_t i = 0; i < ARRAY_SIZE(bounds) && r == 0; i++)
		r = buf_addf(b, "boxery_%s_seconds_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)h->buckets[i]);
	if (r == 0)
		r = buf_addf(b, "boxery_%s_seconds_bucket{le=\"+Inf\"} %llu\nboxery_%s_seconds_sum %.3f\nboxery_%s_seconds_count %llu\n",
			name, (unsigned long long)h->count, name, h->sum, name, (unsigned long long)h->count);
	return r;
}

static int add_calls(struct buf *b, struct service *s)
{
	struct budget *budget = github_link_budget(s->github);
	uint64_t now = service_now_ms();
	int r = HEAD(b, "github_calls_total", "counter", "Calls that use up the rate limit, by what was asked");
	static const char *const verbs[GITHUB_TYPE_COUNT] = {[GITHUB_REPOSITORY] = "repository", [GITHUB_MINT] = "register",
		[GITHUB_RUNNER] = "runner", [GITHUB_DELETE] = "delete", [GITHUB_JOBS] = "jobs", [GITHUB_JOB_OF] = "job",
		[GITHUB_DEPRECATION] = "deprecation", [GITHUB_GROUP] = "group", [GITHUB_RUNNERS] = "runners"};

	for (int v = 0; v < GITHUB_TYPE_COUNT && r == 0; v++)
		if (verbs[v])
			r = buf_addf(b, "boxery_github_calls_total{verb=\"%s\"} %llu\n", verbs[v],
				(unsigned long long)budget->by_verb[v]);
	if (r == 0)
		r = HEAD(b, "github_calls_unchanged_total", "counter", "Calls answered with not modified, which cost nothing");
	if (r == 0)
		r = buf_addf(b, "boxery_github_calls_unchanged_total %llu\n", (unsigned long long)budget->calls_free);
	if (r == 0)
		r = HEAD(b, "github_rate_remaining", "gauge", "Calls left until the rate limit is reached");
	if (r == 0)
		r = buf_addf(b, "boxery_github_rate_remaining %u\n", budget->remaining);
	if (r == 0)
		r = HEAD(b, "github_calls_last_hour", "gauge", "Calls of the last hour");
	if (r == 0)
		r = buf_addf(b, "boxery_github_calls_last_hour %u\n", budget_hour(budget, now));
	return r;
}

static int add_states(struct buf *b, const struct service *s)
{
	unsigned counts[WORK_STATE_COUNT] = {0};
	int r = HEAD(b, "leases", "gauge", "Leases by state");

	for (const struct work *w = s->works; w; w = w->next)
		counts[w->state]++;
	for (int i = 0; i < WORK_DONE && r == 0; i++)
		r = buf_addf(b, "boxery_leases{state=\"%s\"} %u\n", work_state_to_string((enum work_state)i), counts[i]);
	if (r == 0)
		r = HEAD(b, "queued_jobs", "gauge", "Queued jobs that an entry is for");
	for (unsigned i = 0; i + 1 < s->n_entries && r == 0; i++)
		r = buf_addf(b, "boxery_queued_jobs{scope=\"%s\"} %u\n", s->entries[i].conf->scope, s->entries[i].wanted);
	if (r == 0)
		r = HEAD(b, "entry_served", "gauge", "1: this entry of runners.yaml is served");
	for (unsigned i = 0; i + 1 < s->n_entries && r == 0; i++)
		r = buf_addf(b, "boxery_entry_served{scope=\"%s\"} %d\n", s->entries[i].conf->scope,
			s->entries[i].state == ENTRY_SERVING && s->entries[i].pause == PAUSE_NONE);
	return r;
}

static int render(struct metrics *m, struct service *s, struct buf *b)
{
	int r = HEAD(b, "lease_outcomes_total", "counter", "Ended leases by outcome");

	for (int i = 1; i < OUTCOME_COUNT && r == 0; i++)
		r = buf_addf(b, "boxery_lease_outcomes_total{outcome=\"%s\"} %llu\n", outcome_to_string((enum outcome)i),
			(unsigned long long)m->outcomes[i]);
	for (int i = 0; i < STAGE_COUNT && r == 0; i++)
		r = add_histogram(b, stages[i].name, stages[i].help, &m->stages[i]);
	if (r == 0)
		r = add_calls(b, s);
	if (r == 0)
		r = add_states(b, s);
	if (r == 0)
		r = HEAD(b, "rss_bytes", "gauge", "Resident memory");
	if (r == 0)
		r = buf_addf(b, "boxery_rss_bytes{process=\"boxery-runners\"} %llu\nboxery_rss_bytes{process=\"boxery-github\"} %llu\n",
			rss_of(getpid()), github_link_child(s->github) ? rss_of(github_link_child(s->github)) : 0);
	return r;
}

int metrics_write(struct metrics *m, struct service *s, const char *path, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(TEXT_MAX);
	int r = render(m, s, &b);

	if (r < 0)
		return error_errno(e, -r, "cannot write %s", path);
	return file_write_atomic(AT_FDCWD, path, b.data, b.len, 0644, e);
}
