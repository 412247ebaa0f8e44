/*
 * The socket and who is connected to it. A connection has one request being served; the next is not read before the
 * reply, so a client that floods only fills its own socket. Replies, progress and events are sent without waiting: a
 * connection that does not take them (a slow subscriber) is dropped; one that holds a lease only misses events.
 *
 * A client that goes is only marked (its fd is closed and its id is found no more); server_sweep(), from the kick, frees
 * it and ends the leases that were bound to it. So nothing that sends has to expect that clients or VMs change under it.
 */
#include "base/str.h"
#include "linux/file.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#define BACKLOG 512
#define ACCEPT_BATCH 32

struct client *client_find(struct keeper *k, uint64_t id)
{
	struct client *c;

	TAILQ_FOREACH(c, &k->clients, link)
		if (c->id == id && !c->gone)
			return c;
	return NULL;
}

/* Nearly always at the end: only who comes back, because a VM could not be woken, asked before others. */
static void stand_in_queue(struct client *c)
{
	struct client *before = TAILQ_LAST(&c->k->lessees, client_list);

	while (before && before->asked > c->asked)
		before = TAILQ_PREV(before, client_list, queue);
	if (before)
		TAILQ_INSERT_AFTER(&c->k->lessees, before, c, queue);
	else
		TAILQ_INSERT_HEAD(&c->k->lessees, c, queue);
}

void client_wait(struct client *c, enum client_wait wait)
{
	if (c->wait == CLIENT_LEASE && wait != CLIENT_LEASE)
		TAILQ_REMOVE(&c->k->lessees, c, queue);
	if (c->wait != CLIENT_LEASE && wait == CLIENT_LEASE)
		stand_in_queue(c);
	c->wait = wait;
	if (wait != CLIENT_VMS)
		c->awaits = 0;
	c->deadline = sd_event_source_disable_unref(c->deadline);
	/* Errors and hang-ups are told in either case. */
	if (c->io)
		(void)sd_event_source_set_io_events(c->io, wait == CLIENT_IDLE ? EPOLLIN : 0);
}

static void client_drop(struct client *c, const char *why)
{
	if (c->gone)
		return;
	if (why)
		log_warning("a client was dropped: %s", why);
	client_wait(c, CLIENT_IDLE);
	c->gone = true;
	c->subscribed = false;
	c->io = sd_event_source_disable_unref(c->io);
	c->fd = fd_close(c->fd);
	keeper_kick(c->k);
}

/*
 * A holder that is stopped for a while misses what happens to others, and not its lease. The end of that is not missed: then it
 * holds none any more, is dropped like anyone, and asks.
 */
static bool holds_a_lease(const struct client *c)
{
	for (size_t i = 0; i < c->k->n_vms; i++)
		if (c->k->vms[i]->bound_client == c->id && lease_runs(c->k->vms[i]))
			return true;
	return false;
}

static void client_send(struct client *c, const void *msg, int document)
{
	struct error e = ERROR_INIT;
	int r;

	if (c->gone)
		return;
	r = msg_send(c->fd, msg, &document, document >= 0 ? 1 : 0, &e);
	if (r == -EAGAIN && ((const struct msg_head *)msg)->type == KEEPER_EVENT && holds_a_lease(c))
		return;
	if (r == -EAGAIN)
		client_drop(c, c->subscribed ? "it subscribed and does not read fast enough" : "it does not read its answers");
	else if (r < 0)
		client_drop(c, r == -EPIPE || r == -ECONNRESET ? NULL : e.text);
}

void client_reply(struct client *c, const struct keeper_reply *reply, int document)
{
	struct keeper_reply out = *reply;

	if (c && !c->gone && c->request.head.seq) {
		out.head = MSG_HEAD(KEEPER_REPLY, struct keeper_reply, c->request.head.seq);
		c->request.head.seq = 0;
		client_send(c, &out, document);
		if (!c->gone)
			client_wait(c, CLIENT_IDLE);
	}
	(void)fd_close(document);
}

void client_reply_ok(struct client *c, const struct keeper_vm *v)
{
	struct keeper_reply reply = {0};

	if (v) {
		(void)str_copy(reply.name, v->row.name);
		(void)str_copy(reply.address, v->row.address);
		reply.generation = v->row.generation;
	}
	client_reply(c, &reply, -1);
}

void client_reply_error(struct client *c, const struct error *e)
{
	struct keeper_reply reply = {.code = -(e->code ? e->code : EIO)};

	(void)str_copy(reply.text, e->text);
	client_reply(c, &reply, -1);
}

