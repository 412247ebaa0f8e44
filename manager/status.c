/* What the service does and why, as JSON for `runners status` and `runners explain`. Nothing here is secret. */
#include "base/str.h"
#include "linux/clock.h"
#include "manager/budget.h"
#include "manager/service.h"
#include "manager/versions.h"
#include <string.h>

static json_int_t ms_until(uint64_t at_ms, uint64_t now)
{
	return at_ms > now ? (json_int_t)(at_ms - now) : 0;
}

/* What happens next to an entry, in words. */
static void next_of_entry(const struct work_entry *entry, uint64_t now, char *dst, size_t size)
{
	uint64_t hold = entry_next_ms(entry);

	if (entry->pause == PAUSE_DRAIN)
		(void)str_copy_n(dst, size, "resume starts it again");
	else if (entry->pause == PAUSE_LEASES)
		(void)str_copy_n(dst, size, "resume starts it again; running jobs go on");
	else if (entry->state == ENTRY_STOPPED)
		(void)str_copy_n(dst, size, "an admin resumes it");
	else if (entry->look_ms > now)
		(void)str_format_n(dst, size, "GitHub is asked again in %llu s",
			(unsigned long long)(entry->look_ms - now + 999) / 1000);
	else if (hold > now)
		(void)str_format_n(dst, size, "the next lease in %llu s at the earliest",
			(unsigned long long)(hold - now + 999) / 1000);
	else if (entry->missing > 0)
		(void)str_format_n(dst, size, "leases %u when a VM is READY", entry->missing);
	else
		(void)str_copy_n(dst, size, "waits for jobs");
}

static json_t *status_entry(const struct work_entry *entry, uint64_t now)
{
	json_t *repos = json_array();
	char next[128] = "";
	unsigned held, unfilled;

	entry_count(entry, &held, &unfilled);
	next_of_entry(entry, now, next, sizeof(next));
	for (unsigned i = 0; i < entry->n_repos; i++)
		(void)json_array_append_new(repos, json_string(entry->repos[i]));
	return json_pack("{s:s,s:s,s:s,s:s,s:I,s:s,s:s,s:s,s:o,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:s,s:s}", "scope",
		entry->conf->scope, "group", entry->conf->group, "source", entry_source(entry), "state",
		entry_state_to_string(entry->state), "since_ms", (json_int_t)(now - entry->since_ms), "pause",
		entry_pause_to_string(entry->pause), "why", entry->why, "next", next, "repositories", repos, "priority",
		(int)entry->conf->priority, "max", (int)entry->conf->max, "min_ready", (int)entry->conf->min_ready, "queued",
		(int)entry->wanted, "missing", (int)entry->missing, "leases", (int)held, "jobless", (int)entry->jobless,
		"last_outcome", entry->last_outcome != OUTCOME_UNKNOWN ? outcome_to_string(entry->last_outcome) : "", "trouble",
		entry->trouble, "pool", entry->conf->pool);
}

static const char *next_of_work(const struct work *w)
{
	static const char *const words[WORK_STATE_COUNT] = {
		[WORK_LEASING] = "the keeper gives it a VM",
		[WORK_PLANNING] = "the keeper notes that a registration may exist",
		[WORK_MINTING] = "GitHub registers its runner",
		[WORK_RECORDING] = "the keeper notes the registration",
		[WORK_DELIVERING] = "the guest takes the registration",
		[WORK_WAITING] = "the runner connects to GitHub",
		[WORK_IDLE] = "the runner takes a job",
		[WORK_BUSY] = "the job ends",
		[WORK_DELETING] = "GitHub deletes its registration",
		[WORK_RELEASING] = "the keeper takes the VM back",
		[WORK_ASKING] = "GitHub says how the job ended",
		[WORK_NAMING] = "the keeper notes the outcome",
		[WORK_SPENT] = "GitHub takes its registration back",
		[WORK_LOOKING] = "GitHub looks for its registration",
		[WORK_CLEARING] = "GitHub deletes its registration",
		[WORK_FORGETTING] = "the keeper forgets it",
		[WORK_PAUSED] = "asked again",
		[WORK_DONE] = "",
	};

	return words[w->state] ? words[w->state] : "";
}

static json_t *status_work(const struct work *w, uint64_t now)
{
	return json_pack("{s:s,s:s,s:s,s:s,s:I,s:s,s:I,s:s,s:s,s:I,s:s}", "lease", w->lease, "vm", w->vm, "scope", w->scope,
		"runner_name", w->runner_name, "runner_id", (json_int_t)w->runner_id, "state", work_state_to_string(w->state),
		"since_ms", (json_int_t)(now - w->since_ms), "job", w->job, "next", next_of_work(w), "due_ms",
		ms_until(w->due_ms, now), "outcome", w->outcome != OUTCOME_UNKNOWN ? outcome_to_string(w->outcome) : "");
}

static json_t *status_budget(struct service *s, uint64_t now)
{
	struct budget *b = github_link_budget(s->github);
	const char *limited = "";
	uint64_t quiet = github_link_quiet(s->github, &limited);
	char expires[32] = "";

	if (b->expires)
		clock_wall_text(b->expires * 1000000, expires, sizeof(expires));
	return json_pack("{s:I,s:I,s:I,s:I,s:i,s:i,s:I,s:I,s:I,s:s,s:s}", "calls", (json_int_t)b->calls, "calls_unchanged",
		(json_int_t)b->calls_free, "calls_last_hour", (json_int_t)budget_hour(b, now), "registrations",
		(json_int_t)b->mints, "limit", (int)b->limit, "remaining", (int)b->remaining, "reset_in_ms",
		ms_until(b->reset_ms, now), "short_by_s", (json_int_t)budget_short_by_s(b, now), "limited_for_ms",
		ms_until(quiet, now), "limited_because", quiet ? limited : "", "credential_expires", expires);
}

json_t *service_status(struct service *s)
{
	json_t *entries = json_array(), *leases = json_array();
	uint64_t now = service_now_ms();

	for (unsigned i = 0; i + 1 < s->n_entries; i++)
		(void)json_array_append_new(entries, status_entry(&s->entries[i], now));
	for (const struct work *w = s->works; w; w = w->next)
		(void)json_array_append_new(leases, status_work(w, now));
	return json_pack("{s:i,s:s,s:I,s:b,s:b,s:o,s:o,s:o,s:o}", "pid", (int)getpid(), "status", s->status, "up_ms",
		(json_int_t)(now - s->began_ms), "keeper", keeper_link_is_up(s->keeper) ? 1 : 0, "stopping", s->stopping ? 1 : 0,
		"budget", status_budget(s, now), "versions", versions_status(s->versions), "entries", entries, "leases", leases);
}

json_t *service_explain(struct service *s)
{
	json_t *jobs = json_array();

	for (unsigned i = 0; i + 1 < s->n_entries; i++)
		for (unsigned n = 0; n < s->entries[i].n_near; n++) {
			const struct job_near *near = &s->entries[i].near[n];

			(void)json_array_append_new(jobs,
				json_pack("{s:s,s:s,s:s,s:s,s:i}", "scope", s->entries[i].conf->scope, "job", near->job, "label",
					near->label, "meant", near->meant, "labels_off", (int)near->off));
		}
	return json_pack("{s:o}", "jobs", jobs);
}
