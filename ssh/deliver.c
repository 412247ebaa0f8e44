/*
 * Theory of operation. The guest has run nobody's code yet, but the address it answers at is only an address:
 * an earlier guest may have kept a copy of anything it once saw. So the host key, made on the host for this
 * one life, is the identity, and it is checked before anything of ours is sent: only ssh-ed25519 may be
 * negotiated, the key is compared byte for byte, and on a difference the session is muted. libssh2 has
 * verified by then that the peer holds the private half.
 *
 * From the first byte of the JIT config on (DELIVER_SENDING) the secret may have left the host, whatever the
 * result says. What the guest writes to stdout and stderr is read and dropped: after it has the secret, its
 * words could be the secret, and results go to logs.
 *
 * Each secret is freed the moment it has done its work, so that a process that waits for the guest has
 * neither.
 */
#include "ssh/deliver.h"

#include "base/cleanup.h"
#include "linux/clock.h"
#include "ssh/memory.h"
#include "ssh/wire.h"

#include <errno.h>
#include <libssh2.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sodium.h>
#include <string.h>

#define STACK_USED (64 * 1024) /* wiped after the libraries have worked with a secret */

struct talk {
	struct delivery *d;
	struct wire wire;
	LIBSSH2_SESSION *session;
	LIBSSH2_CHANNEL *channel; /* freed with the session */
	struct deliver_result *result;
	const char *doing; /* for the error: "... while DOING" */
};

/* One algorithm of each kind, all of which both libssh2 1.10 and any OpenSSH since 6.5 have. */
static const struct {
	int method;
	const char *names;
} methods[] = {
	{LIBSSH2_METHOD_HOSTKEY, HOSTKEY_ALGORITHM},
	{LIBSSH2_METHOD_KEX, "curve25519-sha256,curve25519-sha256@libssh.org"},
	{LIBSSH2_METHOD_CRYPT_CS, "aes256-ctr"},
	{LIBSSH2_METHOD_CRYPT_SC, "aes256-ctr"},
	{LIBSSH2_METHOD_MAC_CS, "hmac-sha2-256,hmac-sha2-512"},
	{LIBSSH2_METHOD_MAC_SC, "hmac-sha2-256,hmac-sha2-512"},
	{LIBSSH2_METHOD_COMP_CS, "none"},
	{LIBSSH2_METHOD_COMP_SC, "none"},
};

static void talk_end(struct talk *t)
{
	t->session = wire_session_free(&t->wire, t->session);
}

static void step(struct talk *t, enum deliver_step s, const char *doing)
{
	t->result->step = (int32_t)s;
	t->doing = doing;
}

/* Turns the last failure into a sentence. The socket's own fault explains more than libssh2's words for its
 * consequence. */
static int talk_error(struct talk *t, struct error *e)
{
	char *words = NULL, shown[128];
	int len = 0, code = libssh2_session_last_error(t->session, &words, &len, 0);

	switch (t->wire.fault) {
	case 0:
		str_show_n(shown, sizeof(shown), words ? words : "", words ? (size_t)len : 0);
		return error_set(e, EPROTO, "the guest's sshd was not understood while %s: %s (%d)", t->doing,
			shown, code);
	case ETIMEDOUT:
		return error_set(e, ETIMEDOUT, "the delivery's deadline passed while %s", t->doing);
	case EMSGSIZE:
		return error_set(
			e, EPROTO, "the guest sent more than %d bytes while %s", WIRE_RECEIVE_MAX, t->doing);
	case ECONNRESET:
		return error_set(e, ECONNRESET, "the guest closed the connection while %s", t->doing);
	default:
		return error_errno(e, t->wire.fault, "the connection to the guest failed while %s", t->doing);
	}
}

/* Repeats a libssh2 call until it is done; the value is that of the call. A statement expression because
 * libssh2 wants the very same call again. */
#define UNTIL_DONE(t, call)                                                                                  \
	({                                                                                                   \
		__typeof__(call) _r;                                                                         \
		while ((_r = (call)) == LIBSSH2_ERROR_EAGAIN && wire_wait(&(t)->wire, (t)->session) == 0)    \
			;                                                                                    \
		_r;                                                                                          \
	})

