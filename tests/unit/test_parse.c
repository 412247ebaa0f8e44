#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include <errno.h>

static void test_u64(void **state)
{
	static const char *const bad[] = { "", " 1", "1 ", "-1", "+1", "0x10", "1e3", "11", "2.0",
		"18446744073709551616", "99999999999999999999", "1\n" };
	struct error e = ERROR_INIT;
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_fails(parse_u64(bad[i], "count", 0, 10, &v, &e), EINVAL, &e, "count: '");
		assert_int_equal(v, 77);
	}
	assert_fails(parse_u64("0", "count", 1, 10, &v, &e), EINVAL, &e, "'0' is not a whole number from 1 to 10");
	assert_fails(parse_u64("\x1b[m", "count", 1, 10, &v, &e), EINVAL, &e, "'\\x1b[m'");
	assert_ok(parse_u64("10", "count", 1, 10, &v, &e), &e);
	assert_int_equal(v, 10);
	assert_ok(parse_u64("18446744073709551615", "count", 0, UINT64_MAX, &v, &e), &e);
	assert_true(v == UINT64_MAX);
}

static void test_bool(void **state)
{
	static const char *const bad[] = { "", "TRUE", "2", "of", "on ", "y" };
	struct error e = ERROR_INIT;
	bool v = false;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_fails(parse_bool(bad[i], "flag", &v, &e), EINVAL, &e, "neither on nor off");
	assert_false(v);
	assert_ok(parse_bool("yes", "flag", &v, &e), &e);
	assert_true(v);
	assert_ok(parse_bool("off", "flag", &v, &e), &e);
	assert_false(v);
	assert_ok(parse_bool("1", "flag", &v, &e), &e);
	assert_true(v);
	assert_ok(parse_bool("0", "flag", &v, &e), &e);
	assert_false(v);
}

static void test_duration(void **state)
{
	static const struct {
		const char *text;
		uint64_t ms;
	} good[] = { { "90s", 90000 }, { "10m", 600000 }, { "2h", 7200000 }, { "1d", 86400000 }, { "5", 5000 },
		{ "0", 0 } };
	static const char *const bad[] = { "", "s", "5 s", "5S", "5ms", "1h30m", "-5s", "1.5h",
		"18446744073709551615d" };
	struct error e = ERROR_INIT;
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_fails(parse_duration_ms(bad[i], "timeout", 0, UINT64_MAX, &v, &e), EINVAL, &e,
				"is not a duration");
	assert_fails(parse_duration_ms("5s", "timeout", 60000, 7200000, &v, &e), EINVAL, &e,
			"timeout: '5s' is not between 1m and 2h");
	assert_fails(parse_duration_ms("1d", "timeout", 0, 1500, &v, &e), EINVAL, &e, "between 0s and 1.500s");
	assert_int_equal(v, 77);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_ok(parse_duration_ms(good[i].text, "timeout", 0, UINT64_MAX, &v, &e), &e);
		assert_int_equal(v, good[i].ms);
	}
}

static void test_size(void **state)
{
	struct error e = ERROR_INIT;
	uint64_t v = 77;

	assert_fails(parse_size_mib("2g", "memory", 0, 1 << 20, &v, &e), EINVAL, &e, "is not a size");
	assert_fails(parse_size_mib("2GB", "memory", 0, 1 << 20, &v, &e), EINVAL, &e, "is not a size");
	assert_fails(parse_size_mib("18446744073709551615G", "memory", 0, UINT64_MAX, &v, &e), EINVAL, &e, "size");
	assert_fails(parse_size_mib("1M", "memory", 512, 4096, &v, &e), EINVAL, &e, "between 512M and 4096M");
	assert_int_equal(v, 77);
	assert_ok(parse_size_mib("2048M", "memory", 0, 1 << 20, &v, &e), &e);
	assert_int_equal(v, 2048);
	assert_ok(parse_size_mib("2G", "memory", 0, 1 << 20, &v, &e), &e);
	assert_int_equal(v, 2048);
	assert_ok(parse_size_mib("1T", "memory", 0, 1 << 20, &v, &e), &e);
	assert_int_equal(v, 1 << 20);
	assert_ok(parse_size_mib("512", "memory", 0, 1 << 20, &v, &e), &e);
	assert_int_equal(v, 512);
}

static void test_name(void **state)
{
	static const char *const good[] = { "a", "ci-1", "0a", "a--b", "abcdefghijabcdefghijabcdefghijabcdefghij" };
	static const char *const bad[] = { "", "-a", "a-", "A", "a.b", "a/b", "..", "a b", "\xc3\xa4", "a\n",
		"abcdefghijabcdefghijabcdefghijabcdefghijk" };
	struct error e = ERROR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_ok(name_check(good[i], "VM", &e), &e);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_fails(name_check(bad[i], "VM", &e), EINVAL, &e, "is not a name");
}

static void test_scope(void **state)
{
	static const char *const good[] = { "o/r", "My-Org/Repo.name_x-1", "o/...", "o/.github" };
	static const char *const bad[] = { "", "o", "/r", "o/", "o/r/x", "o.x/r", "o/.", "o/..", "o/a b", "o/r\n", "o//r",
		"https://github.com/o/r", "abcdefghijabcdefghijabcdefghijabcdefghij/r" };
	char text[SCOPE_MAX + 1];
	struct error e = ERROR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_ok(scope_check(good[i], &e), &e);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_fails(scope_check(bad[i], &e), EINVAL, &e, "is not a repository");
	/* The longest one fits SCOPE_MAX with its NUL; one more is refused. */
	memset(text, 'a', sizeof(text));
	text[39] = '/';
	text[SCOPE_MAX - 1] = '\0';
	assert_ok(scope_check(text, &e), &e);
	text[SCOPE_MAX - 1] = 'a';
	text[SCOPE_MAX] = '\0';
	assert_fails(scope_check(text, &e), EINVAL, &e, "is not a repository");
}

static void test_json_depth(void **state)
{
	static const char *const flat[] = {"", "{}", "[{\"a\":[]}]", "[[]],[[]]", "]]]][[[", "\"[[[[\"", "\"\\\"[[[[\"", "\"\\\\\",[]"};
	static const char *const deep[] = {"[[[[", "{\"a\":{\"b\":{\"c\":{", "\"\\\\\"[[[[", "[]][[[["};

	for (size_t i = 0; i < ARRAY_SIZE(flat); i++)
		assert_false(parse_json_deep(flat[i], strlen(flat[i]), 3));
	for (size_t i = 0; i < ARRAY_SIZE(deep); i++)
		assert_true(parse_json_deep(deep[i], strlen(deep[i]), 3));
	/* The length counts, not a NUL; a backslash at the end escapes nothing behind it. */
	assert_true(parse_json_deep("\0[[[[", 5, 3));
	assert_false(parse_json_deep("[[[[", 3, 3));
	assert_false(parse_json_deep("\"\\", 2, 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_u64), cmocka_unit_test(test_bool), cmocka_unit_test(test_duration),
		cmocka_unit_test(test_size), cmocka_unit_test(test_name), cmocka_unit_test(test_scope),
		cmocka_unit_test(test_json_depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
