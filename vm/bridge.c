#include "vm/bridge.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <errno.h>
#include <linux/if_bridge.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#define ANSWER_TIMEOUT_S 10 /* others may hold the kernel's lock of devices for seconds */
#define ANSWER_MAX 4096
#define ATTRIBUTE(t, field)                                                                                  \
	{                                                                                                    \
		.nla_type = (t), .nla_len = (unsigned short)(NLA_HDRLEN + (field))                           \
	}

struct order {
	struct nlmsghdr head;
	struct ifinfomsg link;
	struct nlattr info;
	struct nlattr kind;
	char kind_word[8];
	struct nlattr data;
	struct nlattr options;
	struct br_boolopt_multi bits;
};
_Static_assert(sizeof(struct order) == NLMSG_HDRLEN + sizeof(struct ifinfomsg) + 4 * NLA_HDRLEN + 8 +
					       sizeof(struct br_boolopt_multi),
	"an attribute follows the other without a gap");

static int send_order(int fd, unsigned index)
{
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
	const struct order q = {.head = {.nlmsg_len = sizeof(q),
					.nlmsg_type = RTM_NEWLINK,
					.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
		.link = {.ifi_family = AF_UNSPEC, .ifi_index = (int)index},
		.info = ATTRIBUTE(IFLA_LINKINFO, sizeof(q) - offsetof(struct order, kind)),
		.kind = ATTRIBUTE(IFLA_INFO_KIND, sizeof("bridge")),
		.kind_word = "bridge",
		.data = ATTRIBUTE(IFLA_INFO_DATA, NLA_HDRLEN + sizeof(q.bits)),
		.options = ATTRIBUTE(IFLA_BR_MULTI_BOOLOPT, sizeof(q.bits)),
		.bits = {.optval = 1u << BR_BOOLOPT_NO_LL_LEARN, .optmask = 1u << BR_BOOLOPT_NO_LL_LEARN}};

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
		sendto(fd, &q, sizeof(q), 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	return 0;
}

/* What the kernel says to the one message that it was sent. */
static int answer(int fd)
{
	union {
		struct nlmsghdr head;
		char bytes[ANSWER_MAX];
	} a;
	struct nlmsgerr said;
	ssize_t n = recv(fd, &a, sizeof(a), 0);

	if (n < 0)
		return -errno;
	if ((size_t)n < NLMSG_LENGTH(sizeof(said)) || a.head.nlmsg_type != NLMSG_ERROR)
		return -EBADMSG;
	memcpy(&said, a.bytes + NLMSG_HDRLEN, sizeof(said));
	return said.error <= 0 ? said.error : -EBADMSG;
}

int bridge_learn_nothing_beside(const char *bridge, struct error *e)
{
	unsigned index = if_nametoindex(bridge);
	CLEANUP_FD int fd = -1;
	int r;

	if (!index)
		return error_errno(e, errno, "cannot find the bridge %s", bridge);
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	r = fd < 0 ? -errno : send_order(fd, index);
	if (r == 0)
		r = answer(fd);
	return r < 0 ? error_errno(e, -r,
			       "cannot tell the bridge %s to learn nothing from frames of link-local "
			       "protocols",
			       bridge)
		     : 0;
}
