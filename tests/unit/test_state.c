/*
 * The transition table against a list of expectations that was written from docs/architecture.md, section 4,
 * and not from the table: every pair of a state and a happening that is not in the list must be ignored. Then
 * the invariants, over random lives.
 */
#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "pool/state.h"
#include <errno.h>

struct expectation {
	const char *from, *what, *to;
	enum state_effect effect;
	char failures; /* '=' kept, '+' one more, '0' cleared; '!' one more and 'v' kept, with BROKEN at three
			*/
	const char *also;
};

static const struct expectation expected[] = {
	/* An admin's VM. */
	{"PLAIN", "START", "PLAIN", EFFECT_START, '=', "generation"},
	{"PLAIN", "ADD", "ADDING", EFFECT_CAPTURE, '=', ""},
	{"ADDING", "MAINTAINED", "RESETTING", EFFECT_RESET, '0', ""},
	{"ADDING", "MAINTAIN_FAILED", "PLAIN", EFFECT_NONE, '=', ""},
	{"ADDING", "DEADLINE", "PLAIN", EFFECT_NONE, '=', ""},
	{"ADDING", "DOUBT", "PLAIN", EFFECT_NONE, '=', ""},
	{"ADDING", "INTERRUPTED", "PLAIN", EFFECT_NONE, '=', ""},
	/* Getting ready. */
	{"COLD", "START", "STARTING", EFFECT_START, '=', "generation"},
	{"STARTING", "STARTED", "READY", EFFECT_NONE, '0', ""},
	{"STARTING", "START_FAILED", "RESETTING", EFFECT_RESET, '+', ""},
	{"STARTING", "DEADLINE", "RESETTING", EFFECT_RESET, '+', ""},
	{"STARTING", "STOPPED", "RESETTING", EFFECT_RESET, '+', ""},
	{"STARTING", "DOUBT", "RESETTING", EFFECT_RESET, '+', ""},
	{"STARTING", "INTERRUPTED", "RESETTING", EFFECT_RESET, '=', ""},
	{"STARTING", "MAINTAIN_FAILED", "RESETTING", EFFECT_RESET, '=', ""},
	/* One job. */
	{"READY", "LEASE", "LEASED", EFFECT_WAKE, '=', "opens"},
	{"LEASED", "DELIVER", "DELIVERED", EFFECT_DELIVER, '=', ""},
	{"DELIVERED", "JOB_SEEN", "BUSY", EFFECT_NONE, '=', ""},
	/* Its ends. */
	{"READY", "STOPPED", "RESETTING", EFFECT_RESET, '=', ""},
	{"READY", "SHORT_LIFE", "RESETTING", EFFECT_RESET, '+', ""},
	{"READY", "DEADLINE", "RESETTING", EFFECT_RESET, '=', ""},
	{"READY", "DOUBT", "RESETTING", EFFECT_RESET, '=', ""},
	{"LEASED", "RELEASE", "RESETTING", EFFECT_RESET, '=', ""},
	{"LEASED", "STOPPED", "RESETTING", EFFECT_RESET, '=', ""},
	{"LEASED", "DEADLINE", "RESETTING", EFFECT_RESET, '=', ""},
	{"LEASED", "EXPIRED", "RESETTING", EFFECT_RESET, '=', ""},
	{"LEASED", "HOLDER_LOST", "RESETTING", EFFECT_RESET, '=', ""},
	{"LEASED", "DOUBT", "RESETTING", EFFECT_RESET, '=', ""},
	{"LEASED", "KEEP", "KEPT", EFFECT_HALT, '=', ""},
	{"LEASED", "WAKE_FAILED", "RESETTING", EFFECT_RESET, '+', ""},
	{"LEASED", "INTERRUPTED", "RESETTING", EFFECT_RESET, '=', ""},
	{"DELIVERED", "RELEASE", "RESETTING", EFFECT_RESET, '=', ""},
	{"DELIVERED", "STOPPED", "RESETTING", EFFECT_RESET, '=', ""},
	{"DELIVERED", "DEADLINE", "RESETTING", EFFECT_RESET, '=', ""},
	{"DELIVERED", "EXPIRED", "RESETTING", EFFECT_RESET, '=', ""},
	{"DELIVERED", "HOLDER_LOST", "RESETTING", EFFECT_RESET, '=', ""},
	{"DELIVERED", "DOUBT", "RESETTING", EFFECT_RESET, '=', ""},
	{"DELIVERED", "KEEP", "KEPT", EFFECT_HALT, '=', ""},
	{"BUSY", "RELEASE", "RESETTING", EFFECT_RESET, '=', ""},
	{"BUSY", "STOPPED", "RESETTING", EFFECT_RESET, '=', ""},
	{"BUSY", "DEADLINE", "RESETTING", EFFECT_RESET, '=', ""},
	{"BUSY", "EXPIRED", "RESETTING", EFFECT_RESET, '=', ""},
	{"BUSY", "HOLDER_LOST", "RESETTING", EFFECT_RESET, '=', ""},
	{"BUSY", "DOUBT", "RESETTING", EFFECT_RESET, '=', ""},
	{"BUSY", "KEEP", "KEPT", EFFECT_HALT, '=', ""},
	/* The reset and the quarantine. */
	{"RESETTING", "RESET_DONE", "COLD", EFFECT_NONE, 'v', "closes"},
	{"RESETTING", "RESET_FAILED", "RESETTING", EFFECT_RESET, '!', ""},
	{"RESETTING", "DEADLINE", "RESETTING", EFFECT_RESET, '!', ""},
	{"RESETTING", "INTERRUPTED", "RESETTING", EFFECT_RESET, '=', ""},
	{"COLD", "DOUBT", "RESETTING", EFFECT_RESET, '=', ""},
	{"BROKEN", "REPAIR", "RESETTING", EFFECT_RESET, '0', ""},
	/* Captured again. */
	{"COLD", "MAINTAIN", "MAINTENANCE", EFFECT_CAPTURE, '=', ""},
	{"READY", "MAINTAIN", "MAINTENANCE", EFFECT_CAPTURE, '=', ""},
	{"MAINTENANCE", "MAINTAINED", "RESETTING", EFFECT_RESET, '=', ""},
	{"MAINTENANCE", "MAINTAIN_FAILED", "RESETTING", EFFECT_RESET, '=', ""},
	{"MAINTENANCE", "DEADLINE", "RESETTING", EFFECT_RESET, '=', ""},
	{"MAINTENANCE", "DOUBT", "RESETTING", EFFECT_RESET, '=', ""},
	{"MAINTENANCE", "INTERRUPTED", "RESETTING", EFFECT_RESET, '=', ""},
	/* Looked at by an admin. */
	{"BROKEN", "INSPECT", "MAINTENANCE", EFFECT_NONE, '=', "generation opens"},
	{"MAINTENANCE", "RELEASE", "RESETTING", EFFECT_RESET, '0', ""},
	{"MAINTENANCE", "EXPIRED", "RESETTING", EFFECT_RESET, '0', ""},
	{"MAINTENANCE", "HOLDER_LOST", "RESETTING", EFFECT_RESET, '0', ""},
	{"KEPT", "REPAIR", "RESETTING", EFFECT_RESET, '=', ""},
	{"KEPT", "RELEASE", "RESETTING", EFFECT_RESET, '=', ""},
	{"KEPT", "DEADLINE", "RESETTING", EFFECT_RESET, '=', ""},
	{"KEPT", "DOUBT", "RESETTING", EFFECT_RESET, '=', ""},
	{"KEPT", "INTERRUPTED", "KEPT", EFFECT_HALT, '=', ""},
	{"KEPT", "RESET_FAILED", "RESETTING", EFFECT_RESET, '+', ""},
};

