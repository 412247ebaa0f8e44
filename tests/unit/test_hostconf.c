#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/file.h"
#include "linux/hostconf.h"
#include <errno.h>

static const char *const variables[] = {
	"BOXERY_SYSTEM", "BOXERY_CONFIG_DIR", "BOXERY_STATE_DIR", "BOXERY_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME",
	"XDG_RUNTIME_DIR", "XDG_CACHE_HOME",
};

static int setup(void **state)
{
	struct test_folder *f;
	int r = test_folder_setup(state);

	if (r < 0)
		return r;
	f = *state;
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		(void)unsetenv(variables[i]);
	(void)setenv("HOME", "/home/tester", 1);
	/* Keeps a host.env of the machine the tests run on out of it. */
	(void)setenv("BOXERY_SYSTEM", "0", 1);
	(void)setenv("BOXERY_CONFIG_DIR", f->path, 1);
	return 0;
}

static struct hostconf load(void)
{
	struct hostconf c;
	struct error e = ERROR_INIT;

	memset(&c, 0x5a, sizeof(c));
	assert_ok(hostconf_load(&c, &e), &e);
	return c;
}

static void write_conf(struct test_folder *f, const char *text)
{
	struct error e = ERROR_INIT;

	assert_ok(file_write_atomic(f->fd, "host.env", text, strlen(text), 0644, &e), &e);
}

static void test_defaults(void **state)
{
	struct test_folder *f = *state;
	struct hostconf c = load();
	char runtime[300];

	assert_string_equal(c.config_dir, f->path);
	assert_string_equal(c.state_dir, "/home/tester/.local/state/boxery");
	if (getuid() == 0)
		assert_string_equal(c.runtime_dir, "/run/boxery");
	(void)snprintf(runtime, sizeof(runtime), "%s/keeper.sock", c.runtime_dir);
	assert_string_equal(c.keeper_socket, runtime);
	assert_string_equal(c.image_dir, "/var/lib/boxery");
	assert_string_equal(c.cache_dir, "/var/cache/boxery");
	assert_string_equal(c.libvirt_uri, "qemu:///system");
	assert_string_equal(c.net_name, "boxery");
	assert_string_equal(c.net_subnet, "192.168.130");
	assert_true(c.net_isolation);
	assert_int_equal(c.virt, VIRT_AUTO);
	assert_int_equal(c.parallel, 2);
	assert_int_equal(c.console_max_mib, 8);
	assert_int_equal(c.evidence_max_mib, 2048);
	assert_int_equal(c.start_timeout_ms, 180000);
}

static void test_xdg(void **state)
{
	struct hostconf c;

	(void)unsetenv("BOXERY_CONFIG_DIR");
	(void)setenv("XDG_CONFIG_HOME", "/x/config", 1);
	(void)setenv("XDG_STATE_HOME", "/x/state", 1);
	(void)setenv("XDG_RUNTIME_DIR", "/x/run", 1);
	(void)setenv("XDG_CACHE_HOME", "/x/cache", 1);
	c = load();
	assert_string_equal(c.config_dir, "/x/config/boxery");
	assert_string_equal(c.state_dir, "/x/state/boxery");
	assert_string_equal(c.runtime_dir, "/x/run/boxery");
	assert_string_equal(c.cache_dir, "/x/cache/boxery");
	/* Relative ones count as unset. */
	(void)setenv("XDG_CONFIG_HOME", "x", 1);
	(void)setenv("XDG_STATE_HOME", "", 1);
	c = load();
	assert_string_equal(c.config_dir, "/home/tester/.config/boxery");
	assert_string_equal(c.state_dir, "/home/tester/.local/state/boxery");
	(void)unsetenv("HOME");
	c = load();
	assert_int_equal(c.state_dir[0], '/');
}

static void test_system(void **state)
{
	struct hostconf c;

	(void)setenv("BOXERY_SYSTEM", "1", 1);
	(void)setenv("XDG_STATE_HOME", "/x/state", 1);
	(void)setenv("XDG_RUNTIME_DIR", "/x/run", 1);
	(void)setenv("XDG_CACHE_HOME", "/x/cache", 1);
	c = load();
	assert_string_equal(c.state_dir, "/var/lib/boxery/state");
	assert_string_equal(c.runtime_dir, "/run/boxery");
	assert_string_equal(c.cache_dir, "/var/cache/boxery");
	(void)setenv("BOXERY_STATE_DIR", "/o/state/", 1);
	(void)setenv("BOXERY_RUNTIME_DIR", "/o/run", 1);
	c = load();
	assert_string_equal(c.state_dir, "/o/state");
	assert_string_equal(c.runtime_dir, "/o/run");
	assert_string_equal(c.keeper_socket, "/o/run/keeper.sock");
}

