#include "tests/unit/testing.h"
#include "base/cleanup.h"
#include "linux/clock.h"
#include "linux/msg.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { PING = 1, PONG, GAP, TYPES };
struct ping {
	struct msg_head head;
	char text[16];
};
struct pong {
	struct msg_head head;
	uint64_t number[200];
};
static const size_t sizes[TYPES] = { [PING] = sizeof(struct ping), [PONG] = sizeof(struct pong) };

union any {
	struct msg_head head;
	struct ping ping;
	struct pong pong;
};

struct pair {
	int fd[2];
};

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	*state = p;
	return p ? msg_pair(p->fd, NULL) : -1;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	(void)fd_close(p->fd[0]);
	(void)fd_close(p->fd[1]);
	free(p);
	return 0;
}

static struct ping a_ping(void)
{
	return (struct ping){ MSG_HEAD(PING, struct ping, 7), "hello" };
}

static int receive(struct pair *p, union any *m, int fds[static MSG_FDS_MAX], size_t *n, struct error *e)
{
	return msg_recv(p->fd[1], sizes, TYPES, m, sizeof(*m), fds, n, e);
}

static void test_plain(void **state)
{
	struct pair *p = *state;
	struct ping ping = a_ping();
	struct pong pong = { .head = MSG_HEAD(PONG, struct pong, 8), .number = { 1, 2 } };
	struct error e = ERROR_INIT;
	int fds[MSG_FDS_MAX];
	size_t n = 77;
	union any m;

	assert_true(fcntl(p->fd[0], F_GETFD) & FD_CLOEXEC);
	assert_ok(msg_send(p->fd[0], &ping, NULL, 0, &e), &e);
	assert_ok(msg_send(p->fd[0], &pong, NULL, 0, &e), &e);
	assert_int_equal(receive(p, &m, fds, &n, &e), 1);
	assert_int_equal(m.head.type, PING);
	assert_int_equal(m.head.seq, 7);
	assert_string_equal(m.ping.text, "hello");
	assert_int_equal(n, 0);
	assert_int_equal(fds[0], -1);
	assert_int_equal(receive(p, &m, fds, &n, &e), 1);
	assert_memory_equal(&m.pong, &pong, sizeof(pong));
	p->fd[0] = fd_close(p->fd[0]);
	assert_int_equal(receive(p, &m, fds, &n, &e), 0);
}

static void test_fds(void **state)
{
	struct pair *p = *state;
	struct ping ping = a_ping();
	struct error e = ERROR_INIT;
	unsigned before = test_count_fds();
	int sent[MSG_FDS_MAX], fds[MSG_FDS_MAX];
	size_t n;
	union any m;

	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		sent[i] = 2;
	assert_ok(msg_send(p->fd[0], &ping, sent, 2, &e), &e);
	assert_int_equal(receive(p, &m, fds, &n, &e), 1);
	assert_int_equal(n, 2);
	assert_true(fds[0] > 2 && fds[1] > 2 && fds[2] == -1 && fds[3] == -1);
	assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
	(void)close(fds[0]);
	(void)close(fds[1]);
	assert_ok(msg_send(p->fd[0], &ping, sent, MSG_FDS_MAX, &e), &e);
	assert_int_equal(receive(p, &m, fds, &n, &e), 1);
	assert_int_equal(n, MSG_FDS_MAX);
	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		(void)close(fds[i]);
	assert_int_equal(test_count_fds(), before);
}

/* Sends bytes as they are, with n_fds copies of stderr. */
static void send_raw(int fd, const void *data, size_t len, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)data, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds > 0) {
		struct cmsghdr *c;
		int copies[8] = { 2, 2, 2, 2, 2, 2, 2, 2 };

		mh.msg_control = control.bytes;
		mh.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), copies, n_fds * sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &mh, MSG_NOSIGNAL), len);
}

static void assert_refused(struct pair *p, const void *data, size_t len, size_t n_fds, const char *words)
{
	struct error e = ERROR_INIT;
	unsigned before = test_count_fds();
	int fds[MSG_FDS_MAX];
	size_t n = 77;
	union any m;

	memset(&m, 0x5a, sizeof(m));
	send_raw(p->fd[0], data, len, n_fds);
	assert_fails(receive(p, &m, fds, &n, &e), EBADMSG, &e, words);
	/* Nothing of it stays: no fd, no byte. */
	assert_int_equal(test_count_fds(), before);
	assert_int_equal(n, 0);
	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		assert_int_equal(fds[i], -1);
	for (size_t i = 0; i < sizeof(m); i++)
		assert_int_equal(((unsigned char *)&m)[i], 0x5a);
}

static void test_malformed(void **state)
{
	struct pair *p = *state;
	struct ping good = a_ping(), bad;
	struct pong pong = { .head = MSG_HEAD(PONG, struct pong, 1) };
	static char big[MSG_MAX + 1];

	bad = good;
	bad.head.magic ^= 1;
	assert_refused(p, &bad, sizeof(bad), 0, "wrong magic");
	bad = good;
	bad.head.version++;
	assert_refused(p, &bad, sizeof(bad), 1, "version 2");
	bad = good;
	bad.head.type = 0;
	assert_refused(p, &bad, sizeof(bad), 0, "type 0 is not allowed");
	bad.head.type = GAP;
	assert_refused(p, &bad, sizeof(bad), 2, "type 3 is not allowed");
	bad.head.type = 65535;
	assert_refused(p, &bad, sizeof(bad), 0, "type 65535 is not allowed");
	bad = good;
	bad.head.length--;
	assert_refused(p, &bad, sizeof(bad), 0, "must have");
	/* Truncated, and said so honestly; and too long for its type. */
	assert_refused(p, &good, sizeof(good) - 1, 4, "must have");
	bad.head.length = sizeof(bad) - 1;
	assert_refused(p, &bad, sizeof(bad) - 1, 0, "must have");
	pong.head.type = PING;
	assert_refused(p, &pong, sizeof(pong), 0, "must have");
	assert_refused(p, &good, sizeof(good.head) - 1, 1, "less than its head");
	memcpy(big, &good, sizeof(good));
	assert_refused(p, big, sizeof(big), 3, "larger than 8192 bytes");
	assert_refused(p, &good, sizeof(good), MSG_FDS_MAX + 1, "more than 4 files");
	assert_refused(p, &good, sizeof(good), 8, "more than 4 files");
}