static const struct expectation *find(enum vm_state from, enum vm_happening what)
{
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		if (strcmp(expected[i].from, state_to_string(from)) == 0 &&
			strcmp(expected[i].what, happening_to_string(what)) == 0)
			return &expected[i];
	return NULL;
}

static void check_pair(enum vm_state from, enum vm_happening what, int32_t attempts)
{
	struct state_change c, poison;
	const struct expectation *x = find(from, what);

	memset(&poison, 0x5a, sizeof(poison));
	c = poison;
	bool changed = state_next(from, what, attempts, &c);
	if (changed != (x != NULL))
		fail_msg("%s on %s: %s", state_to_string(from), happening_to_string(what),
			changed ? "an edge" : "no edge");
	if (!x) {
		assert_memory_equal(&c, &poison, sizeof(c));
		return;
	}
	int32_t count = x->failures == '0' ? 0 : attempts + (x->failures == '+' || x->failures == '!');
	bool broken = (x->failures == '!' || x->failures == 'v') && count >= 3;
	assert_int_equal(c.attempts, count);
	assert_string_equal(state_to_string(c.to), broken ? "BROKEN" : x->to);
	assert_int_equal(c.effect, broken ? EFFECT_ALARM : x->effect);
	assert_int_equal(c.new_generation, strstr(x->also, "generation") != NULL);
	assert_int_equal(c.opens_lease, strstr(x->also, "opens") != NULL);
	assert_int_equal(c.closes_lease, broken || strcmp(x->also, "closes") == 0);
}

