/* The service's view of the wall clock, and what GitHub's dates say about a runner. */
#include "linux/clock.h"
#include "manager/steady.h"
#include "manager/versions.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define HOUR UINT64_C(3600000000)
#define DAY (24 * HOUR)
#define WALL (20000 * DAY)

static void test_steady(void **state)
{
	struct steady s = {0};

	assert_int_equal(steady_wall_us(&s, WALL, HOUR), WALL);
	assert_int_equal(steady_wall_us(&s, WALL + HOUR, 2 * HOUR), WALL + HOUR);
	/* Ahead by 20 days: not believed for a day, and it goes on as if nothing had been. */
	assert_int_equal(steady_wall_us(&s, WALL + 2 * HOUR + 20 * DAY, 3 * HOUR), WALL + 2 * HOUR);
	assert_int_equal(steady_wall_us(&s, WALL + 25 * HOUR + 20 * DAY, 26 * HOUR), WALL + 25 * HOUR);
	assert_int_equal(steady_wall_us(&s, WALL + 26 * HOUR + 20 * DAY, 27 * HOUR), WALL + 26 * HOUR + 20 * DAY);
	/* Back again, at once, even further than before. */
	assert_int_equal(steady_wall_us(&s, WALL - 9 * DAY, 28 * HOUR), WALL - 9 * DAY);
}

static void test_steady_again(void **state)
{
	struct steady s = {0};

	(void)steady_wall_us(&s, WALL, HOUR);
	/* One step ahead that is taken back, and another: each has a day of its own. */
	(void)steady_wall_us(&s, WALL + 5 * DAY, 2 * HOUR);
	assert_int_equal(steady_wall_us(&s, WALL + 20 * HOUR, 21 * HOUR), WALL + 20 * HOUR);
	assert_int_equal(steady_wall_us(&s, WALL + 30 * DAY, 22 * HOUR), WALL + 21 * HOUR);
	assert_int_equal(steady_wall_us(&s, WALL + 30 * DAY, 40 * HOUR), WALL + 39 * HOUR);
	/* Slow differences are followed, however far they lead. */
	for (uint64_t i = 1; i < 100; i++)
		assert_int_equal(steady_wall_us(&s, WALL + (40 + i) * HOUR + i * 540000000, (41 + i) * HOUR),
			WALL + (40 + i) * HOUR + i * 540000000);
}

static void test_judge(void **state)
{
	static const struct {
		const char *dates, *until;
		enum version_state state;
	} rows[] = {
		{"", "", VERSION_TAKEN},
		{"runs until 2026-12-31T00:00:00Z", "2026-12-31T00:00:00Z", VERSION_TAKEN},
		{"runs until 2026-12-14T12:00:00Z", "2026-12-14T12:00:00Z", VERSION_ENDS},
		{"runs until 2026-12-14T12:00:01Z", "2026-12-14T12:00:01Z", VERSION_TAKEN},
		{"runs until 2026-11-30T12:00:01Z", "2026-11-30T12:00:01Z", VERSION_ENDS},
		{"runs until 2026-11-30T12:00:00Z", "2026-11-30T12:00:00Z", VERSION_ENDED},
		{"registers until 2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z", VERSION_ENDS},
		{"registers until 2026-01-01T00:00:00Z, runs until 2027-01-01T00:00:00Z", "2026-01-01T00:00:00Z", VERSION_ENDS},
		{"registers until 2027-03-01T00:00:00Z, runs until 2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", VERSION_TAKEN},
		{"registers until 2026-01-01T00:00:00Z, runs until 2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z", VERSION_ENDED},
		{"runs until tomorrow", "", VERSION_TAKEN},
		{"runs until ", "", VERSION_TAKEN},
		{"runs until 2026-11-30T12:00:00Z2026-11-30T12:00:00Z2026-11-30T12:00:00Z", "", VERSION_TAKEN},
	};
	uint64_t now;

	assert_int_equal(clock_wall_parse("2026-11-30T12:00:00Z", &now), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char shown[32] = "";
		uint64_t until;

		if (versions_judge(rows[i].dates, now, &until) != rows[i].state)
			fail_msg("'%s' is judged wrongly", rows[i].dates);
		if (until)
			clock_wall_text(until * 1000000, shown, sizeof(shown));
		assert_string_equal(shown, rows[i].until);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steady),
		cmocka_unit_test(test_steady_again),
		cmocka_unit_test(test_judge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
