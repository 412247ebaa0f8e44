/* One question to the runner service over its socket (manager/proto.h). */
#include "base/str.h"
#include "cli/host.h"
#include "manager/proto.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int runners_connect(int *ret_fd, struct error *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct hostconf conf;

	if (hostconf_load(&conf, e) < 0)
		return -EINVAL;
	if (str_format(a.sun_path, "%s/" CONTROL_SOCKET, conf.runtime_dir) < 0)
		return error_set(e, ENAMETOOLONG, "%s: too long for a socket", conf.runtime_dir);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return error_set(e, ENOTCONN, "no runner service runs here (%s); start it with: boxery-host runners", a.sun_path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int take_document(int fd, json_t **ret, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	json_t *document;
	size_t len = 0;
	int r = msg_document_read(fd, &text, &len, e);

	if (r < 0)
		return r;
	document = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (!document)
		return error_set(e, EPROTO, "the runner service's answer is not JSON");
	*ret = document;
	return 0;
}

int cli_runners_call(int type, const char *scope, json_t **ret_document, struct error *e)
{
	static const size_t sizes[CONTROL_TYPE_COUNT] = {[CONTROL_REPLY] = sizeof(struct control_reply)};
	struct control_request q = {.head = MSG_HEAD((uint16_t)type, struct control_request, 1)};
	struct control_reply reply;
	CLEANUP_FD int fd = -1;
	int fds[MSG_FDS_MAX], r;
	size_t n_fds = 0;

	if (scope && str_copy(q.scope, scope) < 0)
		return error_set(e, EINVAL, "'%s' is neither OWNER/REPO nor an organization", scope);
	r = runners_connect(&fd, e);
	if (r == 0)
		r = msg_send(fd, &q, NULL, 0, e);
	if (r < 0)
		return r;
	r = msg_recv_timeout(fd, CONTROL_TIMEOUT_MS, sizes, ARRAY_SIZE(sizes), &reply, sizeof(reply), fds, &n_fds, e);
	if (r == 0)
		return error_set(e, ECONNRESET, "the runner service ended without an answer");
	if (r < 0)
		return r;
	if (!str_is_terminated(reply.text, sizeof(reply.text)))
		r = error_set(e, EPROTO, "the runner service sent an unterminated text");
	else if (reply.code < 0)
		r = error_set(e, -reply.code, "%s", reply.text);
	else
		r = ret_document ? take_document(fds[0], ret_document, e) : 0;
	for (size_t i = 0; i < n_fds; i++)
		(void)fd_close(fds[i]);
	return r < 0 ? r : 0;
}
