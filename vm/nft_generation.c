#include "vm/nft_generation.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#define ANSWER_TIMEOUT_S 2
#define ANSWER_MAX 4096
#define DRAIN_MAX 1024

static int netlink_open(uint32_t groups, int flags, int *ret_fd, struct error *e)
{
	const struct sockaddr_nl us = {.nl_family = AF_NETLINK, .nl_groups = groups};
	CLEANUP_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | flags, NETLINK_NETFILTER);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&us, sizeof(us)) < 0)
		return error_errno(e, errno, "cannot ask the kernel about its rules");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int ask(int fd)
{
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
	const struct {
		struct nlmsghdr head;
		struct nfgenmsg body;
	} q = {.head = {.nlmsg_len = sizeof(q),
		       .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN,
		       .nlmsg_flags = NLM_F_REQUEST},
		.body = {.version = NFNETLINK_V0}};

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
		sendto(fd, &q, sizeof(q), 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	return 0;
}

/* The number in an answer of len bytes; false when it is not that answer. */
static bool parse(const struct nlmsghdr *head, size_t len, uint32_t *ret)
{
	const size_t start = NLMSG_LENGTH(sizeof(struct nfgenmsg));
	const char *p = (const char *)head;

	if (len < sizeof(*head) || head->nlmsg_len > len ||
		head->nlmsg_type != (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN))
		return false;
	for (size_t at = start; at + NLA_HDRLEN <= head->nlmsg_len;) {
		struct nlattr a;

		memcpy(&a, p + at, sizeof(a));
		if (a.nla_len < NLA_HDRLEN || a.nla_len > head->nlmsg_len - at)
			return false;
		if ((a.nla_type & NLA_TYPE_MASK) == NFTA_GEN_ID && a.nla_len == NLA_HDRLEN + sizeof(*ret)) {
			memcpy(ret, p + at + NLA_HDRLEN, sizeof(*ret));
			*ret = ntohl(*ret);
			return true;
		}
		at += NLA_ALIGN(a.nla_len);
	}
	return false;
}

int nft_generation_get(struct nft_generation *ret, struct error *e)
{
	union {
		struct nlmsghdr head;
		char bytes[ANSWER_MAX];
	} a;
	struct nft_generation g = {0};
	CLEANUP_FD int fd = -1;
	socklen_t size = sizeof(g.netns);
	ssize_t n;
	int r;

	r = clock_boot_id(g.boot_id, e);
	if (r == 0)
		r = netlink_open(0, 0, &fd, e);
	if (r < 0)
		return r;
	r = ask(fd);
	if (r < 0)
		return error_errno(e, -r, "cannot ask the kernel about its rules");
	n = recv(fd, &a, sizeof(a), 0);
	if (n < 0)
		return error_errno(e, errno, "the kernel does not answer about its rules");
	if (!parse(&a.head, (size_t)n, &g.number))
		return error_set(e, EBADMSG, "the kernel's answer about its rules is another one");
	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &g.netns, &size) < 0)
		return error_errno(e, errno, "this kernel does not number its network namespaces");
	*ret = g;
	return 0;
}

bool nft_generation_equal(const struct nft_generation *a, const struct nft_generation *b)
{
	return str_equal(a->boot_id, b->boot_id) && a->netns == b->netns && a->number == b->number;
}

int nft_changes_open(int *ret_fd, struct error *e)
{
	return netlink_open(1u << (NFNLGRP_NFTABLES - 1), SOCK_NONBLOCK, ret_fd, e);
}

void nft_changes_drain(int fd)
{
	char bytes[ANSWER_MAX];

	/* A message that is longer is cut off by this; ENOBUFS is reported once and then gone. */
	for (int i = 0; i < DRAIN_MAX; i++)
		if (recv(fd, bytes, sizeof(bytes), 0) < 0 && errno != ENOBUFS && errno != EINTR)
			return;
}
