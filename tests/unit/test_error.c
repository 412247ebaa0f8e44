#include "tests/unit/testing.h"
#include <errno.h>

static void test_set(void **state)
{
	struct error e = ERROR_INIT;

	assert_fails(error_set(&e, ENOENT, "image %s", "a"), ENOENT, &e, "image a");
	assert_fails(error_errno(&e, EACCES, "cannot open %s", "x"), EACCES, &e, "cannot open x: Permission denied");
	error_clear(&e);
	assert_int_equal(e.code, 0);
	assert_string_equal(e.text, "");
}

static void test_wrap(void **state)
{
	struct error e = ERROR_INIT;

	assert_int_equal(error_wrap(&e, "context"), -EINVAL);
	assert_string_equal(e.text, "");
	(void)error_set(&e, EIO, "cause");
	assert_int_equal(error_wrap(&e, "step %d", 2), -EIO);
	assert_string_equal(e.text, "step 2: cause");
	assert_int_equal(error_wrap(&e, "job"), -EIO);
	assert_string_equal(e.text, "job: step 2: cause");
}

/* The text of an error may be an argument of its next text. */
static void test_alias(void **state)
{
	struct error e = ERROR_INIT;

	(void)error_set(&e, EIO, "cause");
	(void)error_set(&e, EIO, "[%s]", e.text);
	assert_string_equal(e.text, "[cause]");
	(void)error_wrap(&e, "<%s>", e.text);
	assert_string_equal(e.text, "<[cause]>: [cause]");
}

static void test_null(void **state)
{
	assert_int_equal(error_set(NULL, EIO, "%s", "x"), -EIO);
	assert_int_equal(error_errno(NULL, EIO, "x"), -EIO);
	assert_int_equal(error_wrap(NULL, "x"), -EINVAL);
	error_clear(NULL);
	assert_int_equal(error_exit_status(NULL), EXIT_STATUS_FAILED);
}

/* errno that somebody overwrote must not turn a failure into a success. */
static void test_no_code(void **state)
{
	struct error e = ERROR_INIT;

	assert_fails(error_errno(&e, 0, "x"), EIO, &e, "x: Input/output error");
	assert_fails(error_set(&e, -EACCES, "x"), EIO, &e, "x");
	assert_int_equal(error_set(NULL, 0, "x"), -EIO);
	e = (struct error){ .code = -7 };
	assert_true(error_wrap(&e, "x") < 0);
}

static void test_truncation(void **state)
{
	char big[2 * ERROR_TEXT_MAX];
	struct error e = ERROR_INIT;

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(error_errno(&e, EIO, "%s", big), -EIO);
	assert_int_equal(strlen(e.text), ERROR_TEXT_MAX - 1);
	assert_int_equal(error_wrap(&e, "start"), -EIO);
	assert_int_equal(strlen(e.text), ERROR_TEXT_MAX - 1);
	assert_memory_equal(e.text, "start: xxx", 10);
	assert_int_equal(error_wrap(&e, "%s", big), -EIO);
	assert_int_equal(strlen(e.text), ERROR_TEXT_MAX - 1);
}

static void test_exit_status(void **state)
{
	static const struct {
		int code, status;
	} table[] = {
		{ 0, 0 }, { EINVAL, 2 }, { ENOENT, 3 }, { ESRCH, 3 }, { EBUSY, 4 }, { EEXIST, 4 }, { EALREADY, 4 }, { EAGAIN, 4 },
		{ ESTALE, 4 }, { EBADMSG, 5 }, { EACCES, 6 }, { EPERM, 6 }, { ENOSPC, 7 }, { ENOMEM, 7 },
		{ ENODEV, 7 }, { EOPNOTSUPP, 7 }, { ECONNREFUSED, 8 }, { ENOTCONN, 8 }, { EPIPE, 8 },
		{ ECONNRESET, 8 }, { ETIMEDOUT, 9 }, { ECANCELED, 130 }, { EINTR, 130 }, { EIO, 1 }, { 12345, 1 },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct error e = { .code = table[i].code };

		assert_int_equal(error_exit_status(&e), table[i].status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set), cmocka_unit_test(test_wrap), cmocka_unit_test(test_alias),
		cmocka_unit_test(test_null), cmocka_unit_test(test_no_code), cmocka_unit_test(test_truncation), cmocka_unit_test(test_exit_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