void client_progress(struct client *c, const char *text)
{
	struct keeper_progress p = {.head = MSG_HEAD(KEEPER_PROGRESS, struct keeper_progress, 0)};

	if (!c || c->gone || !c->request.head.seq)
		return;
	p.head.seq = c->request.head.seq;
	(void)str_copy(p.text, text);
	client_send(c, &p, -1);
}

void keeper_progress(struct keeper_vm *v, uint64_t client, const char *text)
{
	struct client *c;

	TAILQ_FOREACH(c, &v->k->clients, link)
		if ((client && c->id == client) || (v->remover && c->id == v->remover) ||
				(v->awaiter && c->id == v->awaiter))
			client_progress(c, text);
}

void keeper_publish(struct keeper_vm *v, const struct keeper_event *event)
{
	struct client *c;

	TAILQ_FOREACH(c, &v->k->clients, link)
		if (c->subscribed)
			client_send(c, event, -1);
}

static void client_free(struct client *c)
{
	TAILQ_REMOVE(&c->k->clients, c, link);
	c->k->n_clients--;
	(void)sd_event_source_disable_unref(c->io);
	(void)sd_event_source_disable_unref(c->deadline);
	c->fd = fd_close(c->fd);
	free(c);
}

/* The leases that ended with this connection. While the keeper ends nothing ends: the next one decides. */
static void holder_lost(struct keeper *k, uint64_t id)
{
	for (size_t i = 0; i < k->n_vms && !k->stopping; i++)
		if (k->vms[i]->bound_client == id)
			keeper_note(k->vms[i], HAPPENING_HOLDER_LOST, "its holder's connection ended");
}

void server_sweep(struct keeper *k)
{
	struct client *c = TAILQ_FIRST(&k->clients);

	while (c) {
		struct client *next;

		if (c->gone)
			holder_lost(k, c->id); /* may mark others, frees none */
		next = TAILQ_NEXT(c, link);
		if (c->gone)
			client_free(c);
		c = next;
	}
}

static void serve(struct client *c, int fds[static MSG_FDS_MAX], size_t n_fds)
{
	struct request r = {.k = c->k, .client = c, .in = &c->request, .secret = -1, .document = -1};
	struct error e = ERROR_INIT;
	int code;

	if (n_fds == 1)
		r.secret = TAKE_FD(fds[0]);
	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		fds[i] = fd_close(fds[i]);
	/* Until the reply; a handler that waits for something else says so. */
	client_wait(c, CLIENT_WORK);
	code = request_serve(&r, &e);
	r.secret = fd_close(r.secret);
	if (code < 0)
		client_reply_error(c, &e);
	else if (code == 0)
		client_reply(c, &r.out, TAKE_FD(r.document));
	r.document = fd_close(r.document);
}

static int on_client(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	struct client *c = userdata;
	struct error e = ERROR_INIT;
	int fds[MSG_FDS_MAX], r;
	size_t n = 0;

	if (c->wait != CLIENT_IDLE) {
		/* Not reading: this is the end of the connection. */
		client_drop(c, NULL);
		return 0;
	}
	r = msg_recv(c->fd, keeper_request_sizes, KEEPER_TYPE_COUNT, &c->request, sizeof(c->request), fds, &n, &e);
	if (r == -EAGAIN)
		return 0;
	if (r == 0 || r == -ECONNRESET)
		client_drop(c, NULL);
	else if (r < 0)
		client_drop(c, e.text);
	else if (c->request.head.seq == 0)
		client_drop(c, "a request without a seq");
	else
		serve(c, fds, n);
	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		fds[i] = fd_close(fds[i]);
	return 0;
}

/* Says why not, as the answer to a request that was not read, and closes. */
static void refuse(int fd, int code, const char *text)
{
	struct keeper_reply reply = {.head = MSG_HEAD(KEEPER_REPLY, struct keeper_reply, 1), .code = -code};

	(void)str_copy(reply.text, text);
	(void)msg_send(fd, &reply, NULL, 0, NULL);
}

static int admit(struct keeper *k, int fd, struct error *e)
{
	unsigned uid;
	int r = msg_peer_uid(fd, &uid, NULL, e);

	if (r < 0)
		return r;
	if (uid != 0 && uid != geteuid())
		return error_set(e, EACCES, "user %u may not use this keeper: it serves user %u and root", uid,
				(unsigned)geteuid());
	if (k->n_clients >= KEEPER_CLIENTS_MAX)
		return error_set(e, EBUSY, "the keeper has %d connections, more it does not take; try again",
				KEEPER_CLIENTS_MAX);
	return 0;
}

