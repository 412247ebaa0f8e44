#include "linux/msg.h"
#include "base/cleanup.h"
#include "linux/clock.h"
#include "linux/memfd.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(MSG_FDS_MAX * sizeof(int))];
};

int msg_pair(int ret[2], struct error *e)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return error_errno(e, errno, "cannot make a pair of sockets");
	ret[0] = pair[0];
	ret[1] = pair[1];
	return 0;
}

int msg_send(int fd, const void *msg, const int *fds, size_t n_fds, struct error *e)
{
	struct msg_head head;
	union control control;
	struct iovec iov;
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	memcpy(&head, msg, sizeof(head));
	assert(head.magic == MSG_MAGIC && head.type != 0);
	assert(head.length >= sizeof(head) && head.length <= MSG_MAX);
	assert(n_fds <= MSG_FDS_MAX);

	iov.iov_base = (void *)(uintptr_t)msg; /* sendmsg does not write, its struct just cannot say so */
	iov.iov_len = head.length;
	if (n_fds > 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		mh.msg_control = control.bytes;
		mh.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	do
		n = sendmsg(fd, &mh, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return error_errno(e, errno, "cannot send a message of type %u", head.type);
	if ((size_t)n != head.length)
		return error_set(e, EIO, "only a part of a message of type %u was sent", head.type);
	return 0;
}

struct passed_fds {
	int fd[MSG_FDS_MAX];
	size_t n;
};

static void fds_close(struct passed_fds *s)
{
	for (size_t i = 0; i < s->n; i++)
		(void)fd_close(s->fd[i]);
	s->n = 0;
}

/* There is room for MSG_FDS_MAX, so the kernel never hands over more; it says MSG_CTRUNC instead. */
static void fds_collect(struct msghdr *mh, struct passed_fds *s)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		assert(n <= MSG_FDS_MAX - s->n);
		memcpy(s->fd + s->n, CMSG_DATA(c), n * sizeof(int));
		s->n += n;
	}
}

static int check(
	const struct msg_head *h, size_t received, const size_t *sizes, size_t n_sizes, struct error *e)
{
	if (h->magic != MSG_MAGIC)
		return error_set(e, EBADMSG, "a message has the wrong magic");
	if (h->version != MSG_VERSION)
		return error_set(e, EBADMSG,
			"a message has version %u, this program speaks %d; was only one of the two "
			"updated? restart the services",
			h->version, MSG_VERSION);
	if (h->type == 0 || h->type >= n_sizes || sizes[h->type] == 0)
		return error_set(e, EBADMSG, "a message of type %u is not allowed here", h->type);
	if (h->length != received || received != sizes[h->type])
		return error_set(e, EBADMSG,
			"a message of type %u has %zu bytes and says %u, but must have %zu", h->type,
			received, h->length, sizes[h->type]);
	return 0;
}

static int receive(int fd, int flags, const size_t *sizes, size_t n_sizes, void *ret, size_t size,
	int ret_fds[static MSG_FDS_MAX], size_t *ret_n_fds, struct error *e)
{
	CLEANUP(fds_close) struct passed_fds got = {.n = 0};
	union control control;
	char data[MSG_MAX];
	struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};
	struct msghdr mh = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	struct msg_head head;
	unsigned reset = 0;
	ssize_t n;
	int r;

	for (size_t i = 0; i < n_sizes; i++)
		assert(sizes[i] <= size && sizes[i] <= MSG_MAX &&
			(sizes[i] == 0 || sizes[i] >= sizeof(head)));
	/*
	 * A peer that closed with something of ours unread leaves a one-time ECONNRESET in front of what it
	 * has sent before. That is no reason to lose its last words, so it is asked again.
	 */
	do
		n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC | flags);
	while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !reset++)));
	if (n < 0)
		return error_errno(e, errno, "cannot receive a message");
	fds_collect(&mh, &got);
	/* An empty packet looks like the end of the stream; who sends one has nothing more to say. */
	if (n > 0) {
		if (mh.msg_flags & MSG_TRUNC)
			return error_set(e, EBADMSG, "a message is larger than %d bytes", MSG_MAX);
		if (mh.msg_flags & MSG_CTRUNC)
			return error_set(e, EBADMSG,
				"a message carries more than %d files, or no room is left for them",
				MSG_FDS_MAX);
		if ((size_t)n < sizeof(head))
			return error_set(e, EBADMSG, "a message has %zd bytes, less than its head", n);
		memcpy(&head, data, sizeof(head));
		r = check(&head, (size_t)n, sizes, n_sizes, e);
		if (r < 0)
			return r;
		memcpy(ret, data, (size_t)n);
	} else {
		fds_close(&got);
	}
	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		ret_fds[i] = i < got.n ? got.fd[i] : -1;
	if (ret_n_fds)
		*ret_n_fds = got.n;
	got.n = 0;
	return n > 0;
}

