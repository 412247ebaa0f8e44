/* Demand as GitHub's list tells it, and what is left of a lease in a word. */
#include "manager/demand.h"
#include "base/str.h"
#include "manager/budget.h"
#include "manager/outcome.h"
#include "tests/unit/testing.h"
#include <errno.h>

static struct jobs *parse(const char *text)
{
	struct error e = ERROR_INIT;
	struct jobs *j = NULL;

	assert_ok(jobs_parse(text, strlen(text), &j, &e), &e);
	return j;
}

static void entry_with(struct runners_entry *entry, unsigned n, ...)
{
	va_list ap;

	runners_entry_defaults(entry);
	entry->n_labels = 0;
	va_start(ap, n);
	for (unsigned i = 0; i < n; i++)
		(void)snprintf(
			entry->labels[entry->n_labels++], RUNNERS_LABEL_MAX, "%s", va_arg(ap, const char *));
	va_end(ap);
}

static void test_wanted(void **state)
{
	struct runners_entry entry;
	struct jobs *j = parse("{\"truncated\":false,\"jobs\":["
			       "{\"status\":\"queued\",\"labels\":[\"self-hosted\",\"BOXERY\"]},"
			       "{\"status\":\"queued\",\"labels\":[\"boxery\"]},"
			       "{\"status\":\"queued\",\"labels\":[\"boxery\",\"gpu\"]},"
			       "{\"status\":\"queued\",\"labels\":[]},"
			       "{\"status\":\"queued\"},"
			       "{\"status\":\"queued\",\"labels\":\"boxery\"},"
			       "{\"status\":\"queued\",\"labels\":[1]},"
			       "{\"status\":7,\"labels\":[\"boxery\"]},"
			       "{\"status\":\"waiting\",\"labels\":[\"boxery\"]},"
			       "{\"status\":\"in_progress\",\"labels\":[\"boxery\"],\"runner_name\":\"r1\","
			       "\"name\":\"build\\u001b[31m\",\"conclusion\":null},"
			       "3,null,\"x\"]}");
	struct job_view view;

	entry_with(&entry, 3, "self-hosted", "linux", "Boxery");
	assert_int_equal(jobs_wanted(j, &entry), 2);
	entry_with(&entry, 1, "other");
	assert_int_equal(jobs_wanted(j, &entry), 0);
	assert_true(jobs_on_runner(j, "r1", &view));
	assert_int_equal(view.status, JOB_RUNNING);
	assert_string_equal(view.name, "build\\x1b[31m");
	assert_string_equal(view.conclusion, "");
	assert_false(jobs_on_runner(j, "R1", &view)); /* runner names are ours: exactly as made */
	assert_null(jobs_free(j));
}

static void test_broken_lists(void **state)
{
	static const char *const bad[] = {"", "{", "[]", "{}", "{\"jobs\":{}}", "{\"jobs\":[]", "null",
		"{\"jobs\":[],\"jobs\":[]}", "{\"jobs\":[{\"name\":\"\\u0000\"}]}"};
	struct error e = ERROR_INIT;
	struct jobs *j = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_fails(jobs_parse(bad[i], strlen(bad[i]), &j, &e), EBADMSG, &e, "list of jobs");
	assert_null(j);
}

static void test_missing(void **state)
{
	assert_int_equal(demand_missing(0, 0, 0, 2), 0);
	assert_int_equal(demand_missing(1, 0, 0, 2), 1);
	assert_int_equal(demand_missing(5, 0, 0, 2), 2);
	assert_int_equal(demand_missing(5, 1, 1, 2), 1);
	assert_int_equal(demand_missing(1, 1, 1, 2), 0); /* that lease will take it */
	assert_int_equal(demand_missing(1, 3, 3, 2), 0);
	assert_int_equal(demand_missing(2, 0, 2, 2), 0); /* both busy */
	assert_int_equal(demand_missing(UINT32_MAX, 0, 0, 100), 100);
}

#define ASK(...) outcome_decide(&(struct outcome_facts){__VA_ARGS__})

