/* Nothing in the guest asks the network who it is: the host gives it its address, here. */
#include "guest/begin.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define GATEWAY_HOST 1 /* the gateway is .1 of the /24 */

/* The one card: the loopback has no device. */
static int find_card(char name[static IFNAMSIZ], struct error *e)
{
	CLEANUP_DIR DIR *d = opendir("/sys/class/net");
	struct dirent *entry;
	char path[300];

	if (!d)
		return error_errno(e, errno, "/sys/class/net");
	while ((entry = readdir(d)))
		if (str_format(path, "/sys/class/net/%s/device", entry->d_name) == 0 && access(path, F_OK) == 0)
			return str_copy_n(name, IFNAMSIZ, entry->d_name);
	return error_set(e, ENODEV, "there is no network card");
}

static void put_address(struct sockaddr *dst, uint32_t host_order)
{
	const struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(host_order)};

	memcpy(dst, &a, sizeof(a));
}

int network_up(const char *address, struct error *e)
{
	CLEANUP_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
	struct ifreq q = {0};
	struct in_addr a;
	uint32_t own;
	int r;

	r = find_card(q.ifr_name, e);
	if (r < 0)
		return r;
	if (fd < 0 || inet_pton(AF_INET, address, &a) != 1)
		return error_errno(e, errno, "address %s", address);
	own = ntohl(a.s_addr);
	put_address(&q.ifr_addr, own);
	if (ioctl(fd, SIOCSIFADDR, &q) < 0)
		return error_errno(e, errno, "cannot give the address %s to %s", address, q.ifr_name);
	put_address(&q.ifr_netmask, 0xffffff00u);
	if (ioctl(fd, SIOCSIFNETMASK, &q) < 0 || ioctl(fd, SIOCGIFFLAGS, &q) < 0)
		return error_errno(e, errno, "cannot set the network of %s", q.ifr_name);
	q.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &q) < 0)
		return error_errno(e, errno, "cannot switch %s on", q.ifr_name);
	put_address(&route.rt_dst, 0);
	put_address(&route.rt_genmask, 0);
	put_address(&route.rt_gateway, (own & 0xffffff00u) | GATEWAY_HOST);
	if (ioctl(fd, SIOCADDRT, &route) < 0 && errno != EEXIST)
		return error_errno(e, errno, "cannot set the way out");
	return 0;
}
