/* The framing of the link: whole lines, their limits, and what a peer must not send. */
#include "link/link.h"
#include "tests/unit/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int next_of(const char *text, size_t len, enum link_type *type, json_t **m, struct error *e)
{
	struct link_buffer in = LINK_BUFFER_INIT;
	int r;

	assert_int_equal(link_add(&in, text, len), 0);
	r = link_next(&in, type, m, e);
	link_buffer_free(&in);
	return r;
}

static void test_lines(void **state)
{
	struct link_buffer in = LINK_BUFFER_INIT;
	enum link_type type;
	struct error e = ERROR_INIT;
	json_t *m = NULL;
	static const char text[] = "{\"type\":\"beat\"}\n{\"type\":\"from the future\",\"x\":[1]}\n{\"type\":\"hint\",\"state\":\"listening\",\"new\":1}\n{\"type";

	assert_int_equal(link_add(&in, text, strlen(text)), 0);
	assert_int_equal(link_next(&in, &type, &m, &e), 1);
	assert_int_equal(type, LINK_BEAT);
	json_decref(m);
	assert_int_equal(link_next(&in, &type, &m, &e), 1);
	assert_int_equal(type, LINK_HINT);
	assert_string_equal(link_text(m, "state"), "listening");
	assert_string_equal(link_text(m, "absent"), "");
	json_decref(m);
	assert_int_equal(link_next(&in, &type, &m, &e), 0);
	assert_int_equal(in.len, strlen("{\"type"));
	link_buffer_free(&in);
}

static void test_refused(void **state)
{
	static const char *const bad[] = {"\n", "hello\n", "[]\n", "\"x\"\n", "{}\n", "{\"type\":1}\n", "{\"type\":\"beat\"\n", "\xff\xfe\n",
			"{\"type\":\"beat\",\"type\":\"beat\"}\n", "{\"type\":\"beat\",\"a\":[[[[[[[[[1]]]]]]]]]}\n",
			"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct error e = ERROR_INIT;
		enum link_type type;
		json_t *m = NULL;

		assert_int_equal(next_of(bad[i], strlen(bad[i]), &type, &m, &e), -EBADMSG);
		assert_true(e.text[0]);
	}
	/* Brackets in a string are no depth, and an escaped quote does not end it. */
	enum link_type type;
	json_t *m = NULL;
	struct error e = ERROR_INIT;
	static const char good[] = "{\"type\":\"output\",\"text\":\"\\\"[[[[[[[[[[[[[[[[[\"}\n";
	assert_int_equal(next_of(good, strlen(good), &type, &m, &e), 1);
	json_decref(m);
}

static void test_too_long(void **state)
{
	struct link_buffer in = LINK_BUFFER_INIT;
	struct error e = ERROR_INIT;
	enum link_type type;
	json_t *m = NULL;
	char block[4096];
	int fds[2], r = 1;
	size_t total = 0;

	memset(block, 'x', sizeof(block));
	assert_int_equal(pipe(fds), 0);
	while (r > 0 && total < 10 * LINK_LINE_MAX) {
		assert_int_equal(write(fds[1], block, sizeof(block)), sizeof(block));
		r = link_read(&in, fds[0], &e);
		if (r > 0) {
			total += (size_t)r;
			r = link_next(&in, &type, &m, &e) < 0 ? -EBADMSG : 1;
		}
	}
	assert_int_equal(r, -EBADMSG);
	assert_true(total <= LINK_LINE_MAX + 16384);
	link_buffer_free(&in);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static void test_full_peer(void **state)
{
	struct link_buffer out = LINK_BUFFER_INIT;
	struct error e = ERROR_INIT;
	int fds[2], r = 0;

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < 100000 && r == 0; i++) {
		r = link_put(&out, LINK_OUTPUT, json_pack("{s:s}", "text", "a line of the runner"), &e);
		if (r == 0)
			assert_true(link_flush(&out, fds[1], &e) >= 0);
	}
	assert_int_equal(r, -E2BIG);
	assert_true(out.len <= LINK_QUEUE_MAX);
	link_buffer_free(&out);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static int agree(int protocol, int oldest, struct error *e)
{
	json_t *m = json_pack("{s:i,s:i,s:s}", "protocol", protocol, "oldest", oldest, "version", "9.9");
	int r = link_agree(m, "ours", "theirs", e);

	json_decref(m);
	return r;
}

static void test_versions(void **state)
{
	struct error e = ERROR_INIT;

	assert_int_equal(agree(LINK_PROTOCOL, LINK_OLDEST, &e), LINK_PROTOCOL);
	assert_int_equal(agree(LINK_PROTOCOL + 5, LINK_OLDEST, &e), LINK_PROTOCOL); /* a newer one that still speaks ours */
	assert_int_equal(agree(LINK_PROTOCOL + 5, LINK_PROTOCOL + 1, &e), -EOPNOTSUPP);
	assert_non_null(strstr(e.text, "ours is too old for theirs (9.9"));
	assert_int_equal(agree(0, 0, &e), -EBADMSG);
	assert_int_equal(agree(1, 2, &e), -EBADMSG);
}

static void test_architectures(void **state)
{
	static const char *const none[] = {"", "X64", "x64 ", "riscv64", "x86_64", "a name that is longer than any there is"};
	char arch[LINK_ARCH_MAX] = "";
	struct error e = ERROR_INIT;

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		json_t *m = json_pack("{s:s}", "arch", none[i]);

		assert_int_equal(link_arch(m, arch, &e), -EOPNOTSUPP);
		assert_non_null(strstr(e.text, "is there for x64, arm64 and arm"));
		json_decref(m);
	}
	json_t *m = json_pack("{s:s}", "arch", "arm64");
	assert_int_equal(link_arch(m, arch, &e), 0);
	assert_string_equal(arch, "arm64");
	json_decref(m);
}

static void test_wiped(void **state)
{
	char *p = link_memory(64);

	assert_non_null(p);
	memset(p, 's', 64);
	link_wipe(p, 64);
	for (int i = 0; i < 64; i++)
		assert_int_equal(p[i], 0);
	link_memory_free(p);
	link_memory_free(NULL);
	assert_null(link_memory(SIZE_MAX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_full_peer),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_architectures),
		cmocka_unit_test(test_wiped),
	};

	link_wipe_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
