/*
 * boxery-deliver: hands one JIT config to one guest and ends.
 *
 * Theory of operation. This is the only program that speaks to a guest while it holds a secret, so it has as
 * little else as possible: it is born with four fds and opens none, it knows no address, no name and no path,
 * and before it reads the first byte from the guest it takes everything but the allow-list in filter.c from
 * itself. A guest that breaks libssh2 gets a process with one JIT config, which was meant for this guest, a
 * delivery key whose only use is the guests' forced command, and no call to do anything with.
 *
 * Stages, each with what it may and what it must not do:
 * - start: read the request, take both secrets into locked memory, close their fds; nothing from the guest
 * - prepare: initialise libssh2 and libcrypto, which reads no configuration; nothing from the guest
 * - filter: give up new privileges, install seccomp; there is no way back
 * - talk: deliver.c; nothing outside the list
 * - result: one message; the secrets are gone by now
 *
 * There is no log here: the journal is a socket to be opened. What happened is in the result, and the keeper
 * logs it. No result at all (killed by the filter, a crash) is a failure of unknown progress to the keeper,
 * and ends in a reset.
 */
#include "boxery-config.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "jit/jit.h"
#include "linux/clock.h"
#include "linux/msg.h"
#include "linux/secret.h"
#include "ssh/deliver.h"
#include "ssh/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { RESULT_FD = 3, JIT_FD, KEY_FD, GUEST_FD };

#define REQUEST_TIMEOUT_MS 10000 /* the keeper sends it right after the start */
#define TIMEOUT_MAX_MS (10 * 60 * 1000)
#define KEY_MAX 8192 /* an Ed25519 key file has about 400 bytes */

static int about(void)
{
	(void)printf("boxery-deliver %s\n", BOXERY_VERSION);
	if (filter_enforced())
		(void)printf("filter: seccomp, kill by default, %zu rules allow\n", filter_rules());
	else
		(void)printf("filter: none, this build has a sanitizer\n");
	return fflush(stdout) == 0 ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}

static int take_request(struct deliver_request *ret, struct error *e)
{
	static const size_t sizes[DELIVER_TYPE_COUNT] = {[DELIVER_REQUEST] = sizeof(struct deliver_request)};
	int fds[MSG_FDS_MAX];
	size_t n_fds = 0;
	int r = msg_recv_timeout(
		RESULT_FD, REQUEST_TIMEOUT_MS, sizes, DELIVER_TYPE_COUNT, ret, sizeof(*ret), fds, &n_fds, e);
	if (r == 0)
		return error_set(e, ECONNRESET, "the other end closed before it sent a request");
	for (size_t i = 0; r > 0 && i < n_fds; i++)
		(void)fd_close(fds[i]);
	if (r > 0 && n_fds > 0)
		return error_set(e, EBADMSG, "a request must not carry files");
	return r < 0 ? r : 0;
}

static int take_secrets(struct delivery *d, struct error *e)
{
	int r = jit_fd_check(JIT_FD, e);
	if (r >= 0)
		r = secret_from_fd(JIT_FD, &d->jit, e);
	if (r >= 0)
		r = jit_check(secret_bytes(d->jit), secret_len(d->jit), e);
	if (r < 0)
		return r;
	size_t len;
	r = secret_memfd_check(KEY_FD, KEY_MAX, &len, e);
	if (r >= 0)
		r = secret_from_fd(KEY_FD, &d->key, e);
	if (r < 0)
		return error_wrap(e, "delivery key");
	/* The bytes are now here and at the keeper only. */
	(void)fd_close(JIT_FD);
	(void)fd_close(KEY_FD);
	return 0;
}

/* 0 to 2 lead to the keeper's log until here. What the guest can reach through a fault must not: a key could be written there. */
static int close_log(struct error *e)
{
	CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		if (dup2(null, fd) < 0)
			return error_errno(e, errno, "cannot close the log");
	return null < 0 ? error_errno(e, errno, "cannot open /dev/null") : 0;
}

static int deliver(const struct deliver_request *request, struct deliver_result *result, struct error *e)
{
	struct delivery d = {.fd = GUEST_FD, .started_us = clock_boot_us()};

	if (!str_is_terminated(request->host_key, sizeof(request->host_key)))
		return error_set(e, EBADMSG, "the host key in the request has no end");
	if (request->timeout_ms == 0 || request->timeout_ms > TIMEOUT_MAX_MS)
		return error_set(e, EINVAL, "the deadline in the request must be 1 to %d ms", TIMEOUT_MAX_MS);
	d.deadline_us = d.started_us + request->timeout_ms * 1000;

	/* A handshake is small packets back and forth; a delivery is the slower for waiting to fill them. */
	(void)setsockopt(GUEST_FD, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));

	int r = hostkey_parse(request->host_key, &d.pinned, e);
	if (r >= 0)
		r = take_secrets(&d, e);
	if (r >= 0)
		r = deliver_prepare(e);
	if (r >= 0 && filter_enforced())
		r = close_log(e);
	if (r >= 0)
		r = filter_install(GUEST_FD, RESULT_FD, e);
	if (r >= 0)
		r = deliver_run(&d, result, e);
	d.key = secret_free(d.key);
	d.jit = secret_free(d.jit);
	return r;
}

int main(int argc, char **argv)
{
	struct error e = ERROR_INIT;
	struct deliver_request request;
	struct deliver_result result = {
		.head = MSG_HEAD(DELIVER_RESULT, struct deliver_result, 0), .exit_status = -1};

	if (argc == 2 && (str_equal(argv[1], "--about") || str_equal(argv[1], "--version")))
		return about();
	if (argc != 1) {
		(void)fprintf(stderr, "boxery-deliver: started by boxery-keeper with its sockets; only "
				      "--about is for people\n");
		return EXIT_STATUS_USAGE;
	}
	if (secret_init(&e) < 0 || take_request(&request, &e) < 0) {
		(void)fprintf(stderr, "boxery-deliver: %s\n", e.text);
		return error_exit_status(&e);
	}
	result.head.seq = request.head.seq;
	result.code = deliver(&request, &result, &e);
	if (result.code < 0)
		(void)str_copy(result.text, e.text);
	else if (!filter_enforced())
		(void)str_copy(
			result.text, "delivered without a system call filter: this build has a sanitizer");
	return msg_send(RESULT_FD, &result, NULL, 0, NULL) < 0 ? EXIT_STATUS_FAILED : EXIT_STATUS_OK;
}
