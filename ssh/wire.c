#include "ssh/wire.h"

#include "linux/clock.h"
#include "ssh/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static LIBSSH2_ALLOC_FUNC(session_alloc)
{
	return malloc(count);
}

static LIBSSH2_FREE_FUNC(session_free)
{
	memory_free(ptr);
}

static LIBSSH2_REALLOC_FUNC(session_realloc)
{
	return memory_realloc(ptr, count);
}

/* Keeps the first fault: what comes after it is its consequence. Returns the negative errno that libssh2
 * expects. */
static ssize_t wire_fail(struct wire *w, int code)
{
	if (w->fault == 0)
		w->fault = code;
	return -code;
}

static ssize_t wire_check(struct wire *w)
{
	if (w->muted || w->fault != 0)
		return wire_fail(w, ECONNABORTED);
	if (clock_boot_us() >= w->deadline_us)
		return wire_fail(w, ETIMEDOUT);
	return 0;
}

static LIBSSH2_RECV_FUNC(wire_recv)
{
	struct wire *w = *abstract;
	ssize_t n = wire_check(w);
	if (n < 0)
		return n;
	if (w->received >= WIRE_RECEIVE_MAX)
		return wire_fail(w, EMSGSIZE);
	if (length > WIRE_RECEIVE_MAX - w->received)
		length = WIRE_RECEIVE_MAX - w->received;
	do
		n = recv(w->fd, buffer, length, flags | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : wire_fail(w, errno);
	if (n == 0)
		(void)wire_fail(w, ECONNRESET);
	w->received += (size_t)n;
	return n;
}

static LIBSSH2_SEND_FUNC(wire_send)
{
	struct wire *w = *abstract;
	ssize_t n = wire_check(w);
	if (n < 0)
		return n;
	do
		n = send(w->fd, buffer, length, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : wire_fail(w, errno == EPIPE ? ECONNRESET : errno);
	w->sent += (size_t)n;
	return n;
}

int wire_session_new(struct wire *w, LIBSSH2_SESSION **ret, struct error *e)
{
	int flags = fcntl(w->fd, F_GETFL);
	if (flags < 0 || fcntl(w->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return error_errno(e, errno, "the connection to the guest cannot be used");

	LIBSSH2_SESSION *s = libssh2_session_init_ex(session_alloc, session_free, session_realloc, w);
	if (!s)
		return error_set(e, ENOMEM, "no memory for an ssh session");
	libssh2_session_set_blocking(s, 0);
	/* libssh2's interface carries functions as data pointers; POSIX allows it. */
	LIBSSH2_RECV_FUNC((*receive)) = wire_recv;
	LIBSSH2_SEND_FUNC((*transmit)) = wire_send;
	void *p;
	memcpy(&p, &receive, sizeof(p));
	(void)libssh2_session_callback_set(s, LIBSSH2_CALLBACK_RECV, p);
	memcpy(&p, &transmit, sizeof(p));
	(void)libssh2_session_callback_set(s, LIBSSH2_CALLBACK_SEND, p);
	*ret = s;
	return 0;
}

LIBSSH2_SESSION *wire_session_free(struct wire *w, LIBSSH2_SESSION *s)
{
	if (s) {
		w->muted = true;
		(void)libssh2_session_free(s);
	}
	return NULL;
}

int wire_wait(struct wire *w, LIBSSH2_SESSION *s)
{
	int directions = libssh2_session_block_directions(s);
	/* A full send buffer must not hide what the guest has to say, so reading is always of interest. */
	struct pollfd p = {.fd = w->fd, .events = POLLIN};
	if (directions & LIBSSH2_SESSION_BLOCK_OUTBOUND)
		p.events |= POLLOUT;

	for (;;) {
		uint64_t now = clock_boot_us();
		if (now >= w->deadline_us)
			return (int)wire_fail(w, ETIMEDOUT);
		uint64_t ms = (w->deadline_us - now + 999) / 1000;
		int r = poll(&p, 1, ms > INT_MAX ? INT_MAX : (int)ms);
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return (int)wire_fail(w, errno);
	}
}
