/* The JIT config as an opaque secret: what passes, what is refused and in which words, and that it is wiped.
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "jit/jit.h"
#include "linux/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sodium.h>
#include <cmocka.h>

#define CANARY "canary-0f2b7c"

/* A JSON object with the canary in it and padded to `plain` bytes, as base64. */
static size_t make(char *dst, size_t size, size_t plain)
{
	char *json = malloc(plain + 1);
	assert_non_null(json);
	memset(json, ' ', plain);
	int n = snprintf(json, plain, "{\".runner\":\"" CANARY "\"");
	json[n] = ' ';
	json[plain - 1] = '}';
	assert_non_null(
		sodium_bin2base64(dst, size, (unsigned char *)json, plain, sodium_base64_VARIANT_ORIGINAL));
	free(json);
	return strlen(dst);
}

static void test_good(void **state)
{
	char text[8192];
	for (size_t plain = 60; plain < 66; plain++) { /* every padding */
		size_t len = make(text, sizeof(text), plain);
		struct error e = ERROR_INIT;
		assert_int_equal(jit_check(text, len, &e), 0);
		assert_int_equal(e.code, 0);
	}
	size_t len = make(text, sizeof(text), 3100);
	assert_int_equal(jit_check(text, len, NULL), 0);
}

static void test_size(void **state)
{
	struct error e = ERROR_INIT;
	static char text[JIT_MAX + 64];
	size_t len = make(text, sizeof(text), 30);
	assert_int_equal(jit_check(text, len, &e), -EINVAL);
	assert_non_null(strstr(e.text, "40 bytes"));
	len = make(text, sizeof(text), JIT_MAX / 4 * 3);
	assert_int_equal(len, JIT_MAX);
	assert_int_equal(jit_check(text, len, &e), 0);
	len = make(text, sizeof(text), JIT_MAX / 4 * 3 + 1);
	assert_int_equal(jit_check(text, len, &e), -EINVAL);
	assert_non_null(strstr(e.text, "at most 65536"));
	assert_int_equal(jit_check(text, 0, &e), -EINVAL);
}

static void test_shape(void **state)
{
	struct error e = ERROR_INIT;
	char text[8192];
	size_t len = make(text, sizeof(text), 301);

	char was = text[99];
	static const char bad[] = {'\n', ' ', '-', '_', '"', '\0', (char)0x80, '='};
	for (size_t i = 0; i < sizeof(bad); i++) {
		text[99] = bad[i];
		assert_int_equal(jit_check(text, len, &e), -EINVAL);
		if (bad[i] != '=') /* a stray '=' is told from byte 101 on: it could have been padding */
			assert_non_null(strstr(e.text, "byte 100 of"));
	}
	text[99] = was;
	text[len] = '\n';
	assert_int_equal(jit_check(text, len + 1, &e), -EINVAL);
	text[len] = 'A';
	assert_int_equal(jit_check(text, len + 1, &e), -EINVAL);
	assert_int_equal(jit_check(text, len - 1, &e), -EINVAL); /* padding cut */
	assert_int_equal(jit_check(text, len, &e), 0);

	char array[256];
	assert_non_null(sodium_bin2base64(array, sizeof(array),
		(const unsigned char *)"[ \"" CANARY "\", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 ]", 60,
		sodium_base64_VARIANT_ORIGINAL));
	assert_int_equal(jit_check(array, strlen(array), &e), -EINVAL);
	assert_non_null(strstr(e.text, "not a JSON object"));
	assert_null(strstr(e.text, CANARY));
}

static void test_seal(void **state)
{
	struct error e = ERROR_INIT;
	char text[4096] = "", copy[4096];
	size_t len = make(text, sizeof(text), 600);
	memcpy(copy, text, len);
	CLEANUP_FD int fd = -1;
	assert_int_equal(jit_seal(text, len, &fd, &e), 0);
	assert_true(fd >= 0);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(text[i], 0);
	assert_int_equal(jit_fd_check(fd, &e), 0);
	assert_int_not_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	char back[4096];
	assert_int_equal(pread(fd, back, sizeof(back), 0), len);
	assert_memory_equal(back, copy, len);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);

	/* Wiped on refusal too, and the output untouched. */
	memcpy(text, copy, len);
	text[5] = '!';
	int none = -7;
	assert_int_equal(jit_seal(text, len, &none, &e), -EINVAL);
	assert_int_equal(none, -7);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(text[i], 0);
}

static void test_fd_check(void **state)
{
	struct error e = ERROR_INIT;
	char text[4096];
	size_t len = make(text, sizeof(text), 600);

	CLEANUP_FD int open_fd = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(write(open_fd, text, len), len);
	assert_true(jit_fd_check(open_fd, &e) < 0); /* not sealed */

	CLEANUP_FD int small = -1;
	assert_int_equal(secret_memfd("small", text, JIT_MIN - 1, &small, &e), 0);
	assert_int_equal(jit_fd_check(small, &e), -EINVAL);

	CLEANUP_FD int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(jit_fd_check(null, &e) < 0);
	assert_true(jit_fd_check(-1, &e) < 0);
}

static int setup(void **state)
{
	return secret_init(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_shape),
		cmocka_unit_test(test_seal),
		cmocka_unit_test(test_fd_check),
	};
	return cmocka_run_group_tests_name("jit", tests, setup, NULL);
}