static void client_add(struct keeper *k, int fd, struct error *e)
{
	struct client *c = calloc(1, sizeof(*c));
	int r = c ? sd_event_add_io(k->event, &c->io, fd, EPOLLIN, on_client, c) : -ENOMEM;

	if (r < 0) {
		(void)error_errno(e, -r, "cannot take a connection");
		free(c);
		(void)fd_close(fd);
		return;
	}
	c->k = k;
	c->fd = fd;
	c->id = ++k->next_client;
	TAILQ_INSERT_TAIL(&k->clients, c, link);
	k->n_clients++;
}

static int on_listener(sd_event_source *s, int listen_fd, uint32_t events, void *userdata)
{
	struct keeper *k = userdata;

	for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
		CLEANUP_FD int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct error e = ERROR_INIT;

		if (fd < 0)
			return 0;
		if (admit(k, fd, &e) < 0) {
			log_warning("a connection was refused: %s", e.text);
			refuse(fd, e.code, e.text);
			continue;
		}
		client_add(k, TAKE_FD(fd), &e);
		if (e.code)
			log_warning("%s", e.text);
	}
	return 0;
}

int server_lock(struct keeper *k, struct error *e)
{
	const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	CLEANUP_FD int dir = -1;
	struct stat st;
	int r = dir_make(k->conf.runtime_dir, 0700, e);

	if (r == 0)
		r = dir_open(AT_FDCWD, k->conf.runtime_dir, &dir, e);
	if (r < 0)
		return r;
	if (fstat(dir, &st) < 0)
		return error_errno(e, errno, "%s", k->conf.runtime_dir);
	if (st.st_uid != geteuid())
		return error_set(e, EACCES, "%s belongs to user %u, not to us (%u)", k->conf.runtime_dir,
				(unsigned)st.st_uid, (unsigned)geteuid());
	if (fchmod(dir, 0700) < 0)
		return error_errno(e, errno, "%s", k->conf.runtime_dir);
	k->lock_fd = openat(dir, "keeper.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (k->lock_fd < 0)
		return error_errno(e, errno, "%s/keeper.lock", k->conf.runtime_dir);
	if (flock(k->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? error_set(e, EBUSY, "another keeper runs already (it holds %s/keeper.lock)",
							      k->conf.runtime_dir)
					    : error_errno(e, errno, "%s/keeper.lock", k->conf.runtime_dir);
	/* This one tells others who we are (keeper_holder); the one above is the one that counts. */
	if (fcntl(k->lock_fd, F_SETLK, &whole) < 0)
		return error_errno(e, errno, "%s/keeper.lock", k->conf.runtime_dir);
	return 0;
}

static int open_socket(struct keeper *k, struct error *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	CLEANUP_FD int fd = -1;
	mode_t mask;
	int r;

	/* Socket activation: systemd's socket unit has made it. */
	if (sd_listen_fds(1) == 1 && sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_SEQPACKET, 1, NULL, 0) > 0) {
		k->listen_fd = SD_LISTEN_FDS_START;
		k->listen_passed = true;
		if (fcntl(k->listen_fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(k->listen_fd, F_SETFD, FD_CLOEXEC) < 0)
			return error_errno(e, errno, "cannot use the socket that was passed");
		return 0;
	}
	if (str_copy(a.sun_path, k->conf.keeper_socket) < 0)
		return error_set(e, ENAMETOOLONG, "%s: too long for a socket", k->conf.keeper_socket);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_errno(e, errno, "cannot make a socket");
	/* We hold the lock, so whatever lies there is a dead keeper's. */
	(void)unlink(k->conf.keeper_socket);
	mask = umask(0177);
	r = bind(fd, (struct sockaddr *)&a, sizeof(a));
	(void)umask(mask);
	if (r < 0 || listen(fd, BACKLOG) < 0)
		return error_errno(e, errno, "cannot listen at %s", k->conf.keeper_socket);
	k->listen_fd = TAKE_FD(fd);
	return 0;
}

int server_open(struct keeper *k, struct error *e)
{
	int r = request_rules_check(e);

	if (r == 0)
		r = open_socket(k, e);
	if (r < 0)
		return r;
	r = sd_event_add_io(k->event, &k->listener, k->listen_fd, EPOLLIN, on_listener, k);
	return r < 0 ? error_errno(e, -r, "cannot watch the socket") : 0;
}

void server_close(struct keeper *k)
{
	if (k->listen_fd < 0)
		return;
	k->listener = sd_event_source_disable_unref(k->listener);
	/* A socket that systemd made stays, so that the next command starts the next keeper. */
	if (!k->listen_passed)
		(void)unlink(k->conf.keeper_socket);
	k->listen_fd = fd_close(k->listen_fd);
}

void server_free(struct keeper *k)
{
	struct client *c;

	server_close(k);
	k->lock_fd = fd_close(k->lock_fd);
	while ((c = TAILQ_FIRST(&k->clients)))
		client_free(c);
}