static void test_outcomes(void **state)
{
	static const struct {
		const char *conclusion;
		enum outcome outcome;
	} conclusions[] = {
		{"success", OUTCOME_SUCCEEDED},
		{"failure", OUTCOME_FAILED},
		{"cancelled", OUTCOME_CANCELLED},
		{"timed_out", OUTCOME_FAILED},
		{"skipped", OUTCOME_CANCELLED},
		{"something new", OUTCOME_FAILED},
	};
	struct job_view running = {.status = JOB_RUNNING};

	for (size_t i = 0; i < ARRAY_SIZE(conclusions); i++) {
		struct job_view done = {.status = JOB_COMPLETED};

		(void)snprintf(done.conclusion, sizeof(done.conclusion), "%s", conclusions[i].conclusion);
		/* GitHub's word counts, however the guest ended. */
		for (int cause = 0; cause < HAPPENING_COUNT; cause++) {
			enum outcome got =
				ASK(.job = &done, .cause = (enum vm_happening)cause, .patient = true);

			assert_int_equal(got, conclusions[i].outcome);
			assert_true(outcome_had_job(got));
		}
	}
	assert_int_equal(ASK(.job = &running, .cause = HAPPENING_STOPPED, .patient = true), OUTCOME_UNKNOWN);
	assert_int_equal(
		ASK(.job = &running, .cause = HAPPENING_STOPPED, .clean_end = true), OUTCOME_GUEST_DIED);
	assert_int_equal(
		ASK(.job = &running, .cause = HAPPENING_EXPIRED, .patient = true), OUTCOME_JOB_DEADLINE);
	assert_int_equal(ASK(.cause = HAPPENING_EXPIRED, .seen_busy = true), OUTCOME_JOB_DEADLINE);
	assert_int_equal(ASK(.cause = HAPPENING_EXPIRED, .seen_online = true), OUTCOME_NO_JOB);
	assert_int_equal(ASK(.cause = HAPPENING_EXPIRED), OUTCOME_NEVER_CONNECTED);
	assert_int_equal(ASK(.cause = HAPPENING_STOPPED, .patient = true), OUTCOME_UNKNOWN);
	assert_int_equal(ASK(.cause = HAPPENING_STOPPED, .clean_end = true), OUTCOME_NO_JOB);
	assert_int_equal(ASK(.cause = HAPPENING_STOPPED), OUTCOME_GUEST_DIED);
	assert_int_equal(
		ASK(.cause = HAPPENING_STOPPED, .clean_end = true, .seen_busy = true), OUTCOME_GUEST_DIED);
	for (int i = 0; i < OUTCOME_COUNT; i++) {
		enum outcome back;

		assert_int_equal(outcome_from_string(outcome_to_string((enum outcome)i), &back), 0);
		assert_int_equal(back, i);
	}
}

#define HINT(text) hint_of_console(text, strlen(text))

static void test_hints(void **state)
{
	assert_int_equal(HINT(""), HINT_NONE);
	assert_int_equal(HINT("boxery: listener exited 0\r\n"), HINT_NONE);
	assert_int_equal(HINT("x\nboxery: listener exited 5\r\nPowering off\n"), HINT_SESSION_CONFLICT);
	assert_int_equal(HINT("boxery: listener exited 7"), HINT_VERSION_DEPRECATED);
	assert_int_equal(HINT("boxery: listener exited 3\n"), HINT_UPDATED_ITSELF);
	assert_int_equal(HINT("boxery: listener exited 4\n"), HINT_UPDATED_ITSELF);
	assert_int_equal(HINT("boxery: listener exited 55\n"), HINT_NONE);
	assert_int_equal(HINT(" boxery: listener exited 5\n"), HINT_NONE);
	assert_int_equal(HINT("2026-11-30 01:02:03Z: An error occurred: Runner version v2.1.0 is deprecated and cannot receive "
			      "messages.\nboxery: listener exited 1\n"),
		HINT_VERSION_DEPRECATED);
	/* Believed only where no job ran, and the guest went quietly. */
	assert_int_equal(ASK(.cause = HAPPENING_STOPPED, .clean_end = true, .hint = HINT_UPDATED_ITSELF), OUTCOME_UPDATED_ITSELF);
	assert_int_equal(ASK(.cause = HAPPENING_STOPPED, .clean_end = true, .seen_busy = true, .hint = HINT_VERSION_DEPRECATED),
		OUTCOME_GUEST_DIED);
	assert_int_equal(ASK(.cause = HAPPENING_STOPPED, .hint = HINT_VERSION_DEPRECATED), OUTCOME_GUEST_DIED);
	for (int i = 0; i < OUTCOME_COUNT; i++)
		if (outcome_had_job((enum outcome)i))
			assert_int_equal(outcome_reaction((enum outcome)i), REACTION_GO_ON);
	assert_int_equal(outcome_reaction(OUTCOME_VERSION_DEPRECATED), REACTION_STOP);
}

