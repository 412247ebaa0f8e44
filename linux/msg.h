#ifndef BOXERY_LINUX_MSG_H
#define BOXERY_LINUX_MSG_H
/*
 * Messages between our processes: one fixed-size struct per SOCK_SEQPACKET packet, this head first, fds by SCM_RIGHTS.
 * The receiver copies into its own memory, checks magic, version, type and exact length, then uses. Both ends are
 * always of one build on one machine, so structs are in host order and `version` differs only after an upgrade.
 */
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

#define MSG_MAGIC 0x59584f42u /* "BOXY" */
#define MSG_VERSION 1
#define MSG_MAX 8192
#define MSG_FDS_MAX 4

struct msg_head {
	uint32_t magic;
	uint16_t version;
	uint16_t type;   /* the protocol's own enum; 0 is never valid */
	uint32_t length; /* of the whole struct */
	uint32_t seq;    /* a reply carries its request's */
};
#define MSG_HEAD(type_, struct_, seq_)                                                                                 \
	((struct msg_head){.magic = MSG_MAGIC, .version = MSG_VERSION, .type = (type_),                                \
			.length = (uint32_t)sizeof(struct_), .seq = (seq_)})

/* A pair of connected, CLOEXEC, blocking sockets. */
int msg_pair(int ret[2], struct error *e);
/* Sends one whole message. -EAGAIN on a full non-blocking socket; never SIGPIPE. */
int msg_send(int fd, const void *msg, const int *fds, size_t n_fds, struct error *e);
/*
 * Receives one. The caller gives the table of sizes by type (0: not allowed here). Received fds are CLOEXEC; unused
 * slots are -1. Returns 1 for a message, 0 at end of stream, -EAGAIN when non-blocking and nothing is there,
 * -EBADMSG for anything malformed (fds closed, nothing in ret).
 */
int msg_recv(int fd, const size_t *sizes, size_t n_sizes, void *ret, size_t size, int ret_fds[static MSG_FDS_MAX],
		size_t *ret_n_fds, struct error *e);
/* As msg_recv on a blocking socket, with a deadline in milliseconds from now: -ETIMEDOUT. */
int msg_recv_timeout(int fd, uint64_t timeout_ms, const size_t *sizes, size_t n_sizes, void *ret, size_t size,
		int ret_fds[static MSG_FDS_MAX], size_t *ret_n_fds, struct error *e);
int msg_peer_uid(int fd, unsigned *ret_uid, int *ret_pid, struct error *e); /* SO_PEERCRED */
/* A JSON or text document as a sealed memfd to be sent along, and its reader (bounded, NUL-terminated, malloc'd). */
#define DOCUMENT_MAX (4 * 1024 * 1024)
int msg_document(const char *data, size_t len, int *ret_fd, struct error *e);
int msg_document_read(int fd, char **ret, size_t *ret_len, struct error *e);
#endif
