/* Host keys as text: what is one, its fingerprint as ssh-keygen shows it, and the known_hosts line. */
#include "ssh/hostkey.h"
#include "ssh/proto.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Made with ssh-keygen for this test; the fingerprint is ssh-keygen -l's. */
#define KEY "AAAAC3NzaC1lZDI1NTE5AAAAIE3lRpbLSVue1HNE/wSS76PP+nRRo7bDYiE92URxM49F"
#define FINGERPRINT "SHA256:vTWalQdKD7WgwHYAOxw8agvEaE7eUKuSsYC7MweqDiU"

static void test_parse(void **state)
{
	struct error e = ERROR_INIT;
	struct hostkey a, b;
	char text[HOSTKEY_FINGERPRINT_MAX];

	assert_int_equal(hostkey_parse("ssh-ed25519 " KEY, &a, &e), 0);
	assert_int_equal(hostkey_parse("ssh-ed25519 " KEY " a comment", &b, &e), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(hostkey_parse("ssh-ed25519 " KEY "\n", &b, &e), 0);
	hostkey_fingerprint(a.blob, sizeof(a.blob), text);
	assert_string_equal(text, FINGERPRINT);
}

static void test_refused(void **state)
{
	static const char *const bad[] = {"", "ssh-ed25519", "ssh-ed25519 ", "ssh-rsa " KEY, KEY,
		" ssh-ed25519 " KEY, "ssh-ed25519  " KEY, "ssh-ed25519 " KEY "AAAA", "ssh-ed25519 " KEY "=",
		"ssh-ed25519 AAAA", "ssh-ed25519 \xc1" KEY,
		/* says ed25519, encodes "ssh-ed25518" */
		"ssh-ed25519 AAAAC3NzaC1lZDI1NTE4AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
	struct hostkey k, untouched;
	struct error e = ERROR_INIT;

	memset(&k, 7, sizeof(k));
	untouched = k;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		error_clear(&e);
		assert_int_equal(hostkey_parse(bad[i], &k, &e), -EINVAL);
		assert_non_null(strstr(e.text, "pinned host key"));
		assert_memory_equal(&k, &untouched, sizeof(k));
	}
	assert_int_equal(hostkey_parse(NULL, &k, &e), -EINVAL);

	/* libsodium decodes bytes above 127; a line with one must not pass as the key it resembles. */
	char line[] = "ssh-ed25519 " KEY;
	for (size_t i = 12; i < sizeof(line) - 1; i++) {
		char was = line[i];
		for (int c = 128; c < 256; c++) {
			line[i] = (char)c;
			assert_int_equal(hostkey_parse(line, &k, NULL), -EINVAL);
		}
		line[i] = was;
	}
}

static void test_known_hosts(void **state)
{
	struct error e = ERROR_INIT;
	CLEANUP_BUF struct buf b = BUF_INIT(4096);

	assert_int_equal(hostkey_known_hosts_line("vm-1", "ssh-ed25519 " KEY " comment", &b, &e), 0);
	assert_int_equal(hostkey_known_hosts_line("vm-2", "ssh-ed25519 " KEY "\n", &b, &e), 0);
	assert_string_equal(b.data, "vm-1 ssh-ed25519 " KEY "\nvm-2 ssh-ed25519 " KEY "\n");
	assert_int_equal(hostkey_known_hosts_line("*", "ssh-ed25519 " KEY, &b, &e), -EINVAL);
	assert_int_equal(hostkey_known_hosts_line("vm-3", "ssh-rsa " KEY, &b, &e), -EINVAL);
}

static void test_steps(void **state)
{
	for (int i = 0; i < DELIVER_STEP_COUNT; i++)
		assert_non_null(deliver_step_to_string((enum deliver_step)i));
	assert_null(deliver_step_to_string(DELIVER_STEP_COUNT));
	assert_null(deliver_step_to_string((enum deliver_step) - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_known_hosts),
		cmocka_unit_test(test_steps),
	};
	return cmocka_run_group_tests_name("hostkey", tests, NULL, NULL);
}
