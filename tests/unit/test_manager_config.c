/* runners.yaml: limits, and that nothing comes out of a file that is refused. The sentences are in
 * tests/golden/runners. */
#include "manager/config.h"
#include "manager/lock.h"
#include "tests/unit/testing.h"
#include "base/str.h"
#include <errno.h>

#define LEAST "version: 1\nrunners:\n  - repo: octo/private\n"

static int parse(const char *text, struct runners_config **ret, struct error *e)
{
	return runners_config_parse("f", text, strlen(text), ret, e);
}

static void test_defaults(void **state)
{
	CLEANUP(runners_config_freep) struct runners_config *c = NULL;
	struct error e = ERROR_INIT;
	char labels[GITHUB_LABELS_MAX];

	assert_ok(parse(LEAST, &c, &e), &e);
	assert_int_equal(c->poll_interval_ms, 15000);
	assert_int_equal(c->n_entries, 1);
	assert_string_equal(c->entries[0].scope, "octo/private");
	assert_string_equal(c->entries[0].pool, "default");
	assert_int_equal(c->entries[0].line, 3);
	assert_int_equal(c->entries[0].max, 1);
	assert_int_equal(c->entries[0].start_timeout_ms, 300000);
	assert_int_equal(c->entries[0].idle_timeout_ms, 600000);
	assert_int_equal(c->entries[0].job_timeout_ms, 6 * 3600000);
	runners_entry_labels(&c->entries[0], labels);
	assert_true(str_starts(labels, "self-hosted,linux,"));
}

static void test_limits(void **state)
{
	CLEANUP_BUF struct buf b = BUF_INIT(RUNNERS_CONFIG_MAX);
	struct runners_config *c = NULL;
	struct error e = ERROR_INIT;
	char labels[GITHUB_LABELS_MAX];

	/* 50 entries are read, the 51st is not. */
	assert_int_equal(buf_addf(&b, "version: 1\nrunners:\n"), 0);
	for (int i = 0; i < RUNNERS_ENTRIES_MAX; i++)
		assert_int_equal(buf_addf(&b, "- repo: o/r%d\n", i), 0);
	assert_ok(parse(b.data, &c, &e), &e);
	assert_int_equal(c->n_entries, RUNNERS_ENTRIES_MAX);
	c = runners_config_free(c);
	assert_int_equal(buf_addf(&b, "- repo: o/more\n"), 0);
	assert_fails(parse(b.data, &c, &e), EBADMSG, &e, "f:53: more than 50 entries");

	/* The longest labels fit into one message, one more is refused. */
	buf_free(&b);
	b = BUF_INIT(RUNNERS_CONFIG_MAX);
	assert_int_equal(buf_addf(&b, LEAST "    labels:\n"), 0);
	for (int i = 0; i < 15; i++)
		assert_int_equal(buf_addf(&b, "    - %02d%062d\n", i, 0), 0);
	assert_int_equal(buf_addf(&b, "    - %048d\n", 0), 0);
	assert_ok(parse(b.data, &c, &e), &e);
	runners_entry_labels(&c->entries[0], labels);
	assert_int_equal(strlen(labels), 15 * 65 + 48);
	assert_true(strlen(labels) == GITHUB_LABELS_MAX - 1);
	c = runners_config_free(c);
	assert_int_equal(buf_addf(&b, "    - a\n"), 0);
	assert_fails(parse(b.data, &c, &e), EBADMSG, &e, "all labels together");
	buf_free(&b);
	b = BUF_INIT(RUNNERS_CONFIG_MAX);
	assert_int_equal(buf_addf(&b, LEAST "    labels:\n"), 0);
	for (int i = 0; i <= RUNNERS_LABELS_MAX; i++)
		assert_int_equal(buf_addf(&b, "    - l%d\n", i), 0);
	assert_fails(parse(b.data, &c, &e), EBADMSG, &e, "more than 20 labels");
	assert_fails(
		parse(LEAST
			"    labels: [01234567890123456789012345678901234567890123456789012345678901234]\n",
			&c, &e),
		EBADMSG, &e, "1 to 64 characters");
	assert_null(c);

	/* Every limit, from both sides. */
	static const struct {
		const char *key, *good, *bad;
	} limits[] = {
		{"start_timeout", "10s", "9s"},
		{"start_timeout", "1h", "3601s"},
		{"idle_timeout", "10s", "9s"},
		{"idle_timeout", "1d", "25h"},
		{"job_timeout", "1m", "59s"},
		{"job_timeout", "5d", "121h"},
		{"max", "100", "101"},
		{"min_ready", "0", "-1"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		char text[200];

		(void)snprintf(text, sizeof(text), LEAST "    %s: %s\n", limits[i].key, limits[i].good);
		assert_ok(parse(text, &c, &e), &e);
		c = runners_config_free(c);
		(void)snprintf(text, sizeof(text), LEAST "    %s: %s\n", limits[i].key, limits[i].bad);
		assert_fails(parse(text, &c, &e), EBADMSG, &e, limits[i].key);
		assert_fails(parse(text, &c, &e), EBADMSG, &e, "f:4: ");
	}
	assert_fails(runners_config_parse("f", "", RUNNERS_CONFIG_MAX + 1, &c, &e), EBADMSG, &e, "larger");
	assert_int_equal(parse("version: 2\n", &c, NULL), -EBADMSG); /* no error object wanted */
}

/* A file that is cut anywhere, or has one byte changed, is read or refused, never anything else. */
static void test_damaged(void **state)
{
	static const char whole[] = "version: 1\npoll_interval: 5s\nrunners:\n  - repo: octo/private\n"
				    "    labels: [a, \"b\"]\n    pool: p\n    min_ready: 1\n    max: 2\n";
	static const unsigned char bytes[] = {
		0, '\t', '\n', '"', '&', '*', ':', '[', '{', '|', '%', 0x80, 0xff};
	char text[sizeof(whole)];

	for (size_t i = 0; i < sizeof(whole); i++) {
		struct runners_config *c = NULL;

		(void)runners_config_parse("f", whole, i, &c, NULL);
		runners_config_free(c);
		for (size_t b = 0; b < ARRAY_SIZE(bytes) && i < sizeof(whole) - 1; b++) {
			memcpy(text, whole, sizeof(whole));
			text[i] = (char)bytes[b];
			c = NULL;
			assert_true((runners_config_parse("f", text, sizeof(whole) - 1, &c, NULL) == 0) ==
				    (c != NULL));
			runners_config_free(c);
		}
	}
}

static void test_lock(void **state)
{
	struct test_folder *f = *state;
	CLEANUP_FD int first = -1, second = -1;
	struct error e = ERROR_INIT;
	char words[64];

	assert_ok(lock_take(f->path, &first, &e), &e);
	(void)snprintf(words, sizeof(words), "(process %ld)", (long)getpid());
	assert_fails(lock_take(f->path, &second, &e), EALREADY, &e, words);
	assert_int_equal(error_exit_status(&e), EXIT_STATUS_CONFLICT);
	first = fd_close(first);
	assert_ok(lock_take(f->path, &second, &e), &e);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test_setup_teardown(test_lock, test_folder_setup, test_folder_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