static void test_every_pair(void **state)
{
	unsigned edges = 0;
	for (unsigned from = 0; from < STATE_COUNT; from++)
		for (unsigned what = 0; what < HAPPENING_COUNT; what++) {
			for (int32_t attempts = 0; attempts < 6; attempts++)
				check_pair((enum vm_state)from, (enum vm_happening)what, attempts);
			edges += find((enum vm_state)from, (enum vm_happening)what) != NULL;
		}
	/* A misspelt or repeated line would otherwise expect nothing. */
	assert_int_equal(edges, ARRAY_SIZE(expected));
}

static void test_words(void **state)
{
	enum vm_state s;
	enum vm_happening h;
	for (unsigned i = 0; i < STATE_COUNT; i++) {
		assert_int_equal(state_from_string(state_to_string((enum vm_state)i), &s), 0);
		assert_int_equal(s, i);
		assert_int_equal(state_has_lease((enum vm_state)i),
			i == STATE_LEASED || i == STATE_DELIVERED || i == STATE_BUSY);
	}
	for (unsigned i = 0; i < HAPPENING_COUNT; i++) {
		assert_int_equal(happening_from_string(happening_to_string((enum vm_happening)i), &h), 0);
		assert_int_equal(h, i);
	}
	assert_null(state_to_string(STATE_COUNT));
	assert_int_equal(state_from_string("ready", &s), -EINVAL);
	assert_int_equal(happening_from_string("", &h), -EINVAL);
}

/* Three failures in a row in every mixture of failed starts and failed resets, and BROKEN each time. */
static void test_third_failure(void **state)
{
	for (unsigned mixture = 0; mixture < 8; mixture++) {
		struct state_change c = {.to = STATE_COLD};
		for (unsigned i = 0; i < 3; i++) {
			if (mixture & (1u << i)) { /* a start fails; the reset after it works unless the next
						      one fails */
				if (c.to == STATE_RESETTING)
					assert_true(state_next(c.to, HAPPENING_RESET_DONE, c.attempts, &c));
				assert_int_equal(c.to, STATE_COLD);
				assert_true(state_next(c.to, HAPPENING_START, c.attempts, &c));
				assert_true(state_next(c.to, HAPPENING_START_FAILED, c.attempts, &c));
			} else { /* a reset fails */
				if (c.to == STATE_COLD)
					assert_true(state_next(c.to, HAPPENING_DOUBT, c.attempts, &c));
				assert_true(state_next(c.to, HAPPENING_RESET_FAILED, c.attempts, &c));
			}
			assert_int_equal(c.attempts, i + 1);
			if (i < 2)
				assert_int_equal(c.to, STATE_RESETTING);
		}
		if (c.to == STATE_RESETTING) /* the third was a start: off first, then the verdict */
			assert_true(state_next(c.to, HAPPENING_RESET_DONE, c.attempts, &c));
		assert_int_equal(c.to, STATE_BROKEN);
		assert_int_equal(c.effect, EFFECT_ALARM);
		assert_true(state_next(c.to, HAPPENING_REPAIR, c.attempts, &c));
		assert_int_equal(c.attempts, 0);
	}
}

/* Whatever the state, there is a way to READY (for an admin's VM: by pool add). */
static void test_no_dead_end(void **state)
{
	bool reaches[STATE_COUNT] = {[STATE_READY] = true};
	for (unsigned round = 0; round < STATE_COUNT; round++)
		for (unsigned from = 0; from < STATE_COUNT; from++)
			for (unsigned what = 0; what < HAPPENING_COUNT; what++) {
				struct state_change c;
				if (state_next((enum vm_state)from, (enum vm_happening)what, 0, &c) &&
					reaches[c.to])
					reaches[from] = true;
			}
	for (unsigned i = 0; i < STATE_COUNT; i++)
		if (!reaches[i])
			fail_msg("no way from %s to READY", state_to_string((enum vm_state)i));
}

static uint64_t random_next(uint64_t *x) /* xorshift64*: the same lives on every machine */
{
	*x ^= *x >> 12;
	*x ^= *x << 25;
	*x ^= *x >> 27;
	return *x * 0x2545f4914f6cdd1dull;
}

struct life { /* what an observer notes down beside the state */
	enum vm_state state;
	int32_t attempts, failures_in_row, cleared; /* cleared: what READY made of the row's count, for a short life or a failed wake-up */
	uint64_t generation, delivered_generation;
	bool lease_open;
	bool touched; /* leased since the last reset */
};

/* Failures that READY had cleared the count of. */
static bool goes_on(enum vm_happening what)
{
	return what == HAPPENING_SHORT_LIFE || what == HAPPENING_WAKE_FAILED;
}

