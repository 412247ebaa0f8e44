#include "manager/control.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/log.h"
#include "manager/proto.h"
#include "manager/service.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS_MAX 16
#define CLIENT_TIMEOUT_MS 10000

struct client {
	struct client *next;
	struct control *control;
	int fd;
	sd_event_source *io, *deadline;
};

struct control {
	struct service *service;
	char path[108];
	int fd;
	sd_event_source *io;
	struct client *clients;
	unsigned n_clients;
};

static void client_end(struct client *c)
{
	for (struct client **at = &c->control->clients; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			c->control->n_clients--;
			break;
		}
	(void)sd_event_source_disable_unref(c->io);
	(void)sd_event_source_disable_unref(c->deadline);
	(void)fd_close(c->fd);
	free(c);
}

static int on_client_deadline(sd_event_source *source, uint64_t us, void *userdata)
{
	client_end(userdata);
	return 0;
}

static int send_document(json_t *document, int *ret_fd, struct error *e)
{
	CLEANUP_FREE char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;

	json_decref(document);
	return text ? msg_document(text, strlen(text), ret_fd, e) : error_set(e, ENOMEM, "no memory for an answer");
}

static int act(struct service *s, const struct control_request *q, int *ret_fd, struct error *e)
{
	switch ((enum control_type)q->head.type) {
	case CONTROL_STATUS:
		return send_document(service_status(s), ret_fd, e);
	case CONTROL_EXPLAIN:
		return send_document(service_explain(s), ret_fd, e);
	case CONTROL_PAUSE:
		return service_pause(s, q->scope, PAUSE_LEASES, e);
	case CONTROL_DRAIN:
		return service_pause(s, q->scope, PAUSE_DRAIN, e);
	case CONTROL_RESUME:
		return service_pause(s, q->scope, PAUSE_NONE, e);
	case CONTROL_RELOAD:
		return service_reload(s, e);
	case CONTROL_REPLY:
	case CONTROL_TYPE_COUNT:
		break;
	}
	return error_set(e, EOPNOTSUPP, "no such request");
}

static int on_client(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	static const size_t sizes[CONTROL_TYPE_COUNT] = {[CONTROL_STATUS] = sizeof(struct control_request),
		[CONTROL_EXPLAIN] = sizeof(struct control_request), [CONTROL_PAUSE] = sizeof(struct control_request),
		[CONTROL_DRAIN] = sizeof(struct control_request), [CONTROL_RESUME] = sizeof(struct control_request),
		[CONTROL_RELOAD] = sizeof(struct control_request)};
	struct client *c = userdata;
	struct control_request q;
	CLEANUP_FD int document = -1;
	struct error e = ERROR_INIT;
	int fds[MSG_FDS_MAX], r;
	size_t n_fds = 0;

	r = msg_recv(c->fd, sizes, ARRAY_SIZE(sizes), &q, sizeof(q), fds, &n_fds, NULL);
	if (r == -EAGAIN)
		return 0;
	for (size_t i = 0; r > 0 && i < n_fds; i++)
		(void)fd_close(fds[i]);
	if (r > 0 && str_is_terminated(q.scope, sizeof(q.scope))) {
		struct control_reply reply = {.head = MSG_HEAD(CONTROL_REPLY, struct control_reply, q.head.seq)};

		reply.code = act(c->control->service, &q, &document, &e);
		str_show_n(reply.text, sizeof(reply.text), e.text, strlen(e.text));
		(void)msg_send(c->fd, &reply, &document, document >= 0 ? 1 : 0, NULL);
	}
	client_end(c);
	return 0;
}

static bool is_welcome(int fd)
{
	unsigned uid = 0;

	return msg_peer_uid(fd, &uid, NULL, NULL) == 0 && (uid == 0 || uid == geteuid());
}

static int on_connect(sd_event_source *source, int listen_fd, uint32_t events, void *userdata)
{
	struct control *c = userdata;
	CLEANUP_FD int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *client;

	if (fd < 0 || c->n_clients == CLIENTS_MAX || !is_welcome(fd))
		return 0;
	client = calloc(1, sizeof(*client));
	if (!client)
		return 0;
	client->control = c;
	client->fd = TAKE_FD(fd);
	client->next = c->clients;
	c->clients = client;
	c->n_clients++;
	if (sd_event_add_io(c->service->ev, &client->io, client->fd, EPOLLIN, on_client, client) < 0 ||
		loop_timer(c->service->ev, &client->deadline, CLIENT_TIMEOUT_MS, on_client_deadline, client, NULL) < 0)
		client_end(client);
	return 0;
}

int control_new(struct service *s, const char *runtime_dir, struct control **ret, struct error *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct control *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_errno(e, ENOMEM, "cannot start");
	c->service = s;
	c->fd = -1;
	if (str_format(c->path, "%s/" CONTROL_SOCKET, runtime_dir) < 0) {
		free(c);
		return error_set(e, ENAMETOOLONG, "%s: too long for a socket", runtime_dir);
	}
	(void)str_copy(a.sun_path, c->path);
	(void)unlink(c->path);
	c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* The folder is ours alone; the mode is for whoever opens it up. */
	if (c->fd < 0 || fchmod(c->fd, 0600) < 0 || bind(c->fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ||
		listen(c->fd, CLIENTS_MAX) < 0) {
		r = error_errno(e, errno, "cannot listen at %s", c->path);
		(void)control_free(c);
		return r;
	}
	r = sd_event_add_io(s->ev, &c->io, c->fd, EPOLLIN, on_connect, c);
	if (r < 0) {
		(void)control_free(c);
		return error_errno(e, -r, "cannot watch a socket");
	}
	*ret = c;
	return 0;
}

struct control *control_free(struct control *c)
{
	if (!c)
		return NULL;
	while (c->clients)
		client_end(c->clients);
	(void)sd_event_source_disable_unref(c->io);
	if (c->fd >= 0)
		(void)unlink(c->path);
	(void)fd_close(c->fd);
	free(c);
	return NULL;
}
