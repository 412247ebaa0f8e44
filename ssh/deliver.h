#ifndef BOXERY_SSH_DELIVER_H
#define BOXERY_SSH_DELIVER_H
/*
 * One delivery over one connection: handshake, host key, authentication, command, JIT config, end, exit status.
 * deliver_prepare() comes before the system call filter, deliver_run() after it.
 */
#include "base/error.h"
#include "linux/secret.h"
#include "ssh/hostkey.h"
#include "ssh/proto.h"
#include <stdint.h>

/* Everything in libssh2 and libcrypto that reads files or starts lazily. */
int deliver_prepare(struct error *e);

struct delivery {
	int fd;                /* borrowed: connected to the guest's sshd */
	struct hostkey pinned; /* the only host key that is accepted */
	struct secret *key;    /* both owned; freed (and NULL) as soon as they are not needed any more */
	struct secret *jit;
	uint64_t started_us, deadline_us; /* CLOCK_BOOTTIME */
};
/* Fills step, exit_status and the times of ret in every case. */
int deliver_run(struct delivery *d, struct deliver_result *ret, struct error *e);
#endif
