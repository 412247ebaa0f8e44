#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/table.h"
#include <errno.h>

static void test_compare(void **state)
{
	assert_true(str_equal("a", "a"));
	assert_false(str_equal("a", "b"));
	assert_true(str_equal(NULL, NULL));
	assert_false(str_equal(NULL, ""));
	assert_true(str_starts("boxery-vm", "boxery-"));
	assert_true(str_starts("x", ""));
	assert_false(str_starts("bo", "boxery"));
}

static void test_copy(void **state)
{
	char dst[4] = "old";

	assert_int_equal(str_copy(dst, "four"), -ENAMETOOLONG);
	assert_string_equal(dst, "old");
	assert_int_equal(str_copy(dst, "new"), 0);
	assert_string_equal(dst, "new");
	assert_int_equal(str_copy_n(dst, 0, ""), -ENAMETOOLONG);
	assert_int_equal(str_format(dst, "%d", 1234), -ENAMETOOLONG);
	assert_string_equal(dst, "new");
	assert_int_equal(str_format(dst, "%d", 123), 0);
	assert_string_equal(dst, "123");
}

static void test_show(void **state)
{
	char dst[16], small[6];
	const char hostile[] = "a\n\x1b[\xff\0b";

	str_show_n(dst, sizeof(dst), "plain", 5);
	assert_string_equal(dst, "plain");
	str_show_n(dst, sizeof(dst), hostile, 5);
	assert_string_equal(dst, "a\\x0a\\x1b[\\xff");
	str_show_n(dst, sizeof(dst), hostile + 5, 2);
	assert_string_equal(dst, "\\x00b");
	/* An escape that does not fit whole is left out, and nothing follows it. */
	str_show_n(small, sizeof(small), "ab\nc", 4);
	assert_string_equal(small, "ab");
	str_show_n(small, 1, "ab", 2);
	assert_string_equal(small, "");
	str_show_n(small, 0, "ab", 2);
}

static void test_terminated(void **state)
{
	const char open[3] = { 'a', 'b', 'c' };

	assert_false(str_is_terminated(open, sizeof(open)));
	assert_true(str_is_terminated("ab", 3));
	assert_false(str_is_terminated("ab", 2));
	assert_false(str_is_terminated("", 0));
}

static void test_buf(void **state)
{
	CLEANUP_BUF struct buf b = BUF_INIT(100);

	assert_int_equal(buf_add(&b, NULL, 0), 0);
	assert_string_equal(b.data, "");
	assert_int_equal(buf_addf(&b, "%s-%d", "abc", 7), 0);
	assert_string_equal(b.data, "abc-7");
	for (int i = 0; i < 95; i++)
		assert_int_equal(buf_add(&b, "x", 1), 0);
	assert_int_equal(b.len, 100);
	assert_int_equal(buf_add(&b, "x", 1), -E2BIG);
	assert_int_equal(buf_addf(&b, "%d", 1), -E2BIG);
	assert_int_equal(buf_add(&b, "", 0), 0);
	assert_int_equal(b.len, 100);
	assert_int_equal(strlen(b.data), 100);
	buf_free(&b);
	assert_null(b.data);
	assert_int_equal(buf_add(&b, "again", 5), 0);
	assert_string_equal(b.data, "again");
}

static void test_buf_limits(void **state)
{
	CLEANUP_BUF struct buf none = BUF_INIT(0);
	CLEANUP_BUF struct buf all = BUF_INIT(SIZE_MAX);

	assert_int_equal(buf_add(&none, "", 0), 0);
	assert_int_equal(buf_add(&none, "x", 1), -E2BIG);
	/* No room for the NUL: refused and not wrapped around. */
	assert_int_equal(buf_add(&all, "x", 1), -E2BIG);
}

static void test_xml(void **state)
{
	static const char *const bad[] = {
		"a\x01", "\x80", "\xc0\x80", "\xed\xa0\x80", "\xef\xbf\xbf", "\xf4\x90\x80\x80", "\xe2\x82", "\xff", "\x1b",
	};
	CLEANUP_BUF struct buf b = BUF_INIT(64);

	assert_int_equal(buf_add_xml(&b, "<a b='c' d=\"e\">&"), 0);
	assert_string_equal(b.data, "&lt;a b=&apos;c&apos; d=&quot;e&quot;&gt;&amp;");
	buf_free(&b);
	assert_int_equal(buf_add_xml(&b, "\t\n\r \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), 0);
	assert_string_equal(b.data, "\t\n\r \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
	buf_free(&b);
	assert_int_equal(buf_add(&b, "keep", 4), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(buf_add_xml(&b, bad[i]), -EINVAL);
		assert_string_equal(b.data, "keep");
	}
	/* What does not fit leaves nothing behind either. */
	assert_int_equal(buf_add_xml(&b, "&&&&&&&&&&&&&&&&&&&&"), -E2BIG);
	assert_string_equal(b.data, "keep");
}

enum colour { RED, GREEN, COLOURS };
static const char *const colour_names[] = { [RED] = "red", [GREEN] = "green" };
const char *colour_to_string(enum colour v);
int colour_from_string(const char *s, enum colour *ret);
STRING_TABLE(colour, enum colour, colour_names, COLOURS);

static void test_table(void **state)
{
	enum colour c = GREEN;

	assert_string_equal(colour_to_string(RED), "red");
	assert_null(colour_to_string(COLOURS));
	assert_int_equal(colour_from_string("blue", &c), -EINVAL);
	assert_int_equal(colour_from_string(NULL, &c), -EINVAL);
	assert_int_equal(c, GREEN);
	assert_int_equal(colour_from_string("red", &c), 0);
	assert_int_equal(c, RED);
}

static void test_cleanup(void **state)
{
	unsigned before = test_count_fds();
	int kept = -1;
	char *p = malloc(1), *moved = TAKE_PTR(p);

	assert_null(p);
	free(moved);
	{
		CLEANUP_FD int closed = dup(2);
		CLEANUP_FD int given = dup(2);
		CLEANUP_FREE char *text = malloc(10);
		CLEANUP_FILE FILE *f = fopen("/dev/null", "re");
		CLEANUP_DIR DIR *d = opendir("/");

		assert_true(closed >= 0 && text && f && d);
		kept = TAKE_FD(given);
		assert_int_equal(given, -1);
	}
	assert_int_equal(test_count_fds(), before + 1);
	errno = EXDEV;
	assert_int_equal(fd_close(kept), -1);
	assert_int_equal(fd_close(-1), -1);
	assert_int_equal(fd_close(kept), -1);
	assert_int_equal(errno, EXDEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compare), cmocka_unit_test(test_copy), cmocka_unit_test(test_show),
		cmocka_unit_test(test_terminated), cmocka_unit_test(test_buf), cmocka_unit_test(test_buf_limits),
		cmocka_unit_test(test_xml), cmocka_unit_test(test_table), cmocka_unit_test(test_cleanup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
