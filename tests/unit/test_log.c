#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "linux/clock.h"
#include "linux/log.h"
#include <errno.h>

/* Points stderr at a pipe for the time of one call and returns what came. */
#define captured(text, call)                                                                                           \
	do {                                                                                                           \
		int p_[2], saved_ = fcntl(2, F_DUPFD_CLOEXEC, 10);                                                     \
		ssize_t n_;                                                                                            \
		assert_int_equal(pipe2(p_, O_CLOEXEC | O_NONBLOCK), 0);                                                \
		(void)dup2(p_[1], 2);                                                                                  \
		call;                                                                                                  \
		(void)dup2(saved_, 2);                                                                                 \
		(void)close(saved_);                                                                                   \
		n_ = read(p_[0], (text), sizeof(text) - 1);                                                            \
		(text)[n_ > 0 ? n_ : 0] = '\0';                                                                        \
		(void)close(p_[0]);                                                                                    \
		(void)close(p_[1]);                                                                                    \
	} while (0)

static void test_plain(void **state)
{
	char text[4096];

	log_open("boxery-test", LOG_INFO);
	captured(text, log_info("hello %d", 7));
	assert_int_equal(text[19], 'Z');
	assert_string_equal(text + 20, " info boxery-test: hello 7\n");
	captured(text, log_vm(LOG_ERR, "ci-1", "l-9", "broken"));
	assert_string_equal(text + 20, " error boxery-test: broken vm=ci-1 lease=l-9\n");
	captured(text, log_vm(LOG_WARNING, "ci-1", "", "odd"));
	assert_string_equal(text + 20, " warning boxery-test: odd vm=ci-1\n");
	captured(text, log_vm(LOG_WARNING, NULL, NULL, "odd"));
	assert_string_equal(text + 20, " warning boxery-test: odd\n");
}

static void test_level(void **state)
{
	char text[4096];

	log_open("boxery-test", LOG_INFO);
	captured(text, log_debug("quiet"));
	assert_string_equal(text, "");
	log_set_level(LOG_DEBUG);
	captured(text, log_debug("loud"));
	assert_non_null(strstr(text, "debug boxery-test: loud\n"));
	log_set_level(LOG_ERR);
	captured(text, log_warning("quiet"));
	assert_string_equal(text, "");
}

/* One record is one line, however long it is and whatever is in it. */
static void test_one_line(void **state)
{
	char text[8192], big[5000];

	log_open("boxery-test", LOG_INFO);
	captured(text, log_error("%s", "a\nforged line\x1b[2J"));
	assert_string_equal(text + 20, " error boxery-test: a forged line [2J\n");
	memset(big, 'x', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	captured(text, log_error("%s", big));
	assert_true(strlen(text) < 2200);
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void test_errno(void **state)
{
	char text[4096];

	log_open("boxery-test", LOG_INFO);
	errno = EXDEV;
	captured(text, {
		errno = EXDEV;
		log_info("x");
		assert_int_equal(errno, EXDEV);
	});
}

/* A stderr that is not the stream JOURNAL_STREAM names is no journal: a service's child may have been redirected. */
static void test_other_stream(void **state)
{
	char text[4096];

	(void)setenv("JOURNAL_STREAM", "1:1", 1);
	log_open("boxery-test", LOG_INFO);
	captured(text, log_info("plain"));
	assert_non_null(strstr(text, "plain"));
	(void)unsetenv("JOURNAL_STREAM");
}

static void test_clock(void **state)
{
	char id[BOOT_ID_MAX], again[BOOT_ID_MAX], text[32], small[5];
	struct error e = ERROR_INIT;
	uint64_t a = clock_boot_us(), b = clock_boot_us();

	assert_true(a > 0 && b >= a);
	assert_ok(clock_boot_id(id, &e), &e);
	assert_ok(clock_boot_id(again, &e), &e);
	assert_int_equal(strlen(id), BOOT_ID_MAX - 1);
	assert_string_equal(id, again);
	clock_wall_text(1795990201ull * 1000000u + 999999u, text, sizeof(text));
	assert_string_equal(text, "2026-11-29T22:10:01Z");
	clock_wall_text(0, text, sizeof(text));
	assert_string_equal(text, "1970-01-01T00:00:00Z");
	clock_wall_text(0, small, sizeof(small));
	assert_string_equal(small, "");
	clock_wall_text(0, small, 0);

	uint64_t s = 7;
	assert_int_equal(clock_wall_parse("2026-11-29T22:10:01Z", &s), 0);
	assert_int_equal(s, 1795990201);
	assert_int_equal(clock_wall_parse("2026-11-29T22:10:02.125Z", &s), 0);
	assert_int_equal(s, 1795990202);
	static const char *const bad[] = {NULL, "", "2026-11-29", "2026-11-29T22:10:01", "2026-11-29T22:10:01Zx", "2026-11-29T22:10:01+02:00",
		"1969-11-29T22:10:01Z", "now"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(clock_wall_parse(bad[i], &s), -EINVAL);
	assert_int_equal(s, 1795990202);
	clock_wall_text(UINT64_MAX, text, sizeof(text));
	assert_true(clock_wall_us() > 1700000000ull * 1000000u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain), cmocka_unit_test(test_level), cmocka_unit_test(test_one_line),
		cmocka_unit_test(test_errno), cmocka_unit_test(test_other_stream), cmocka_unit_test(test_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
