/* Demand as GitHub's list tells it, and what is left of a lease in a word. */
#include "manager/demand.h"
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wanted),
		cmocka_unit_test(test_broken_lists),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_outcomes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