static void test_unmatched(void **state)
{
	static const char text[] = "{\"jobs\":["
				   "{\"status\":\"queued\",\"name\":\"a\",\"labels\":[\"linux\",\"boxry\"]},"
				   "{\"status\":\"queued\",\"name\":\"b\",\"labels\":[\"windows\",\"gpu\"]},"
				   "{\"status\":\"queued\",\"name\":\"c\",\"labels\":[\"GPU\",\"linux\"]},"
				   "{\"status\":\"in_progress\",\"name\":\"d\",\"labels\":[\"x\"]}]}";
	CLEANUP(jobs_freep) struct jobs *j = NULL;
	struct runners_entry entries[2];
	struct job_near near[JOB_NEAR_MAX];
	struct error e = ERROR_INIT;

	runners_entry_defaults(&entries[0]);
	runners_entry_defaults(&entries[1]);
	assert_int_equal(str_copy(entries[0].scope, "octo/private"), 0);
	assert_int_equal(str_copy(entries[1].scope, "octo"), 0);
	assert_int_equal(str_copy(entries[1].labels[entries[1].n_labels++], "gpu"), 0);
	assert_ok(jobs_parse(text, strlen(text), &j, &e), &e);
	assert_int_equal(jobs_unmatched(j, entries, 2, "octo/private", near), 2);
	assert_string_equal(near[0].job, "a");
	assert_string_equal(near[0].label, "boxry");
	assert_string_equal(near[0].meant, "boxery");
	assert_string_equal(near[1].label, "windows");
	assert_string_equal(near[1].meant, "");
	assert_int_equal(near[1].off, 1);
	assert_int_equal(jobs_unmatched(j, entries, 2, "other/repo", near), 0); /* nobody's business */
	assert_int_equal(jobs_unmatched(j, entries, 1, "octo/other", near), 0);
	entries[1].n_repos = 1;
	(void)str_copy(entries[1].repos[0], "api");
	assert_true(entry_covers(&entries[1], "Octo/API"));
	assert_false(entry_covers(&entries[1], "octo/private"));
	assert_false(entry_covers(&entries[1], "octoo/api"));
}

static void note(struct budget *b, unsigned calls, unsigned unchanged, uint64_t at_ms)
{
	struct github_reply reply = {.calls = calls, .calls_free = unchanged, .rate_limit = 5000, .rate_remaining = 1000,
		.rate_reset_s = 1800};

	budget_note(b, GITHUB_JOBS, &reply, at_ms);
}

static void test_budget(void **state)
{
	const uint64_t minute = 60000, begin = 1000 * minute;
	struct budget b;

	budget_init(&b, begin);
	assert_int_equal(budget_hour(&b, begin), 0);
	assert_int_equal(budget_poll_ms(&b, 15000, begin), 15000); /* nothing is known of a limit */
	for (unsigned i = 0; i < 30; i++)
		note(&b, 2, 1, begin + i * minute);
	assert_int_equal(budget_hour(&b, begin + 29 * minute), 60);
	assert_int_equal(b.calls_free, 30);
	assert_int_equal(budget_hour(&b, begin + 70 * minute), 38); /* what is older than an hour is not counted */
	assert_int_equal(budget_hour(&b, begin + 200 * minute), 0);
	/* 1,000 left for half an hour, at 2,000 an hour: just enough. At 4,000 it lasts a quarter. */
	budget_init(&b, begin);
	for (unsigned i = 0; i < 10; i++)
		note(&b, 33, 0, begin + i * minute);
	assert_int_equal(budget_short_by_s(&b, begin + 9 * minute), 0);
	for (unsigned i = 0; i < 10; i++)
		note(&b, 33, 0, begin + i * minute);
	assert_in_range(budget_short_by_s(&b, begin + 9 * minute), 800, 1000);
	assert_int_equal(budget_poll_ms(&b, 15000, begin + 9 * minute), 15000); /* a fifth is left */
	b.remaining = 700;
	assert_int_equal(budget_poll_ms(&b, 15000, begin + 9 * minute), 60000);
	assert_int_equal(budget_poll_ms(&b, 300000, begin + 9 * minute), 300000);
	assert_int_equal(budget_poll_ms(&b, 15000, b.reset_ms), 15000); /* whole again */
	assert_int_equal(budget_forecast(15000, 1, 1), 240 * 4 + 12);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wanted),
		cmocka_unit_test(test_broken_lists),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_outcomes),
		cmocka_unit_test(test_hints),
		cmocka_unit_test(test_unmatched),
		cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
