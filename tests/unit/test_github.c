/*
 * The parts of boxery-github that need no network: base URLs, runners.env, blotting out, how refusals are
 * told apart, header lines, bounded bodies, the ETag cache.
 */
#include "base/str.h"
#include "github/cache.h"
#include "github/credential.h"
#include "github/fault.h"
#include "github/http_answer.h"
#include "github/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void test_base_url(void **state)
{
	static const struct {
		const char *given, *kept;
	} good[] = {
		{"https://api.github.com", "https://api.github.com"},
		{"https://api.github.com/", "https://api.github.com"},
		{"https://ghes.example.com/api/v3", "https://ghes.example.com/api/v3"},
		{"https://ghes.example.com/api/v3//", NULL},
		{"https://api.octo.ghe.com", "https://api.octo.ghe.com"},
		{"https://203.0.113.10:8443/api/v3/", "https://203.0.113.10:8443/api/v3"},
		{"http://127.0.0.1:8080", "http://127.0.0.1:8080"},
		{"http://127.9.8.7", "http://127.9.8.7"},
		{"http://[::1]:80/api/v3", "http://[::1]:80/api/v3"},
		{"https://[2001:db8::1]/x", "https://[2001:db8::1]/x"},
		/* not these */
		{"", NULL},
		{"api.github.com", NULL},
		{"https:/api.github.com", NULL},
		{"https:api.github.com", NULL},
		{"HTTPS://api.github.com", NULL},
		{"ftp://api.github.com", NULL},
		{"file:///etc/passwd", NULL},
		{"https://", NULL},
		{"https:///x", NULL},
		{"http://api.github.com", NULL},
		{"http://localhost", NULL},
		{"http://127.0.0.1.example.com", NULL},
		{"http://128.0.0.1", NULL},
		{"http://[::2]", NULL},
		{"http://0.0.0.0", NULL},
		{"https://user@api.github.com", NULL},
		{"https://user:secret@api.github.com", NULL},
		{"https://api.github.com?x=y", NULL},
		{"https://api.github.com/#x", NULL},
		{"https://api.github.com\\@evil.example", NULL},
		{"https://api.github.com/ x", NULL},
		{"https://api.github.com/a/../b", NULL},
		{"https://api.github.com/a//b", NULL},
		{"https://api.github.com/%2e", NULL},
		{"https://api.github.com:99999", NULL},
		{"https://api.github.com:port", NULL},
		{"https://api.gith\303\274b.com", NULL},
		{"https://x\r\nHost: y", NULL},
	};
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		char kept[GITHUB_URL_MAX] = "untouched";
		struct error e = ERROR_INIT;
		int r = base_url_check(good[i].given, kept, sizeof(kept), &e);
		if (r != (good[i].kept ? 0 : -EINVAL))
			fail_msg("%s: %d %s", good[i].given, r, e.text);
		assert_string_equal(kept, good[i].kept ? good[i].kept : "untouched");
		if (r < 0)
			assert_int_not_equal(e.text[0], 0);
	}
	char small[10], longer[400] = "https://";
	memset(longer + 8, 'a', 300);
	longer[308] = '\0';
	assert_int_equal(base_url_check("https://api.github.com", small, sizeof(small), NULL), -EINVAL);
	char kept[GITHUB_URL_MAX];
	assert_int_equal(base_url_check(longer, kept, sizeof(kept), NULL), -EINVAL);
}

static const char *write_env(const char *text, mode_t mode)
{
	static char path[] = "/tmp/boxery-test-env-XXXXXX";
	static bool made;
	int fd =
		made ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : mkostemp(path, O_CLOEXEC);
	made = true;
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(close(fd), 0);
	return path;
}

