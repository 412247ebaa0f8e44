/* The controller's parsers: what gh prints, where a git remote points, how a command is quoted for a host. */
#include "controller/forward.h"
#include "controller/gh.h"
#include "controller/place.h"
#include "controller/run.h"
#include "tests/unit/testing.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>

static void test_places(void **state)
{
	static const struct {
		const char *url, *hostname, *scope; /* NULL: refused */
	} table[] = {
		{"https://github.com/o/r.git", "github.com", "o/r"},
		{"https://github.com/o/r", "github.com", "o/r"},
		{"https://github.com/o/r/", "github.com", "o/r"},
		{"https://me:secret@ghe.example.com:8443/o/r.git", "ghe.example.com:8443", "o/r"},
		{"git@github.com:o/r.git", "github.com", "o/r"},
		{"ssh://git@ssh.github.com:443/o/r.git", "github.com", "o/r"},
		{"https://www.github.com/o/r", "github.com", "o/r"},
		{"work:o/r.git", "", "o/r"}, /* a name of ssh's configuration */
		{"git@work:o/r", "", "o/r"},
		{"git@github.com-work:o/r.git", "github.com", "o/r"}, /* the second login at one host */
		{"git@ghe.example.com-two:o/r.git", "ghe.example.com", "o/r"},
		{"git@my-ghe.example.com:o/r.git", "my-ghe.example.com", "o/r"},
		{"git@git.example.xn--p1ai:o/r.git", "git.example.xn--p1ai", "o/r"},
		{"https://github.com:443/o/r", "github.com", "o/r"},
		{"https://ghe.example.com:4430/o/r", "ghe.example.com:4430", "o/r"},
		{"http://ghe.example.com:80/o/r", "ghe.example.com", "o/r"},
		{"https://GITHUB.com/o/R", "github.com", "o/R"},
		{"HTTPS://me@WWW.GitHub.com:443/o/r", "github.com", "o/r"},
		{"git://github.com/o/r.git", "github.com", "o/r"},
		{"git+ssh://git@github.com/o/r.git", "github.com", "o/r"},
		{"SSH://git@github.com:22/o/r.git", "github.com", "o/r"},
		{"file:///o/r", NULL, NULL},
		{"file://o/r", NULL, NULL},
		{"C:/o/r", NULL, NULL},
		{"c:o/r", NULL, NULL},
		{"./a:o/r", NULL, NULL},
		{"https://github.com/o", NULL, NULL},
		{"https://github.com/o/r/x", NULL, NULL},
		{"/srv/git/r.git", NULL, NULL},
		{"https://git hub/o/r", NULL, NULL},
		{"https:///o/r", NULL, NULL},
		{"git@-oProxyCommand=x:o/r", NULL, NULL},
		{"", NULL, NULL},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct place p;
		struct error e = ERROR_INIT;
		int r = place_of_url(table[i].url, &p, &e);

		if (!table[i].scope) {
			assert_int_equal(r, -EINVAL);
			assert_null(strstr(e.text, "secret"));
			continue;
		}
		assert_int_equal(r, 0);
		assert_string_equal(p.hostname, table[i].hostname);
		assert_string_equal(p.scope, table[i].scope);
	}
}

static void test_names(void **state)
{
	struct place p;
	struct error e = ERROR_INIT;

	assert_int_equal(place_of_name("ghe.example.com/o/r", &p, &e), 0);
	assert_string_equal(p.hostname, "ghe.example.com");
	assert_int_equal(place_of_name("o/r", &p, &e), 0);
	assert_string_equal(p.hostname, "");
	assert_int_equal(place_of_name("o", &p, &e), -EINVAL);
	assert_int_equal(place_of_name("--x/o/r", &p, &e), -EINVAL);
	assert_int_equal(place_of_name("a/b/c/d", &p, &e), -EINVAL);
}

static struct gh_answer understand(const char *text, const char *err, int exit_status)
{
	struct gh_answer a;

	gh_understand(text, strlen(text), err, exit_status << 8, &a);
	json_decref(a.body);
	a.body = NULL;
	return a;
}