static void fds_none(int ret_fds[static MSG_FDS_MAX], size_t *ret_n_fds)
{
	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		ret_fds[i] = -1;
	if (ret_n_fds)
		*ret_n_fds = 0;
}

int msg_recv(int fd, const size_t *sizes, size_t n_sizes, void *ret, size_t size,
	int ret_fds[static MSG_FDS_MAX], size_t *ret_n_fds, struct error *e)
{
	fds_none(ret_fds, ret_n_fds);
	return receive(fd, 0, sizes, n_sizes, ret, size, ret_fds, ret_n_fds, e);
}

int msg_recv_timeout(int fd, uint64_t timeout_ms, const size_t *sizes, size_t n_sizes, void *ret, size_t size,
	int ret_fds[static MSG_FDS_MAX], size_t *ret_n_fds, struct error *e)
{
	const uint64_t start = clock_boot_us();

	fds_none(ret_fds, ret_n_fds);
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		uint64_t spent = (clock_boot_us() - start) / 1000u,
			 left = spent < timeout_ms ? timeout_ms - spent : 0;
		int r = poll(&p, 1, left > INT_MAX ? INT_MAX : (int)left);

		if (r < 0 && errno != EINTR)
			return error_errno(e, errno, "cannot wait for a message");
		if (r > 0) {
			/* Readiness can be stale, and then a plain receive would wait past the deadline. */
			r = receive(fd, MSG_DONTWAIT, sizes, n_sizes, ret, size, ret_fds, ret_n_fds, e);
			if (r != -EAGAIN)
				return r;
			error_clear(e);
		} else if (left == 0) {
			return error_set(e, ETIMEDOUT, "no message came within %llu ms",
				(unsigned long long)timeout_ms);
		}
	}
}

int msg_peer_uid(int fd, unsigned *ret_uid, int *ret_pid, struct error *e)
{
	struct ucred c;
	socklen_t len = sizeof(c);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0)
		return error_errno(e, errno, "cannot ask who is at the other end of a socket");
	if (ret_uid)
		*ret_uid = c.uid;
	if (ret_pid)
		*ret_pid = c.pid;
	return 0;
}

int msg_document(const char *data, size_t len, int *ret_fd, struct error *e)
{
	if (len > DOCUMENT_MAX)
		return error_set(e, EFBIG, "a document has %zu bytes, allowed are %d", len, DOCUMENT_MAX);
	return memfd_sealed_new("boxery-document", data, len, ret_fd, e);
}

int msg_document_read(int fd, char **ret, size_t *ret_len, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	size_t len;
	int r = memfd_sealed_check(fd, 0, DOCUMENT_MAX, &len, e);

	if (r < 0)
		return r;
	text = malloc(len + 1);
	if (!text)
		return error_errno(e, ENOMEM, "no memory for a document");
	r = memfd_read(fd, text, len, e);
	if (r < 0)
		return r;
	text[len] = '\0';
	*ret = TAKE_PTR(text);
	if (ret_len)
		*ret_len = len;
	return 0;
}
