#ifndef BOXERY_SSH_PROTO_H
#define BOXERY_SSH_PROTO_H
/*
 * keeper -> boxery-deliver. The child is born with
 *   fd 3  result socket (SOCK_SEQPACKET): one deliver_request in, one deliver_result out
 *   fd 4  the JIT config, sealed memfd
 *   fd 5  the delivery key (OpenSSH private key, unencrypted), sealed memfd
 *   fd 6  a TCP socket already connected to the guest's sshd
 * and nothing else. It has no network, no file system, and after reading its request installs a seccomp filter that
 * kills, before it reads the first byte from fd 6. The remote command is fixed in the guest (forced command); what is
 * asked for is DELIVER_COMMAND. Deadline: the request's, and the keeper kills it a second later.
 */
#include "linux/msg.h"

#define DELIVER_COMMAND "boxery-deliver"
#define DELIVER_USER "root"
#define DELIVER_EXIT_ALREADY 75 /* the guest command: this life has had its delivery */
#define HOST_KEY_MAX 512

enum deliver_type { DELIVER_REQUEST = 1, DELIVER_RESULT, DELIVER_TYPE_COUNT };

struct deliver_request {
	struct msg_head head;
	char host_key[HOST_KEY_MAX]; /* "ssh-ed25519 BASE64", the key pinned for this life */
	uint64_t timeout_ms;
};

/* How far it got. From DELIVER_SENDING on the secret may have left the host. */
enum deliver_step {
	DELIVER_STARTING,
	DELIVER_HANDSHAKE,
	DELIVER_HOST_KEY,
	DELIVER_AUTH,
	DELIVER_EXEC,
	DELIVER_SENDING,
	DELIVER_WAITING,
	DELIVER_DONE,
	DELIVER_STEP_COUNT
};
const char *deliver_step_to_string(enum deliver_step v);

struct deliver_result {
	struct msg_head head;
	int32_t code; /* 0 or -errno */
	int32_t step; /* enum deliver_step */
	int32_t exit_status; /* the guest command's, -1 unknown */
	uint32_t handshake_ms, total_ms;
	char text[ERROR_TEXT_MAX];
};
#endif
