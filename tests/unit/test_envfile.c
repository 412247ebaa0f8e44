#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/file.h"
#include <errno.h>

struct seen {
	char text[1000];
	unsigned n;
};

static int collect(void *userdata, const char *key, const char *value, struct error *e)
{
	struct seen *s = userdata;
	size_t used = strlen(s->text);

	if (str_equal(key, "BAD"))
		return error_set(e, EINVAL, "BAD: '%s' is not good", value);
	if (str_equal(key, "DENIED"))
		return error_set(e, EACCES, "not yours");
	if (str_equal(key, "SILENT"))
		return -EIO;
	s->n++;
	return str_format_n(s->text + used, sizeof(s->text) - used, "%s=[%s] ", key, value);
}

static int ignore(void *userdata, const char *key, const char *value, struct error *e)
{
	return 0;
}

static int parse(const char *text, struct seen *s, struct error *e)
{
	*s = (struct seen){ 0 };
	return envfile_parse("x.env", text, strlen(text), collect, s, e);
}

static void test_good(void **state)
{
	struct error e = ERROR_INIT;
	struct seen s;

	assert_ok(parse("", &s, &e), &e);
	assert_ok(parse("\n\n# only\n   # comments", &s, &e), &e);
	assert_int_equal(s.n, 0);
	assert_ok(parse("A=1\n# c\n\n  B_2 = two words \r\nC=\nD==x=#y\nE=\"q\"", &s, &e), &e);
	assert_string_equal(s.text, "A=[1] B_2=[two words] C=[] D=[=x=#y] E=[\"q\"] ");
}

static void test_bad(void **state)
{
	static const struct {
		const char *text, *words;
		int code;
	} table[] = {
		{ "A=1\nnonsense\n", "x.env:2: not a setting", EBADMSG },
		{ "\n#\n=1", "x.env:3: what stands before '='", EBADMSG },
		{ "A B=1", "x.env:1: what stands before '='", EBADMSG },
		{ "1A=1", "x.env:1: what stands before '='", EBADMSG },
		{ "export A=1", "x.env:1: what stands before '='", EBADMSG },
		{ "A=1\nB=2\nA=3\n", "x.env:3: A is set a second time", EBADMSG },
		{ "A=1\nBAD=v", "x.env:2: BAD: 'v' is not good", EBADMSG },
		{ "DENIED=v", "x.env:1: not yours", EACCES },
		{ "SILENT=v", "x.env:1: Input/output error", EIO },
	};
	struct error e = ERROR_INIT;
	struct seen s;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_fails(parse(table[i].text, &s, &e), table[i].code, &e, table[i].words);
}

/* A token on a line that is not a setting must not end up in a log. */
static void test_no_leak(void **state)
{
	struct error e = ERROR_INIT;
	struct seen s;

	assert_fails(parse("ghp_canary", &s, &e), EBADMSG, &e, "x.env:1");
	assert_null(strstr(e.text, "canary"));
	assert_fails(parse("A-ghp_canary=x", &s, &e), EBADMSG, &e, "x.env:1");
	assert_null(strstr(e.text, "canary"));
}

static void test_binary_and_limits(void **state)
{
	CLEANUP_FREE char *big = malloc(ENVFILE_MAX + 1);
	CLEANUP_BUF struct buf many = BUF_INIT(ENVFILE_MAX);
	struct error e = ERROR_INIT;
	struct seen s = { 0 };

	assert_fails(envfile_parse("x.env", "A=1\nB=\0x\n", 9, collect, &s, &e), EBADMSG, &e, "x.env:2: a NUL byte");
	assert_non_null(big);
	memset(big, '\n', ENVFILE_MAX + 1);
	assert_fails(envfile_parse("x.env", big, ENVFILE_MAX + 1, collect, &s, &e), EFBIG, &e, "x.env: larger than");
	assert_ok(envfile_parse("x.env", big, ENVFILE_MAX, collect, &s, &e), &e);
	for (unsigned i = 0; i < 257; i++)
		assert_int_equal(buf_addf(&many, "K%u=\n", i), 0);
	assert_fails(envfile_parse("x.env", many.data, many.len, ignore, NULL, &e), EBADMSG, &e, "x.env:257: more than");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good), cmocka_unit_test(test_bad), cmocka_unit_test(test_no_leak),
		cmocka_unit_test(test_binary_and_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
