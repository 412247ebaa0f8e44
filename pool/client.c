/*
 * The client's end of the keeper's socket.
 *
 * A call is one request and its one reply; what else arrives meanwhile is progress (shown), an event (dropped: who wants
 * events reads with keeper_receive) or the late reply of a call that was given up (dropped, its seq is another).
 * The keeper's death shows as -ENOTCONN everywhere, so that callers have one thing to test for.
 */
#include "pool/client.h"
#include "base/str.h"
#include "linux/clock.h"
#include "pool/client_start.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

struct keeper_client {
	int fd;
	uint32_t seq;
	bool loops; /* O_NONBLOCK has been set */
};

struct keeper_client *keeper_client_free(struct keeper_client *c)
{
	if (c) {
		c->fd = fd_close(c->fd);
		free(c);
	}
	return NULL;
}

int keeper_client_try(const struct hostconf *conf, int *ret_fd, struct error *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unsigned uid;
	int r;

	if (fd < 0)
		return error_errno(e, errno, "cannot make a socket");
	if (str_copy(a.sun_path, conf->keeper_socket) < 0)
		return error_set(e, ENAMETOOLONG, "%s: too long for a socket", conf->keeper_socket);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return error_set(e, ENOTCONN, "no keeper answers at %s", conf->keeper_socket);
		return error_errno(e, errno, "cannot connect to the keeper at %s", conf->keeper_socket);
	}
	/* A secret may go over this socket: make sure that it is not somebody else who listens there. */
	r = msg_peer_uid(fd, &uid, NULL, e);
	if (r < 0)
		return r;
	if (uid != 0 && uid != geteuid())
		return error_set(e, EACCES, "%s: the keeper there runs as user %u, neither as you nor as root",
				conf->keeper_socket, uid);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int keeper_connect(const struct hostconf *conf, bool start, struct keeper_client **ret, struct error *e)
{
	CLEANUP_FD int fd = -1;
	struct keeper_client *c;
	int r = keeper_client_try(conf, &fd, e);

	if (r == -ENOTCONN && start) {
		error_clear(e);
		r = keeper_client_start(conf, &fd, e);
	}
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return error_errno(e, ENOMEM, "cannot connect to the keeper");
	c->fd = TAKE_FD(fd);
	*ret = c;
	return 0;
}

void keeper_request_init(struct keeper_request *r, enum keeper_type type)
{
	memset(r, 0, sizeof(*r));
	r->head = MSG_HEAD((uint16_t)type, struct keeper_request, 0);
}

static int gone(struct error *e)
{
	return error_set(e, ENOTCONN, "the keeper has gone away");
}

static int client_send(struct keeper_client *c, struct keeper_request *r, int secret_fd, struct error *e)
{
	int code;

	/* 0 marks events, so no request has it. */
	if (++c->seq == 0)
		c->seq = 1;
	r->head.seq = c->seq;
	code = msg_send(c->fd, r, &secret_fd, secret_fd >= 0 ? 1 : 0, e);
	if (code == -EPIPE || code == -ECONNRESET || code == -ENOTCONN)
		return gone(e);
	return code;
}

/* The one fd that an answer may carry is a document. */
static int take_document(int fds[static MSG_FDS_MAX], size_t n, char **ret, struct error *e)
{
	char *text = NULL;
	int r = n > 0 ? msg_document_read(fds[0], &text, NULL, e) : 0;

	for (size_t i = 0; i < n; i++)
		fds[i] = fd_close(fds[i]);
	if (r < 0)
		return error_wrap(e, "the keeper's answer");
	*ret = text;
	return 0;
}

union answer {
	struct msg_head head;
	struct keeper_progress progress;
	struct keeper_reply reply;
	struct keeper_event event;
};

static int check_answer(const union answer *a, struct error *e)
{
	bool ok = true;

	if (a->head.type == KEEPER_PROGRESS)
		ok = str_is_terminated(a->progress.text, sizeof(a->progress.text));
	else if (a->head.type == KEEPER_EVENT)
		ok = str_is_terminated(a->event.name, sizeof(a->event.name)) &&
				str_is_terminated(a->event.lease, sizeof(a->event.lease)) &&
				str_is_terminated(a->event.text, sizeof(a->event.text));
	else
		ok = str_is_terminated(a->reply.name, sizeof(a->reply.name)) &&
				str_is_terminated(a->reply.lease, sizeof(a->reply.lease)) &&
				str_is_terminated(a->reply.runner_name, sizeof(a->reply.runner_name)) &&
				str_is_terminated(a->reply.address, sizeof(a->reply.address)) &&
				str_is_terminated(a->reply.text, sizeof(a->reply.text)) &&
				str_is_terminated(a->reply.host_key, sizeof(a->reply.host_key));
	return ok ? 0 : error_set(e, EBADMSG, "the keeper's answer has a text without an end");
}

