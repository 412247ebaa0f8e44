#ifndef BOXERY_SSH_WIRE_H
#define BOXERY_SSH_WIRE_H
/*
 * The socket under an ssh session, with the limits that libssh2 does not have. Every byte in or out goes through here:
 * one deadline over the whole session (libssh2 reads packet after packet within one call for as long as a peer keeps
 * sending, so a deadline between calls is not enough), a limit on what the peer may send, and a mute that makes sure that
 * nothing more leaves. The session's memory is wiped when it is released.
 */
#include "base/error.h"
#include <libssh2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole delivery needs about 6 kB from the guest. */
#define WIRE_RECEIVE_MAX (256 * 1024)

struct wire {
	int fd;               /* borrowed, connected */
	uint64_t deadline_us; /* CLOCK_BOOTTIME */
	size_t received, sent;
	int fault;            /* errno of the first failure: ETIMEDOUT, EMSGSIZE (limit), ECONNRESET (peer ended), ... */
	bool muted;           /* set by the owner: nothing is read or written from now on */
};

/* Non-blocking session on w, which must outlive it. libssh2_init must have been called. */
int wire_session_new(struct wire *w, LIBSSH2_SESSION **ret, struct error *e);
/* Releases it without sending another byte. Takes NULL. */
LIBSSH2_SESSION *wire_session_free(struct wire *w, LIBSSH2_SESSION *s);
/* After LIBSSH2_ERROR_EAGAIN: waits until the session can go on. On failure w->fault is set. */
int wire_wait(struct wire *w, LIBSSH2_SESSION *s);
#endif