static bool is_failure(enum vm_state from, enum vm_happening what)
{
	return (from == STATE_STARTING && (what == HAPPENING_START_FAILED || what == HAPPENING_STOPPED ||
						  what == HAPPENING_DEADLINE || what == HAPPENING_DOUBT)) ||
	       (from == STATE_RESETTING && (what == HAPPENING_RESET_FAILED || what == HAPPENING_DEADLINE)) ||
	       goes_on(what) || (from == STATE_KEPT && what == HAPPENING_RESET_FAILED);
}

static void observe(struct life *l, enum vm_happening what, const struct state_change *c)
{
	enum vm_state from = l->state;

	if (goes_on(what))
		l->failures_in_row = l->cleared;
	if (is_failure(from, what))
		l->failures_in_row++;
	if (what == HAPPENING_STARTED)
		l->cleared = l->failures_in_row;
	if (what == HAPPENING_STARTED || (from == STATE_BROKEN && what == HAPPENING_REPAIR) ||
		(from == STATE_MAINTENANCE && c->to == STATE_RESETTING &&
			(what == HAPPENING_RELEASE || what == HAPPENING_EXPIRED || what == HAPPENING_HOLDER_LOST)))
		l->failures_in_row = 0;
	if (c->to == STATE_READY && from != STATE_READY)
		assert_true(from == STATE_STARTING && what == HAPPENING_STARTED);
	if (c->to == STATE_LEASED) {
		assert_int_equal(from, STATE_READY);
		assert_true(c->opens_lease);
		l->touched = true;
	}
	if (c->opens_lease) {
		assert_false(l->lease_open);
		l->lease_open = true;
	}
	if (c->closes_lease)
		l->lease_open = false;
	if (c->to == STATE_RESETTING)
		assert_int_equal(c->effect, EFFECT_RESET);
	if (from == STATE_RESETTING && c->to == STATE_COLD)
		l->touched = false;
	if (c->to == STATE_COLD)
		assert_int_equal(from, STATE_RESETTING);
	if (c->to == STATE_READY)
		assert_false(l->touched); /* no way back but through a reset */
	if (c->new_generation) {
		l->generation++;
		assert_true(c->to == STATE_STARTING || c->to == STATE_PLAIN || what == HAPPENING_INSPECT);
	}
	if (c->effect == EFFECT_DELIVER) {
		assert_int_not_equal(l->delivered_generation, l->generation);
		l->delivered_generation = l->generation;
	}
	if (from == STATE_BROKEN)
		assert_true(what == HAPPENING_REPAIR || what == HAPPENING_INSPECT);
	if (c->to == STATE_KEPT)
		assert_int_equal(c->effect, EFFECT_HALT);
	if (from == STATE_KEPT)
		assert_true(c->to == STATE_KEPT || c->to == STATE_RESETTING);
	if (c->to == STATE_STARTING)
		assert_true(l->failures_in_row < 3);
	if (c->to == STATE_BROKEN)
		assert_true(l->failures_in_row >= 3);
	assert_int_equal(c->attempts, l->failures_in_row);
	l->state = c->to;
	l->attempts = c->attempts;

	if (state_has_lease(l->state))
		assert_true(l->lease_open);
	else if (l->state == STATE_KEPT)
		assert_true(l->lease_open);
	else if (l->state != STATE_RESETTING && l->state != STATE_MAINTENANCE)
		assert_false(l->lease_open);
}

static void test_random_lives(void **state)
{
	unsigned seen[STATE_COUNT][HAPPENING_COUNT] = {{0}};
	unsigned broken = 0, ignored = 0;

	for (uint64_t seed = 1; seed <= 8000; seed++) {
		struct life l = {.state = STATE_PLAIN};
		uint64_t x = seed * 0x9e3779b97f4a7c15ull;
		for (unsigned step = 0; step < 500;) {
			enum vm_happening what =
				(enum vm_happening)((random_next(&x) >> 33) % HAPPENING_COUNT);
			struct state_change c;
			if (!state_next(l.state, what, goes_on(what) ? l.cleared : l.attempts, &c)) {
				if (++ignored > 10000)
					fail_msg("stuck in %s", state_to_string(l.state));
				continue;
			}
			ignored = 0;
			step++;
			seen[l.state][what]++;
			broken += c.to == STATE_BROKEN;
			observe(&l, what, &c);
		}
	}
	/* The walk would prove little if it never came by. */
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		enum vm_state from = STATE_COUNT;
		enum vm_happening what = HAPPENING_COUNT;
		(void)state_from_string(expected[i].from, &from);
		(void)happening_from_string(expected[i].what, &what);
		if (seen[from][what] == 0)
			fail_msg("the random lives never saw %s on %s", expected[i].from, expected[i].what);
	}
	assert_true(broken > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_every_pair),
		cmocka_unit_test(test_third_failure),
		cmocka_unit_test(test_no_dead_end),
		cmocka_unit_test(test_random_lives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