static int received(int r, const union answer *a, struct error *e)
{
	if (r == 0 || r == -ECONNRESET || r == -EPIPE)
		return gone(e);
	return r < 0 ? r : check_answer(a, e);
}

/*
 * A keeper that refuses a connection says why and closes, perhaps before it was asked. Then sending fails, or the first
 * receive reports the close; the sentence is still there.
 */
static int last_words(struct keeper_client *c, struct error *e)
{
	union answer a;
	int fds[MSG_FDS_MAX];

	for (unsigned i = 0; i < 2; i++) {
		int r = msg_recv_timeout(c->fd, 0, keeper_answer_sizes, KEEPER_TYPE_COUNT, &a, sizeof(a), fds, NULL, NULL);

		for (size_t n = 0; n < MSG_FDS_MAX; n++)
			fds[n] = fd_close(fds[n]);
		if (r == 1 && a.head.type == KEEPER_REPLY && a.reply.code < 0 && check_answer(&a, NULL) == 0)
			return error_set(e, -a.reply.code, "%s", a.reply.text);
	}
	return gone(e);
}

int keeper_call(struct keeper_client *c, struct keeper_request *r, int secret_fd, uint64_t timeout_ms,
		keeper_progress_cb progress, void *userdata, struct keeper_reply *ret, char **ret_document,
		struct error *e)
{
	const uint64_t begin = clock_boot_us();
	int code = client_send(c, r, secret_fd, e);

	while (code >= 0) {
		CLEANUP_FREE char *document = NULL;
		uint64_t spent = (clock_boot_us() - begin) / 1000;
		union answer a;
		int fds[MSG_FDS_MAX];
		size_t n = 0;

		code = msg_recv_timeout(c->fd, spent < timeout_ms ? timeout_ms - spent : 0, keeper_answer_sizes,
				KEEPER_TYPE_COUNT, &a, sizeof(a), fds, &n, e);
		if (code == -ETIMEDOUT)
			return error_set(e, ETIMEDOUT, "the keeper has not answered within %llu s",
					(unsigned long long)(timeout_ms / 1000));
		code = received(code, &a, e);
		if (code < 0)
			break;
		code = take_document(fds, n, &document, e);
		if (code < 0 || a.head.seq != r->head.seq)
			continue;
		if (a.head.type == KEEPER_PROGRESS && progress)
			progress(userdata, a.progress.text);
		if (a.head.type != KEEPER_REPLY)
			continue;
		if (a.reply.code < 0)
			return error_set(e, -a.reply.code, "%s", a.reply.text);
		if (ret)
			*ret = a.reply;
		if (ret_document)
			*ret_document = TAKE_PTR(document);
		return 0;
	}
	return code == -ENOTCONN ? last_words(c, e) : code;
}

int keeper_client_fd(const struct keeper_client *c)
{
	return c->fd;
}

static int unblock(struct keeper_client *c, struct error *e)
{
	if (c->loops)
		return 0;
	if (fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK) < 0)
		return error_errno(e, errno, "cannot prepare the connection to the keeper");
	c->loops = true;
	return 0;
}

int keeper_send(struct keeper_client *c, struct keeper_request *r, int secret_fd, uint32_t *ret_seq, struct error *e)
{
	int code = unblock(c, e);

	if (code == 0)
		code = client_send(c, r, secret_fd, e);
	if (code == 0 && ret_seq)
		*ret_seq = r->head.seq;
	return code;
}

int keeper_receive(struct keeper_client *c, struct keeper_answer *ret, struct error *e)
{
	struct keeper_answer out = {0};
	int fds[MSG_FDS_MAX];
	union answer a;
	size_t n = 0;
	int code = unblock(c, e);

	if (code < 0)
		return code;
	code = received(msg_recv(c->fd, keeper_answer_sizes, KEEPER_TYPE_COUNT, &a, sizeof(a), fds, &n, e), &a, e);
	if (code < 0)
		return code;
	code = take_document(fds, n, &out.document, e);
	if (code < 0)
		return code;
	out.type = (enum keeper_type)a.head.type;
	out.seq = a.head.seq;
	if (out.type == KEEPER_PROGRESS)
		out.progress = a.progress;
	else if (out.type == KEEPER_EVENT)
		out.event = a.event;
	else
		out.reply = a.reply;
	*ret = out;
	return 1;
}