static int handshake(struct talk *t, struct error *e)
{
	step(t, DELIVER_HANDSHAKE, "agreeing on keys");
	int r = wire_session_new(&t->wire, &t->session, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (libssh2_session_method_pref(t->session, methods[i].method, methods[i].names) != 0)
			return error_set(e, EOPNOTSUPP, "this libssh2 has none of %s", methods[i].names);
	if (UNTIL_DONE(t, libssh2_session_handshake(t->session, t->wire.fd)) != 0)
		return talk_error(t, e);
	t->result->handshake_ms = (uint32_t)((clock_boot_us() - t->d->started_us) / 1000);
	return 0;
}

static int check_host_key(struct talk *t, struct error *e)
{
	step(t, DELIVER_HOST_KEY, "checking the host key");
	size_t len = 0;
	int type = LIBSSH2_HOSTKEY_TYPE_UNKNOWN;
	const char *blob = libssh2_session_hostkey(t->session, &len, &type);
	if (blob && type == LIBSSH2_HOSTKEY_TYPE_ED25519 && len == HOSTKEY_BLOB_LEN &&
		memcmp(blob, t->d->pinned.blob, HOSTKEY_BLOB_LEN) == 0)
		return 0;

	t->wire.muted = true;
	char got[HOSTKEY_FINGERPRINT_MAX] = "none", want[HOSTKEY_FINGERPRINT_MAX];
	hostkey_fingerprint(t->d->pinned.blob, HOSTKEY_BLOB_LEN, want);
	if (blob)
		hostkey_fingerprint(blob, len, got);
	return error_set(e, EKEYREJECTED,
		"what answers at the guest's address is not the guest: its host key is %s, "
		"pinned for this life is %s; neither key nor JIT config was sent",
		got, want);
}

static void guarded_free(char **p)
{
	sodium_free(*p); /* wipes */
}

static int authenticate(struct talk *t, struct error *e)
{
	step(t, DELIVER_AUTH, "authenticating");
	/* libssh2 1.10 is given a length and uses strlen() all the same when it signs. */
	size_t len = secret_len(t->d->key), sent = t->wire.sent;
	CLEANUP(guarded_free) char *text = sodium_malloc(len + 1);
	if (!text)
		return error_set(e, ENOMEM, "no locked memory for the delivery key");
	memcpy(text, secret_bytes(t->d->key), len);
	text[len] = '\0';
	t->d->key = secret_free(t->d->key);

	int r = UNTIL_DONE(t, libssh2_userauth_publickey_frommemory(t->session, DELIVER_USER,
				      strlen(DELIVER_USER), NULL, 0, text, len, NULL));
	sodium_stackzero(STACK_USED);
	if (r == 0)
		return 0;
	if (t->wire.fault == 0 && t->wire.sent == sent) /* it failed before the guest was asked anything */
		return error_set(
			e, EINVAL, "the delivery key is not an unencrypted Ed25519 key in OpenSSH's format");
	if (t->wire.fault == 0 &&
		(r == LIBSSH2_ERROR_AUTHENTICATION_FAILED || r == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED))
		return error_set(
			e, EACCES, "the guest refuses the delivery key; was its authorized_keys written?");
	return talk_error(t, e);
}

static int start_command(struct talk *t, struct error *e)
{
	step(t, DELIVER_EXEC, "starting the command");
	int r = 0;
	/* This one returns a pointer and keeps "again" as the session's last error. */
	while (!(t->channel = libssh2_channel_open_session(t->session))) {
		r = libssh2_session_last_errno(t->session);
		if (r != LIBSSH2_ERROR_EAGAIN || wire_wait(&t->wire, t->session) < 0)
			return talk_error(t, e);
	}
	r = UNTIL_DONE(t, libssh2_channel_exec(t->channel, DELIVER_COMMAND));
	return r == 0 ? 0 : talk_error(t, e);
}

static int send_jit(struct talk *t, struct error *e)
{
	const char *p = secret_bytes(t->d->jit);
	size_t left = secret_len(t->d->jit);

	step(t, DELIVER_SENDING, "sending the JIT config");
	while (left > 0) {
		ssize_t n = UNTIL_DONE(t, libssh2_channel_write(t->channel, p, left));
		/* 0: the guest's window is full; it has to say that it can take more. */
		if (n < 0 || (n == 0 && wire_wait(&t->wire, t->session) < 0))
			return talk_error(t, e);
		p += n;
		left -= (size_t)n;
	}
	t->d->jit = secret_free(t->d->jit);
	sodium_stackzero(STACK_USED);
	return UNTIL_DONE(t, libssh2_channel_send_eof(t->channel)) == 0 ? 0 : talk_error(t, e);
}

/* Reads and drops both streams up to the guest's EOF. */
static int drain(struct talk *t, struct error *e)
{
	static const int streams[] = {0, SSH_EXTENDED_DATA_STDERR};
	char dropped[1024];

	while (!libssh2_channel_eof(t->channel)) {
		bool more = false;
		for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
			ssize_t n = libssh2_channel_read_ex(t->channel, streams[i], dropped, sizeof(dropped));
			if (n < 0 && n != LIBSSH2_ERROR_EAGAIN)
				return talk_error(t, e);
			more = more || n > 0;
		}
		if (!more && !libssh2_channel_eof(t->channel) && wire_wait(&t->wire, t->session) < 0)
			return talk_error(t, e);
	}
	secret_wipe(dropped, sizeof(dropped));
	return 0;
}