static void test_credential(void **state)
{
	struct error e = ERROR_INIT;
	const char *path =
		write_env("# mine\nGITHUB_TOKEN = ghs_abc.DEF-1_2\nBOXERY_GITHUB_URL=https://h/api/v3/\n"
			  "BOXERY_GITHUB_CA_FILE=/etc/ca.pem\n",
			0600);
	CLEANUP(credential_free) struct credential c = {0};
	assert_int_equal(credential_load(path, &c, &e), 0);
	assert_string_equal(c.base_url, "https://h/api/v3");
	assert_string_equal(c.ca_file, "/etc/ca.pem");
	assert_string_equal(c.kind, "installation token");
	assert_string_equal(secret_bytes(c.header), "Authorization: Bearer ghs_abc.DEF-1_2");
	assert_int_equal(secret_len(c.header), strlen("Authorization: Bearer ghs_abc.DEF-1_2") + 1);

	/* As long as installation tokens have become. */
	char text[700] = "GITHUB_TOKEN=ghs_";
	memset(text + strlen(text), 'x', 520);
	CLEANUP(credential_free) struct credential big = {0};
	assert_int_equal(credential_load(write_env(text, 0600), &big, &e), 0);
	assert_string_equal(big.base_url, GITHUB_URL_DEFAULT);
	assert_string_equal(big.ca_file, "");

	struct credential none = {.kind = "untouched"};
	static const char *const kinds[] = {"GITHUB_TOKEN=canary-7 x\n", "GITHUB_TOKEN='canary-7'\n",
		"GITHUB_TOKEN=canary-7\xc3\xa9\n", "GITHUB_TOKEN=canary-7\nX=canary-7\n", "canary-7\n"};
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		assert_int_equal(credential_load(write_env(kinds[i], 0600), &none, &e), -EBADMSG);
		assert_null(strstr(e.text, "canary-7"));
		assert_non_null(strstr(e.text, path));
	}
	assert_int_equal(credential_load(write_env("GITHUB_TOKEN=x\n", 0640), &none, &e), -EACCES);
	assert_non_null(strstr(e.text, "0640"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(credential_load(path, &none, &e), -ENOENT);
	assert_string_equal(none.kind, "untouched");
}

static void test_redact(void **state)
{
	CLEANUP(credential_free) struct credential c = {0};
	const char *path = write_env("GITHUB_TOKEN=token-of-no-known-kind\n", 0600);
	assert_int_equal(credential_load(path, &c, NULL), 0);
	(void)unlink(path);
	static const char *const texts[][2] = {
		{"nothing in it", "nothing in it"},
		{"token-of-no-known-kind", "**********************"},
		{"a ghp_0123 b github_pat_x_y-z. c", "a ******** b ***************** c"},
		{"ghs_a.b.c,ghs_", "*********,****"},
		{"", ""},
	};
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		char text[128];
		assert_int_equal(str_copy(text, texts[i][0]), 0);
		credential_redact(&c, text);
		assert_string_equal(text, texts[i][1]);
	}
	char text[] = "ghp_x"; /* without a credential too */
	credential_redact(NULL, text);
	assert_string_equal(text, "*****");
}

static struct http_answer answer(long status, const char *body)
{
	struct http_answer a = {.status = status, .max = 4096};
	if (body)
		assert_int_equal(http_answer_body(&a, body, strlen(body)), 0);
	return a;
}