static void test_settings(void **state)
{
	struct hostconf c;

	write_conf(*state, "# all of them\nBOXERY_LIBVIRT_URI=qemu+unix:///system?socket=/x\nBOXERY_IMAGE_DIR=/img/\n"
			   "BOXERY_CACHE_DIR=/cache\nBOXERY_NET_ISOLATION=off\nBOXERY_NET_FILTER=nft\nBOXERY_NET_SUBNET=10.0.255\n"
			   "BOXERY_NET_NAME=ninechars\nBOXERY_VIRT=qemu\nBOXERY_PARALLEL=64\n"
			   "BOXERY_START_TIMEOUT=5m\nBOXERY_CONSOLE_MAX=1G\nBOXERY_EVIDENCE_MAX=0\n");
	c = load();
	assert_string_equal(c.libvirt_uri, "qemu+unix:///system?socket=/x");
	assert_string_equal(c.image_dir, "/img");
	assert_string_equal(c.cache_dir, "/cache");
	assert_false(c.net_isolation);
	assert_string_equal(c.net_subnet, "10.0.255");
	assert_string_equal(c.net_name, "ninechars");
	assert_int_equal(c.virt, VIRT_QEMU);
	assert_int_equal(c.parallel, 64);
	assert_int_equal(c.start_timeout_ms, 300000);
	assert_int_equal(c.console_max_mib, 1024);
	assert_int_equal(c.evidence_max_mib, 0);
}

static void test_bad_settings(void **state)
{
	static const struct {
		const char *line, *words;
	} table[] = {
		{ "BOXERY_TYPO=1", "BOXERY_TYPO is not a setting" },
		{ "BOXERY_LIBVIRT_URI=", "the value is empty" },
		{ "BOXERY_IMAGE_DIR=relative", "is not an absolute path" },
		{ "BOXERY_IMAGE_DIR=/a/../b", "without '..'" },
		{ "BOXERY_CACHE_DIR=/a/..", "without '..'" },
		{ "BOXERY_NET_ISOLATION=maybe", "neither on nor off" },
		{ "BOXERY_NET_SUBNET=192.168.130.0", "like 192.168.130" },
		{ "BOXERY_NET_SUBNET=192.168", "like 192.168.130" },
		{ "BOXERY_GUEST_PROXY=10.1.2.3", "like 10.1.2.3:3128" },
		{ "BOXERY_GUEST_PROXY=proxy.example.org:3128", "like 10.1.2.3:3128" },
		{ "BOXERY_GUEST_PROXY=10.1.2:3128", "like 10.1.2.3:3128" },
		{ "BOXERY_GUEST_PROXY=10.1.2.3 10.1.2.4:3128", "like 10.1.2.3:3128" },
		{ "BOXERY_GUEST_PROXY=10.1.2.3:0", "from 1 to 65535" },
		{ "BOXERY_GUEST_PROXY=10.1.2.3:65536", "from 1 to 65535" },
		{ "BOXERY_GUEST_PROXY=127.0.0.1:3128", "no address of a machine that guests could reach" },
		{ "BOXERY_GUEST_PROXY=0.0.0.0:3128", "no address of a machine" },
		{ "BOXERY_GUEST_PROXY=224.0.0.1:3128", "no address of a machine" },
		{ "BOXERY_GUEST_PROXY=255.255.255.255:3128", "no address of a machine" },
		{ "BOXERY_GUEST_PROXY=169.254.169.254:80", "no address of a machine" },
		{ "BOXERY_NET_SUBNET=192.168.256", "like 192.168.130" },
		{ "BOXERY_NET_SUBNET=192.168.01", "like 192.168.130" },
		{ "BOXERY_NET_SUBNET=4294967488.168.1", "like 192.168.130" },
		{ "BOXERY_NET_SUBNET=127.0.0", "192.168.0.0/16" },
		{ "BOXERY_NET_SUBNET=8.8.8", "8.8.8.0/24 is not private: it must lie in 10.0.0.0/8, 172.16.0.0/12" },
		{ "BOXERY_NET_SUBNET=172.15.0", "is not private" },
		{ "BOXERY_NET_SUBNET=172.32.0", "is not private" },
		{ "BOXERY_NET_SUBNET=192.169.1", "is not private" },
		{ "BOXERY_NET_SUBNET=224.0.0", "is not private" },
		{ "BOXERY_NET_NAME=tencharsxx", "longer than 9" },
		{ "BOXERY_NET_NAME=Upper", "is not a name" },
		{ "BOXERY_VIRT=xen", "none of auto, kvm and qemu" },
		{ "BOXERY_NET_FILTER=iptables", "none of auto, nft and nwfilter" },
		{ "BOXERY_PARALLEL=0", "from 1 to 64" },
		{ "BOXERY_PARALLEL=65", "from 1 to 64" },
		{ "BOXERY_START_TIMEOUT=0", "between 1s and 1d" },
		{ "BOXERY_CONSOLE_MAX=2G", "between 1M and 1024M" },
		{ "BOXERY_EVIDENCE_MAX=much", "BOXERY_EVIDENCE_MAX" },
	};
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	struct hostconf c;
	char text[200], where[200];

	(void)snprintf(where, sizeof(where), "%s/host.env:2: ", f->path);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		(void)snprintf(text, sizeof(text), "# first\n%s\n", table[i].line);
		write_conf(f, text);
		assert_fails(hostconf_load(&c, &e), EBADMSG, &e, table[i].words);
		assert_non_null(strstr(e.text, where));
	}
}