static int take_exit_status(struct talk *t, struct error *e)
{
	step(t, DELIVER_WAITING, "waiting for the command's end");
	int r = drain(t, e);
	if (r < 0)
		return r;
	/* The exit status may come after EOF, but always before the close. */
	if (UNTIL_DONE(t, libssh2_channel_close(t->channel)) < 0 ||
		UNTIL_DONE(t, libssh2_channel_wait_closed(t->channel)) < 0)
		return talk_error(t, e);

	char *name = NULL, shown[32];
	size_t len = 0;
	(void)libssh2_channel_get_exit_signal(t->channel, &name, &len, NULL, NULL, NULL, NULL);
	if (name) {
		str_show_n(shown, sizeof(shown), name, len);
		libssh2_free(t->session, name);
		return error_set(e, EREMOTEIO, "the guest's delivery command was killed by signal %s", shown);
	}
	t->result->exit_status = libssh2_channel_get_exit_status(t->channel);
	if (t->result->exit_status != 0)
		return error_set(e, EREMOTEIO, "the guest's delivery command ended with status %d%s",
			t->result->exit_status,
			t->result->exit_status == DELIVER_EXIT_ALREADY ? ": this life has had its delivery"
								       : "");
	step(t, DELIVER_DONE, "done");
	return 0;
}

int deliver_prepare(struct error *e)
{
	/* Without its configuration file libcrypto opens nothing later on. A first use of the random
	 * generator, which is set up lazily, is made here so that a fault in it is a sentence and not a dead
	 * process. */
	uint8_t unused[16];
	int r = memory_install(e);
	if (r < 0)
		return r;
	if (OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1 ||
		RAND_bytes(unused, sizeof(unused)) != 1)
		return error_set(e, EIO, "libcrypto cannot be initialised");
	r = libssh2_init(0);
	if (r != 0)
		return error_set(e, EIO, "libssh2 cannot be initialised (%d)", r);
	return 0;
}

int deliver_run(struct delivery *d, struct deliver_result *ret, struct error *e)
{
	static int (*const steps[])(struct talk * t, struct error * e) = {
		handshake, check_host_key, authenticate, start_command, send_jit, take_exit_status};
	CLEANUP(talk_end)
	struct talk t = {.d = d, .result = ret, .wire = {.fd = d->fd, .deadline_us = d->deadline_us}};
	int r = 0;

	ret->exit_status = -1;
	ret->handshake_ms = 0;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(steps); i++)
		r = steps[i](&t, e);
	d->key = secret_free(d->key);
	d->jit = secret_free(d->jit);
	ret->total_ms = (uint32_t)((clock_boot_us() - d->started_us) / 1000);
	return r;
}
