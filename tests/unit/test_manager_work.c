/* The life of a lease: every (state, event) pair against what is expected, and what no sequence of events may
 * do. */
#include "manager/backoff.h"
#include "manager/work.h"
#include "tests/unit/testing.h"

#define E(x) WORK_EV_##x

/* Written down a second time on purpose. CLOSE: whatever is left to do, here NAMING. */
#define CLOSE WORK_NAMING
static const int expected[WORK_STATE_COUNT][WORK_EVENT_COUNT] = {
#define TO(x) (WORK_##x + 1)
	[WORK_LEASING] = {[E(LEASED)] = TO(PLANNING), [E(REFUSED)] = TO(DONE), [E(KEEPER_ERROR)] = TO(DONE)},
	[WORK_PLANNING] = {[E(PLANNED)] = TO(MINTING),
		[E(KEEPER_ERROR)] = TO(RELEASING),
		[E(STOP)] = TO(RELEASING),
		[E(ENDED)] = CLOSE + 1},
	[WORK_MINTING] = {[E(MINTED)] = TO(RECORDING),
		[E(MINT_FAILED)] = TO(RELEASING),
		[E(STOP)] = TO(RELEASING),
		[E(ENDED)] = CLOSE + 1},
	[WORK_RECORDING] = {[E(RECORDED)] = TO(DELIVERING),
		[E(KEEPER_ERROR)] = TO(RELEASING),
		[E(STOP)] = TO(RELEASING),
		[E(ENDED)] = CLOSE + 1},
	[WORK_DELIVERING] = {[E(DELIVERED)] = TO(WAITING),
		[E(DELIVER_FAILED)] = TO(RELEASING),
		[E(ENDED)] = CLOSE + 1},
	[WORK_WAITING] = {[E(ONLINE)] = TO(IDLE),
		[E(BUSY)] = TO(BUSY),
		[E(OVERDUE)] = TO(DELETING),
		[E(ENDED)] = CLOSE + 1},
	[WORK_IDLE] = {[E(BUSY)] = TO(BUSY), [E(OVERDUE)] = TO(DELETING), [E(ENDED)] = CLOSE + 1},
	[WORK_BUSY] = {[E(ONLINE)] = TO(IDLE), [E(OVERDUE)] = TO(DELETING), [E(ENDED)] = CLOSE + 1},
	[WORK_DELETING] = {[E(DELETED)] = TO(RELEASING),
		[E(BUSY)] = TO(BUSY),
		[E(DUE)] = TO(DELETING),
		[E(ENDED)] = CLOSE + 1},
	[WORK_RELEASING] = {[E(RELEASED)] = CLOSE + 1, [E(ENDED)] = CLOSE + 1, [E(DUE)] = TO(RELEASING)},
	[WORK_ASKING] = {[E(DECIDED)] = CLOSE + 1, [E(AGAIN)] = TO(PAUSED), [E(UNKNOWN)] = TO(PAUSED)},
	[WORK_NAMING] = {[E(NAMED)] = CLOSE + 1, [E(KEEPER_ERROR)] = TO(PAUSED)},
	[WORK_SPENT] = {[E(ABSENT)] = TO(FORGETTING), [E(DUE)] = CLOSE + 1},
	[WORK_LOOKING] = {[E(FOUND)] = TO(CLEARING),
		[E(ABSENT)] = TO(FORGETTING),
		[E(AGAIN)] = TO(PAUSED),
		[E(UNKNOWN)] = TO(PAUSED)},
	[WORK_CLEARING] = {[E(DELETED)] = TO(FORGETTING), [E(BUSY)] = TO(PAUSED), [E(UNKNOWN)] = TO(PAUSED)},
	[WORK_FORGETTING] = {[E(FORGOTTEN)] = TO(DONE), [E(KEEPER_ERROR)] = TO(PAUSED)},
	[WORK_PAUSED] = {[E(DUE)] = CLOSE + 1},
};

static void test_every_pair(void **state)
{
	for (int s = 0; s < WORK_STATE_COUNT; s++)
		for (int ev = 0; ev < WORK_EVENT_COUNT; ev++) {
			struct work w = {.state = (enum work_state)s,
				.since_ms = 1,
				.due_ms = 2,
				.outcome = OUTCOME_NO_JOB};
			bool changed = work_step(&w, (enum work_event)ev, 77);

			assert_non_null(work_state_to_string((enum work_state)s));
			assert_non_null(work_event_to_string((enum work_event)ev));
			if (expected[s][ev]) {
				assert_true(changed);
				assert_int_equal(w.state, expected[s][ev] - 1);
				assert_int_equal(w.since_ms, 77);
				assert_int_equal(w.due_ms, 0);
			} else {
				assert_false(changed);
				assert_int_equal(w.state, s);
				assert_int_equal(w.since_ms, 1);
				assert_int_equal(w.due_ms, 2);
			}
		}
}