static void test_answers(void **state)
{
	static const struct {
		const char *text;
		enum gh_fault fault;
		const char *words;
	} table[] = {
		{"HTTP/2.0 200 OK\r\nA: b\r\n\r\n{\"id\":1}", GH_OK, ""},
		{"HTTP/2.0 204 No Content\r\nA: b\r\n\r\n", GH_OK, ""},
		{"HTTP/1.1 200 OK\n\n<html>", GH_SERVER, "not JSON"},
		{"HTTP/2.0 200 OK\n\n{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", GH_SERVER, "not JSON"},
		{"HTTP/2.0 401 X\r\n\r\n{\"message\":\"Bad credentials\"}", GH_LOGIN, "Bad credentials"},
		{"HTTP/2.0 403 X\r\nx-accepted-github-permissions: administration=write\r\n\r\n{\"message\":\"no\"}", GH_PERMISSION, "administration=write"},
		{"HTTP/2.0 403 X\r\nX-RateLimit-Remaining: 0\r\n\r\n{\"message\":\"no\"}", GH_LIMIT, "rate limit"},
		{"HTTP/2.0 403 X\r\nRetry-After: 17\r\n\r\n{\"message\":\"slow\"}", GH_LIMIT, "17"},
		{"HTTP/2.0 429 X\r\n\r\nnonsense", GH_LIMIT, "rate limit"},
		{"HTTP/2.0 404 X\r\n\r\n{\"message\":\"Not Found\"}", GH_ABSENT, "Not Found"},
		{"HTTP/2.0 409 X\r\n\r\n{}", GH_CONFLICT, "409"},
		{"HTTP/2.0 422 X\r\n\r\n{\"message\":\"running a job\"}", GH_INVALID, "running a job"},
		{"HTTP/2.0 503 X\r\n\r\n", GH_SERVER, "503"},
		{"HTTP/2.0 302 X\r\n\r\n", GH_SERVER, "302"},
		{"HTTP/2.0 200", GH_NETWORK, "cannot be asked"},
		{"", GH_NETWORK, "cannot be asked"},
		{"garbage\n\n{}", GH_NETWORK, "cannot be asked"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct gh_answer a = understand(table[i].text, "dial tcp: refused\n", 1);

		assert_int_equal(a.fault, table[i].fault);
		assert_non_null(strstr(a.text, table[i].words));
	}
	assert_int_equal(understand("", "To get started with GitHub CLI, please run: gh auth login\n", 4).fault, GH_LOGIN);
	assert_int_equal(understand("HTTP/2.0 403 X\r\nRetry-After: 17\r\n\r\n{}", "", 1).retry_after_ms, 17000);
	/* Remote text is made harmless. */
	assert_null(strchr(understand("HTTP/2.0 404 X\r\n\r\n{\"message\":\"\\u001b[31m\"}", "", 1).text, '\x1b'));
}

static void test_command(void **state)
{
	static const char *const args[] = {"pool", "it's", "$(x)", NULL};
	struct buf line = BUF_INIT(FORWARD_LINE_MAX);
	const char *argv[FORWARD_ARGV_MAX];
	struct error e = ERROR_INIT;
	size_t n = 0;

	assert_int_equal(forward_command("vmhost", false, args, argv, &line, &e), 0);
	while (argv[n])
		n++;
	assert_string_equal(argv[0], "ssh");
	assert_string_equal(argv[n - 1], "'boxery-host' 'pool' 'it'\\''s' '$(x)'");
	assert_string_equal(argv[n - 2], "vmhost");
	assert_string_equal(argv[n - 3], "--");
	buf_free(&line);
	assert_int_equal(forward_command("", false, args, argv, &line, &e), 0);
	assert_string_equal(argv[0], "boxery-host");
	assert_string_equal(argv[2], "it's");
	assert_int_equal(forward_command("-oProxyCommand=x", false, args, argv, &line, &e), -EINVAL);
	buf_free(&line);
}

static void test_statuses(void **state)
{
	for (int i = 0; i < RESULT_COUNT; i++) {
		assert_non_null(result_to_string((enum result)i));
		assert_int_equal(result_exit_status((enum result)i) == 0, i == RESULT_SUCCEEDED);
	}
	for (int i = 0; i < GH_FAULT_COUNT; i++)
		assert_int_equal(gh_errno((enum gh_fault)i) == 0, i == GH_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_command),
		cmocka_unit_test(test_statuses),
	};

	link_wipe_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