static void test_faults(void **state)
{
	static const struct {
		long status;
		const char *headers, *body;
		bool deletes;
		enum github_fault fault;
		int code;
		uint64_t retry_ms;
		const char *words;
	} table[] = {
		{401, "", "{\"message\":\"Bad credentials\"}", false, GITHUB_FAULT_CREDENTIAL, EACCES, 0,
			"Bad credentials"},
		{403, "x-accepted-github-permissions: administration=write; x=y",
			"{\"message\":\"Resource not accessible\"}", false, GITHUB_FAULT_PERMISSION, EPERM, 0,
			"administration=write"},
		{403, "", "", false, GITHUB_FAULT_PERMISSION, EPERM, 0, "names no permission"},
		{403, "x-ratelimit-remaining: 1", "{}", false, GITHUB_FAULT_PERMISSION, EPERM, 0, "403"},
		{403, "x-ratelimit-remaining: 0", "{}", false, GITHUB_FAULT_LIMIT, EAGAIN, 60000, "60 s"},
		{403, "retry-after: 7", "{}", false, GITHUB_FAULT_LIMIT, EAGAIN, 7000, "7 s"},
		{403, "", "{\"message\":\"You have exceeded a secondary Rate Limit\"}", false,
			GITHUB_FAULT_LIMIT, EAGAIN, 60000, "secondary"},
		{429, "", "<html>", false, GITHUB_FAULT_LIMIT, EAGAIN, 60000, "429"},
		/* the answer's own date counts, not this machine's clock */
		{403,
			"date: Sun, 29 Nov 2026 10:00:00 GMT\nx-ratelimit-remaining: 0\nx-ratelimit-reset: "
			"1795946410",
			"{}", false, GITHUB_FAULT_LIMIT, EAGAIN, 11000, "11 s"},
		{429, "date: Sun, 29 Nov 2026 10:00:00 GMT\nretry-after: Sun, 29 Nov 2026 10:00:20 GMT", "",
			false, GITHUB_FAULT_LIMIT, EAGAIN, 20000, "20 s"},
		{404, "", "{\"message\":\"Not Found\"}", false, GITHUB_FAULT_ABSENT, ENOENT, 0,
			"knows no thing"},
		{404, "", "", true, GITHUB_FAULT_ABSENT, ENOENT, 0, "knows no thing"},
		{409, "", "{\"message\":\"Already exists\"}", false, GITHUB_FAULT_CONFLICT, EEXIST, 0,
			"Already exists"},
		{422, "", "{\"message\":\"busy\"}", true, GITHUB_FAULT_BUSY, EBUSY, 0, "running a job"},
		{422, "", "{\"message\":\"1 item required\"}", false, GITHUB_FAULT_INVALID, EINVAL, 0,
			"1 item"},
		{400, "", "", false, GITHUB_FAULT_INVALID, EINVAL, 0, "400"},
		{301, "location: https://evil", "", false, GITHUB_FAULT_INVALID, EINVAL, 0, "renamed"},
		{302, "", "", true, GITHUB_FAULT_INVALID, EINVAL, 0, "redirect"},
		{500, "", "<html>", false, GITHUB_FAULT_SERVER, EIO, 0, "500"},
		{503, "retry-after: 3", "", false, GITHUB_FAULT_SERVER, EIO, 3000, "503"},
		{200, "", "", true, GITHUB_FAULT_SERVER, EIO, 0, "200"},
		{304, "", "", false, GITHUB_FAULT_INVALID, EINVAL, 0, "304"},
		{99, "", "", false, GITHUB_FAULT_SERVER, EIO, 0, "99"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct error e = ERROR_INIT;
		struct github_reply reply = {0};
		struct http_answer a = answer(table[i].status, table[i].body);
		const struct fault_context c = {.what = "thing", .deletes = table[i].deletes, .now = 1};
		for (const char *p = table[i].headers; *p; p += p[0] == '\n') {
			size_t len = strcspn(p, "\n");
			http_answer_header(&a, p, len);
			p += len;
		}
		int r = fault_from_answer(&c, &a, &reply, &e);
		if (r != -table[i].code || reply.fault != (int)table[i].fault ||
			!strstr(e.text, table[i].words))
			fail_msg("row %zu: %d %s: %s", i, r,
				github_fault_to_string((enum github_fault)reply.fault), e.text);
		assert_int_equal(reply.retry_after_ms, table[i].retry_ms);
		assert_int_equal(reply.http_status, table[i].status);
		http_answer_free(&a);
	}
	for (int f = 0; f < GITHUB_FAULT_COUNT; f++)
		assert_non_null(github_fault_to_string((enum github_fault)f));
	assert_null(github_fault_to_string(GITHUB_FAULT_COUNT));
}

static void test_headers(void **state)
{
	struct http_answer a = {.max = 10};
	static const char *const lines[] = {"HTTP/1.1 100 Continue\r\n", "Retry-After: 5\r\n", "\r\n",
		"HTTP/1.1 200 OK\r\n", "X-RateLimit-Remaining:  41\r\n", "x-ratelimit-limit: 5000\r\n",
		"ETag: W/\"abc\"\r\n",
		"link: <https://x?page=2>; rel=\"next\", <https://x?page=9>; rel=\"last\"\r\n",
		"no colon\r\n", ":\r\n", ""};
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		http_answer_header(&a, lines[i], strlen(lines[i]));
	assert_false(a.has_retry_after); /* it was the interim answer's */
	assert_true(a.has_remaining && a.remaining == 41 && a.limit == 5000 && a.next);
	assert_string_equal(a.etag, "W/\"abc\"");
	static const char *const bad[] = {"etag: \"a\rX: y\"", "etag: \"a b\"", "etag: \"\xff\""};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		http_answer_header(&a, bad[i], strlen(bad[i]));
		assert_string_equal(a.etag, "");
	}
	http_answer_header(&a, "x-ratelimit-remaining: lots", 27);
	assert_false(a.has_remaining);
	http_answer_header(&a, "retry-after: 5\0", 15); /* a NUL: the line is not for us */
	assert_false(a.has_retry_after);
	char wide[5000];
	memset(wide, 'a', sizeof(wide));
	memcpy(wide, "retry-after: 5", 14);
	http_answer_header(&a, wide, sizeof(wide));
	assert_false(a.has_retry_after);
	http_answer_header(&a, "x-accepted-github-permissions: a=b\x1b[31m", 39);
	assert_string_equal(a.permissions, "a=b\\x1b[31m");
}