static void test_close(void **state)
{
	struct work w = {.delivered = true, .registration = REGISTRATION_MADE, .runner_id = 5};

	assert_int_equal(work_close(&w), WORK_ASKING);
	w.outcome = OUTCOME_FAILED;
	assert_int_equal(work_close(&w), WORK_NAMING);
	w.outcome_stored = true;
	assert_int_equal(work_close(&w), WORK_CLEARING);
	/* Its job has ended: the list of runners is waited for, once. */
	w.spent = true;
	assert_int_equal(work_close(&w), WORK_SPENT);
	w.state = WORK_SPENT;
	assert_true(work_step(&w, WORK_EV_DUE, 9));
	assert_int_equal(w.state, WORK_CLEARING);
	assert_int_equal(work_close(&w), WORK_CLEARING);
	w.deleted = true;
	assert_int_equal(work_close(&w), WORK_FORGETTING);
	w.registration = REGISTRATION_GONE;
	assert_int_equal(work_close(&w), WORK_DONE);

	/* The guest died before anything was delivered: nobody needs to be asked for the outcome. */
	w = (struct work){.registration = REGISTRATION_PLANNED};
	assert_int_equal(work_close(&w), WORK_NAMING);
	assert_int_equal(w.outcome, OUTCOME_START_FAILED);
	w.outcome_stored = true;
	assert_int_equal(work_close(&w), WORK_LOOKING); /* the id is not known, the name is */
	w.registration = REGISTRATION_NONE;
	assert_int_equal(work_close(&w), WORK_DONE);
}

/* From every state there is a way to the end, whatever the order of answers. */
static void test_random_sequences(void **state)
{
	uint64_t seed = 42;

	for (int run = 0; run < 20000; run++) {
		struct work w = {.state = WORK_LEASING};
		unsigned deliveries = 0, mints = 0;

		for (int i = 0; i < 60 && w.state != WORK_DONE; i++) {
			enum work_state before = w.state;
			bool open = work_is_open(before);

			seed = seed * 6364136223846793005u + 1442695040888963407u;
			if (!work_step(&w, (enum work_event)((seed >> 33) % WORK_EVENT_COUNT), 0))
				continue;
			mints += w.state == WORK_MINTING;
			if (w.state == WORK_DELIVERING) {
				deliveries++;
				w.delivered = true;
			}
			/* A lease that was given back is never used again. */
			assert_true(open || !work_is_open(w.state));
			if (before == WORK_RELEASING)
				assert_true(w.state == WORK_RELEASING || !work_is_open(w.state));
			if (!work_is_open(w.state) && w.outcome == OUTCOME_UNKNOWN && before == WORK_ASKING)
				w.outcome = OUTCOME_SUCCEEDED;
			if (before == WORK_NAMING && w.state != WORK_PAUSED)
				w.outcome_stored = true;
		}
		assert_true(deliveries <= 1);
		assert_true(mints <= 1);
	}
}

static void test_overdue(void **state)
{
	struct runners_entry conf;
	struct work w = {.state = WORK_WAITING, .since_ms = 1000};

	runners_entry_defaults(&conf);
	conf.start_timeout_ms = 10000;
	conf.idle_timeout_ms = 20000;
	assert_false(work_overdue(&w, &conf, 10999));
	assert_true(work_overdue(&w, &conf, 11000));
	assert_int_equal(work_overdue_outcome(&w), OUTCOME_NEVER_CONNECTED);
	w.state = WORK_IDLE;
	w.seen_online = true;
	assert_false(work_overdue(&w, &conf, 20999));
	assert_true(work_overdue(&w, &conf, 21000));
	assert_int_equal(work_overdue_outcome(&w), OUTCOME_NO_JOB);
	/* A running job is never overdue here ... */
	w.state = WORK_BUSY;
	w.took_job = true;
	assert_false(work_overdue(&w, &conf, UINT64_MAX));
	assert_int_equal(work_overdue_outcome(&w), OUTCOME_UNKNOWN);
	/* ... unless GitHub has not known its runner for a while. */
	w.gone_ms = 1000000;
	assert_false(work_overdue(&w, &conf, w.gone_ms + WORK_GONE_GRACE_MS - 1));
	assert_true(work_overdue(&w, &conf, w.gone_ms + WORK_GONE_GRACE_MS));
	/* ... or has seen it offline for longer than GitHub itself waits for it. */
	w.gone_ms = 0;
	w.offline_ms = 1000000;
	assert_false(work_overdue(&w, &conf, w.offline_ms + WORK_OFFLINE_GRACE_MS - 1));
	assert_true(work_overdue(&w, &conf, w.offline_ms + WORK_OFFLINE_GRACE_MS));
}

static void test_backoff(void **state)
{
	struct backoff b = {.min_ms = 1000, .max_ms = 60000};
	uint64_t whole = 1000;

	for (int i = 0; i < 100; i++) {
		struct backoff c = b;
		uint64_t least = backoff_next_with(&c, whole / 2), most = backoff_next_with(&b, 0);

		assert_int_equal(most, whole);
		assert_int_equal(least, whole - whole / 2);
		whole = whole * 2 > 60000 ? 60000 : whole * 2;
	}
	backoff_reset(&b);
	assert_true(backoff_next(&b) <= 1000);
	assert_true(backoff_next(&b) >= 1000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_pair),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_random_sequences),
		cmocka_unit_test(test_overdue),
		cmocka_unit_test(test_backoff),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