/* What is wrong only beside another setting has no line of its own. */
static void test_settings_that_do_not_fit(void **state)
{
	static const struct {
		const char *text, *words;
	} table[] = {
		{ "BOXERY_GUEST_PROXY=192.168.130.1:3128", "in the guests' own network" },
		{ "BOXERY_GUEST_PROXY=10.1.2.3:3128\nBOXERY_NET_SUBNET=10.1.2", "in the guests' own network" },
		{ "BOXERY_GUEST_PROXY=10.1.2.3:3128\nBOXERY_NET_FILTER=nwfilter", "needs BOXERY_NET_FILTER=nft" },
	};
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	struct hostconf c;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		write_conf(f, table[i].text);
		assert_fails(hostconf_load(&c, &e), EBADMSG, &e, table[i].words);
		assert_non_null(strstr(e.text, "/host.env: BOXERY_GUEST_PROXY"));
	}
	write_conf(f, "BOXERY_GUEST_PROXY=192.168.13.1:3128\n");
	c = load();
	assert_string_equal(c.guest_proxy, "192.168.13.1");
	assert_int_equal(c.guest_proxy_port, 3128);
}

static void test_bad_environment(void **state)
{
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	struct hostconf c;
	char text[400];

	(void)setenv("BOXERY_STATE_DIR", "relative", 1);
	assert_fails(hostconf_load(&c, &e), EINVAL, &e, "BOXERY_STATE_DIR: 'relative' is not an absolute path");
	(void)unsetenv("BOXERY_STATE_DIR");
	/* 107 bytes with "/keeper.sock" are the most a socket may have. */
	memset(text, 'r', sizeof(text));
	text[0] = '/';
	text[107 - 12] = '\0';
	(void)setenv("BOXERY_RUNTIME_DIR", text, 1);
	assert_ok(hostconf_load(&c, &e), &e);
	assert_int_equal(strlen(c.keeper_socket), 107);
	text[107 - 12] = 'r';
	text[107 - 11] = '\0';
	(void)setenv("BOXERY_RUNTIME_DIR", text, 1);
	assert_fails(hostconf_load(&c, &e), EINVAL, &e, "longer than the 107 bytes");
	text[107 - 11] = 'r';
	text[300] = '\0';
	(void)setenv("BOXERY_RUNTIME_DIR", text, 1);
	assert_fails(hostconf_load(&c, &e), EINVAL, &e, "longer than 255 bytes");
	(void)unsetenv("BOXERY_RUNTIME_DIR");
	/* host.env that is there and cannot be read is not the same as none. */
	assert_int_equal(mkdirat(f->fd, "host.env", 0755), 0);
	assert_fails(hostconf_load(&c, &e), EISDIR, &e, "host.env is not a regular file");
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, test_folder_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_defaults), TEST(test_xdg), TEST(test_system), TEST(test_settings), TEST(test_bad_settings), TEST(test_settings_that_do_not_fit),
		TEST(test_bad_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
