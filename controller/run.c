/* The states of a run, their deadlines, and its one way out. */
#include "controller/run.h"
#include "base/str.h"
#include "base/table.h"
#include "controller/clock.h"
#include "controller/show.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define GREETING_MS 60000   /* a person may have to type a passphrase; ssh has its own limits */
#define ENDING_MS 300000    /* then whatever is not tidy is left, and said */
#define CLOSING_MS 5000

static const char *const states[] = {"new", "greeting", "ready", "leasing", "minting", "delivering", "starting", "listening", "busy",
		"stopping", "ending", "done"};
STRING_TABLE(run_state, enum run_state, states, RUN_STATE_COUNT);

static const char *const results[] = {"unknown", "succeeded", "failed", "cancelled", "no job", "never connected", "job deadline",
		"guest died", "delivery failed", "mint failed", "mint conflict", "not delivered"};
STRING_TABLE(result, enum result, results, RESULT_COUNT);

int result_exit_status(enum result v)
{
	static const int statuses[RESULT_COUNT] = {[RESULT_UNKNOWN] = RUN_EXIT_UNKNOWN, [RESULT_SUCCEEDED] = EXIT_STATUS_OK,
			[RESULT_FAILED] = RUN_EXIT_JOB_FAILED, [RESULT_CANCELLED] = RUN_EXIT_JOB_CANCELLED,
			[RESULT_NO_JOB] = RUN_EXIT_NO_JOB, [RESULT_NEVER_CONNECTED] = RUN_EXIT_VM_LOST,
			[RESULT_JOB_DEADLINE] = RUN_EXIT_JOB_DEADLINE, [RESULT_GUEST_DIED] = RUN_EXIT_VM_LOST,
			[RESULT_DELIVERY_FAILED] = RUN_EXIT_VM_LOST, [RESULT_MINT_FAILED] = EXIT_STATUS_FAILED,
			[RESULT_MINT_CONFLICT] = EXIT_STATUS_CONFLICT, [RESULT_NOT_DELIVERED] = EXIT_STATUS_FAILED};

	return statuses[v];
}

int run_exit_status(const struct run *r)
{
	if (r->status >= 0)
		return r->status;
	/* Asked to delete the runner, GitHub may be overtaken by the runner's own end. */
	if (r->interrupts && (r->result == RESULT_NO_JOB || r->result == RESULT_NEVER_CONNECTED))
		return EXIT_STATUS_INTERRUPTED;
	return result_exit_status(r->result);
}

void run_init(struct run *r, const struct plan *plan, unsigned number)
{
	*r = (struct run){.plan = plan, .number = number, .link = PROCESS_INIT, .gh = GH_INIT, .status = -1};
}

void run_enter(struct run *r, enum run_state state, uint64_t within_ms)
{
	r->state = state;
	r->listened = r->listened || state == RUN_LISTENING;
	r->due_ms = within_ms ? clock_now_ms() + within_ms : 0;
	r->ask_ms = 0;
}

void run_start(struct run *r)
{
	run_enter(r, RUN_GREETING, GREETING_MS);
	run_link_open(r);
}

void run_go(struct run *r)
{
	const struct plan *p = r->plan;
	uint64_t ttl = p->idle_ms + p->job_ms + RUN_STARTING_MS + RUN_DELIVERING_MS + ENDING_MS;

	run_enter(r, RUN_LEASING, p->wait_ms + RUN_DELIVERING_MS);
	run_send(r, LINK_LEASE, json_pack("{s:s,s:s,s:I,s:I,s:b}", "pool", p->pool, "scope", p->scope, "wait_ms", (json_int_t)p->wait_ms,
			"ttl_ms", (json_int_t)ttl, "follow", p->follow));
}

/* Told with the first result that is final. */
static void tell_result(struct run *r)
{
	if (r->result_told || !r->result_known)
		return;
	r->result_told = true;
	/* A quick one was over before it was seen. */
	if (r->job_id)
		run_tell_job(r);
	show_result(r);
}

void run_end(struct run *r, enum result result, bool known, int status, const char *why)
{
	bool holds = r->leased && !r->ended && !r->link_lost;

	if (r->state >= RUN_ENDING)
		return;
	if (why) {
		(void)snprintf(r->why, sizeof(r->why), "%s", why);
		show_note(r, "%s", why);
	}
	r->result = result;
	r->result_known = known;
	r->status = status;
	r->search = SEARCH_NONE;
	r->rounds = 0;
	r->failures = 0;
	if (!r->ended_ms)
		r->ended_ms = clock_now_ms();
	run_enter(r, RUN_ENDING, ENDING_MS);
	if (holds)
		run_send(r, LINK_RELEASE, json_pack("{s:s}", "outcome", result_to_string(result)));
	run_tidy(r);
}

static bool github_is_tidy(struct run *r)
{
	if (gh_busy(&r->gh) || r->ask_ms > clock_now_ms())
		return false;
	if (!r->result_known) {
		run_find_result(r);
		return false;
	}
	tell_result(r);
	if (r->registration == RUN_PERHAPS_REGISTERED || r->registration == RUN_REGISTERED) {
		run_unregister(r);
		return false;
	}
	return true;
}

