#include "testing.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "vm/bridge.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/if_bridge.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define BRIDGE "virbr-test"
#define TAP "boxery-test"
#define FDB_MAX 64

static void up(int fd, const char *device)
{
	struct ifreq q = {.ifr_flags = IFF_UP};

	assert_int_equal(str_copy(q.ifr_name, device), 0);
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &q), 0);
}

/* A bridge with one tap, as libvirt makes them, in a network of our own; false without root. */
static bool make_network(int fd, int *ret_tap)
{
	struct ifreq q = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	CLEANUP_FD int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (tap < 0 || ioctl(fd, SIOCBRADDBR, BRIDGE) < 0)
		return false;
	assert_int_equal(str_copy(q.ifr_name, TAP), 0);
	assert_int_equal(ioctl(tap, TUNSETIFF, &q), 0);
	q = (struct ifreq){.ifr_ifindex = (int)if_nametoindex(TAP)};
	assert_int_equal(str_copy(q.ifr_name, BRIDGE), 0);
	assert_int_equal(ioctl(fd, SIOCBRADDIF, &q), 0);
	up(fd, TAP);
	up(fd, BRIDGE);
	*ret_tap = TAKE_FD(tap);
	return true;
}

/* Has the bridge learnt a sender of our frames, 02:...:number? */
static bool learnt(int fd, unsigned char number)
{
	struct __fdb_entry entries[FDB_MAX] = {0};
	unsigned long arguments[] = {BRCTL_GET_FDB_ENTRIES, (unsigned long)(uintptr_t)entries, FDB_MAX, 0};
	struct ifreq q = {.ifr_data = (void *)arguments};
	bool found = false;
	int n;

	assert_int_equal(str_copy(q.ifr_name, BRIDGE), 0);
	n = ioctl(fd, SIOCDEVPRIVATE, &q);
	assert_true(n >= 0);
	for (int i = 0; i < n; i++)
		found |= entries[i].mac_addr[0] == 2 && entries[i].mac_addr[5] == number;
	return found;
}

/* LLDP, by a guest that calls itself 02:00:00:00:00:number. */
static void send_lldp(int tap, unsigned char number)
{
	const unsigned char frame[64] = {0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, number, 0x88, 0xcc};

	assert_int_equal(write(tap, frame, sizeof(frame)), sizeof(frame));
}

static void test_learns_nothing(void **state)
{
	CLEANUP_FD int fd = -1, tap = -1;
	struct error e = ERROR_INIT;

	if (unshare(CLONE_NEWNET) < 0)
		skip();
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	if (!make_network(fd, &tap))
		skip();
	/* That it would. */
	send_lldp(tap, 1);
	assert_true(learnt(fd, 1));
	for (unsigned char i = 2; i < 4; i++) {
		assert_ok(bridge_learn_nothing_beside(BRIDGE, &e), &e);
		send_lldp(tap, i);
		assert_false(learnt(fd, i));
	}
	assert_fails(bridge_learn_nothing_beside("nowhere", &e), ENODEV, &e, "the bridge nowhere");
	assert_fails(bridge_learn_nothing_beside("lo", &e), EOPNOTSUPP, &e, "lo");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_learns_nothing)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