static void test_bodies(void **state)
{
	for (int guarded = 0; guarded < 2; guarded++) {
		struct http_answer a = {.max = 10, .guarded = guarded};
		assert_int_equal(http_answer_body(&a, "01234", 5), 0);
		assert_int_equal(http_answer_body(&a, "56789", 5), 0);
		assert_string_equal(a.data, "0123456789");
		assert_int_equal(http_answer_body(&a, "x", 1), -EFBIG);
		assert_true(a.too_large && a.len == 10);
		http_answer_free(&a);
		assert_null(a.data);
		http_answer_free(&a);
	}
	struct http_answer big = {.max = 3 * 1024 * 1024};
	static char block[100000];
	memset(block, 'y', sizeof(block));
	while (http_answer_body(&big, block, sizeof(block)) == 0)
		;
	assert_int_equal(big.len, big.max / sizeof(block) * sizeof(block));
	http_answer_free(&big);
}

static void test_cache(void **state)
{
	CLEANUP(cache_freep) struct cache *c = cache_new();
	assert_non_null(c);
	assert_null(cache_get(c, "a"));
	cache_put(c, "a", "", "body", 4, false); /* nothing to ask with */
	assert_null(cache_get(c, "a"));
	cache_put(c, "a", "\"1\"", "body", 4, true);
	cache_put(c, "a", "\"2\"", "longer", 6, false);
	const struct cache_entry *entry = cache_get(c, "a");
	assert_non_null(entry);
	assert_string_equal(entry->etag, "\"2\"");
	assert_string_equal(entry->data, "longer");
	assert_false(entry->next);

	/* More than it holds: the ones used last stay. */
	char url[32];
	for (int i = 0; i < CACHE_ENTRIES * 2; i++) {
		assert_int_equal(str_format(url, "u%d", i), 0);
		cache_put(c, url, "e", "x", 1, false);
		assert_non_null(cache_get(c, "a"));
	}
	assert_null(cache_get(c, "u0"));
	assert_non_null(cache_get(c, url));
	/* More bytes than it holds. */
	size_t len = CACHE_BYTES_MAX / 4;
	char *big = calloc(1, len + 1);
	assert_non_null(big);
	for (int i = 0; i < 9; i++) {
		assert_int_equal(str_format(url, "big%d", i), 0);
		cache_put(c, url, "e", big, len, false);
	}
	assert_non_null(cache_get(c, "big8"));
	assert_null(cache_get(c, "big0"));
	cache_put(c, "huge", "e", big, len + 1, false);
	assert_null(cache_get(c, "huge"));
	cache_drop(c, "big8");
	assert_null(cache_get(c, "big8"));
	cache_drop(c, "none");
	free(big);
}

static int setup(void **state)
{
	return secret_init(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base_url),
		cmocka_unit_test(test_credential),
		cmocka_unit_test(test_redact),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_bodies),
		cmocka_unit_test(test_cache),
	};
	return cmocka_run_group_tests_name("github", tests, setup, NULL);
}