void run_tidy(struct run *r)
{
	if (r->state != RUN_ENDING || !github_is_tidy(r))
		return;
	if (!r->told) {
		r->told = true;
		if (r->leased)
			run_send(r, LINK_OUTCOME, json_pack("{s:s,s:b}", "outcome", result_to_string(r->result), "gone",
					r->registration != RUN_REGISTERED));
	}
	if (r->leased && !r->reset_told && !r->link_lost)
		return;
	run_link_close(r);
	if (r->link.pid < 0 || process_reap(&r->link) || r->link_lost)
		run_enter(r, RUN_DONE, 0);
	else if (!r->lost_ms)
		r->lost_ms = clock_now_ms() + CLOSING_MS;
	else if (clock_now_ms() >= r->lost_ms)
		run_enter(r, RUN_DONE, 0);
}

static void on_due(struct run *r)
{
	r->due_ms = 0;
	switch (r->state) {
	case RUN_GREETING:
		run_end(r, RESULT_NOT_DELIVERED, true, EXIT_STATUS_TIMEOUT, "the host does not answer within a minute");
		return;
	case RUN_LEASING:
		run_end(r, RESULT_NOT_DELIVERED, true, EXIT_STATUS_TIMEOUT, "the host does not give a VM and does not say why");
		return;
	case RUN_DELIVERING:
		run_end(r, RESULT_DELIVERY_FAILED, true, -1, "the host does not deliver and does not say why");
		return;
	case RUN_STARTING:
		r->result = RESULT_NEVER_CONNECTED;
		run_stop(r, "GitHub has not seen the runner within three minutes");
		return;
	case RUN_LISTENING:
		r->result = RESULT_NO_JOB;
		run_stop(r, "no job came within the idle time");
		return;
	case RUN_BUSY:
		run_end(r, RESULT_JOB_DEADLINE, true, -1, "the job has run for longer than --job-timeout; its VM is taken back");
		return;
	case RUN_STOPPING:
		show_note(r, "GitHub cannot be asked whether the runner is idle; it is left alone for now");
		run_enter(r, r->busy ? RUN_BUSY : RUN_LISTENING, r->plan->idle_ms);
		return;
	case RUN_ENDING:
		show_note(r, "not everything could be tidied up in time%s%s", r->registration == RUN_REGISTERED ?
				": the registration is left, offline and useless: " : "", r->registration == RUN_REGISTERED ? r->name : "");
		r->result_known = true;
		tell_result(r);
		run_link_close(r);
		run_enter(r, RUN_DONE, 0);
		return;
	case RUN_NEW:
	case RUN_READY:
	case RUN_MINTING: /* gh has a deadline */
	case RUN_DONE:
	case RUN_STATE_COUNT:
		return;
	}
}

void run_tick(struct run *r)
{
	if (r->state == RUN_NEW || r->state == RUN_DONE)
		return;
	gh_tick(&r->gh);
	run_link_tick(r);
	if (r->due_ms && clock_now_ms() >= r->due_ms)
		on_due(r);
	if (r->state == RUN_ENDING)
		run_tidy(r);
	else if (r->state >= RUN_STARTING && r->state <= RUN_STOPPING)
		run_watch(r);
}

void run_poll(struct run *r, struct poller *p)
{
	run_link_poll(r, p);
	gh_poll(&r->gh, p);
}

void run_interrupt(struct run *r)
{
	uint64_t now = clock_now_ms();

	r->interrupts++;
	switch (r->state) {
	case RUN_NEW:
	case RUN_GREETING:
	case RUN_READY:
	case RUN_LEASING:
	case RUN_MINTING:
	case RUN_DELIVERING:
		run_end(r, RESULT_NOT_DELIVERED, true, EXIT_STATUS_INTERRUPTED, "interrupted");
		return;
	case RUN_STARTING:
	case RUN_LISTENING:
		r->result = RESULT_NO_JOB;
		run_stop(r, "interrupted: asking GitHub to delete the runner");
		return;
	case RUN_BUSY:
		if (r->interrupts > 1)
			run_end(r, RESULT_CANCELLED, true, EXIT_STATUS_INTERRUPTED, "interrupted again: the VM is taken back and the job fails");
		else
			show_note(r, "a job is running; waiting for its end. Ctrl-C again takes the VM away from it");
		return;
	case RUN_STOPPING:
		if (r->interrupts > 1)
			run_end(r, r->result, true, EXIT_STATUS_INTERRUPTED, "interrupted again: the VM is taken back");
		return;
	case RUN_ENDING:
		show_note(r, "tidying up; this ends within %u seconds at the latest", r->due_ms > now ? (unsigned)((r->due_ms - now) / 1000) + 1 : 1);
		return;
	case RUN_DONE:
	case RUN_STATE_COUNT:
		return;
	}
}

void run_free(struct run *r)
{
	run_link_last_words(r);
	process_free(&r->link);
	gh_free(&r->gh);
	link_buffer_free(&r->in);
	link_buffer_free(&r->out);
}