static void test_nonblocking(void **state)
{
	struct pair *p = *state;
	struct ping ping = a_ping();
	struct error e = ERROR_INIT;
	int fds[MSG_FDS_MAX], r;
	size_t n;
	union any m;

	assert_int_equal(fcntl(p->fd[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl(p->fd[1], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(receive(p, &m, fds, &n, &e), -EAGAIN);
	do
		r = msg_send(p->fd[0], &ping, NULL, 0, &e);
	while (r == 0);
	assert_int_equal(r, -EAGAIN);
	while (receive(p, &m, fds, &n, &e) == 1)
		;
	p->fd[1] = fd_close(p->fd[1]);
	/* A signal would have ended the test. */
	assert_fails(msg_send(p->fd[0], &ping, NULL, 0, &e), EPIPE, &e, "cannot send a message of type 1");
}

/* A child that sends its result and ends without having read everything: the result still arrives. */
static void test_last_words(void **state)
{
	struct pair *p = *state;
	struct ping ping = a_ping();
	struct error e = ERROR_INIT;
	int fds[MSG_FDS_MAX];
	size_t n;
	union any m;

	assert_ok(msg_send(p->fd[1], &ping, NULL, 0, &e), &e);
	assert_ok(msg_send(p->fd[0], &ping, NULL, 0, &e), &e);
	p->fd[0] = fd_close(p->fd[0]);
	assert_int_equal(receive(p, &m, fds, &n, &e), 1);
	assert_string_equal(m.ping.text, "hello");
	assert_int_equal(receive(p, &m, fds, &n, &e), 0);
}

static void test_timeout(void **state)
{
	struct pair *p = *state;
	struct ping ping = a_ping();
	struct error e = ERROR_INIT;
	uint64_t start = clock_boot_us();
	int fds[MSG_FDS_MAX];
	size_t n;
	union any m;

	assert_fails(msg_recv_timeout(p->fd[1], 60, sizes, TYPES, &m, sizeof(m), fds, &n, &e), ETIMEDOUT, &e,
			"within 60 ms");
	assert_true(clock_boot_us() - start >= 60000);
	assert_ok(msg_send(p->fd[0], &ping, NULL, 0, &e), &e);
	assert_int_equal(msg_recv_timeout(p->fd[1], 0, sizes, TYPES, &m, sizeof(m), fds, NULL, &e), 1);
	assert_string_equal(m.ping.text, "hello");
	p->fd[0] = fd_close(p->fd[0]);
	assert_int_equal(msg_recv_timeout(p->fd[1], UINT64_MAX, sizes, TYPES, &m, sizeof(m), fds, &n, &e), 0);
}

static void test_peer(void **state)
{
	struct pair *p = *state;
	struct error e = ERROR_INIT;
	unsigned uid = 77;
	int pid = 0;

	assert_ok(msg_peer_uid(p->fd[0], &uid, &pid, &e), &e);
	assert_int_equal(uid, getuid());
	assert_int_equal(pid, getpid());
	assert_fails(msg_peer_uid(-1, &uid, &pid, &e), EBADF, &e, "who is at the other end");
}

static void test_document(void **state)
{
	CLEANUP_FREE char *text = NULL, *big = calloc(1, DOCUMENT_MAX + 1);
	CLEANUP_FD int fd = -1, empty = -1, loose = memfd_create("x", MFD_CLOEXEC);
	struct error e = ERROR_INIT;
	size_t len = 77;

	assert_non_null(big);
	assert_fails(msg_document(big, DOCUMENT_MAX + 1, &fd, &e), EFBIG, &e, "a document has");
	assert_int_equal(fd, -1);
	assert_ok(msg_document("{}", 2, &fd, &e), &e);
	assert_ok(msg_document_read(fd, &text, &len, &e), &e);
	assert_string_equal(text, "{}");
	assert_int_equal(len, 2);
	free(TAKE_PTR(text));
	assert_ok(msg_document("", 0, &empty, &e), &e);
	assert_ok(msg_document_read(empty, &text, NULL, &e), &e);
	assert_string_equal(text, "");
	assert_fails(msg_document_read(loose, &text, &len, &e), EBADMSG, &e, "not a sealed");
	assert_int_equal(ftruncate(loose, 10), 0);
	assert_fails(msg_document_read(loose, &text, &len, &e), EBADMSG, &e, "not a sealed");
}

int main(void)
{
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH_PAIR(test_plain), WITH_PAIR(test_fds), WITH_PAIR(test_malformed), WITH_PAIR(test_nonblocking),
		WITH_PAIR(test_last_words),
		WITH_PAIR(test_timeout), WITH_PAIR(test_peer), cmocka_unit_test(test_document),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
