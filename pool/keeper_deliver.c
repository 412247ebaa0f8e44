/*
 * DELIVER: the one moment in which a secret leaves the host. In this order, each with a deadline of its own:
 *
 *   1. the lease is open, its VM is LEASED, nothing was delivered in this life, isolation is on
 *   2. boxery-vm says that this life's network filter is in force in the kernel, asked just now
 *   3. a TCP connection to the guest's sshd is made here, because boxery-deliver has no network
 *   4. DELIVERED is committed; from here on every failure is a doubt and ends in a reset
 *   5. boxery-deliver gets the secret, the key, the pinned host key and the connection, and says how it ended
 *   6. an event row "delivered" records that the guest has it: a keeper that is killed between 4 and 6 leaves a DELIVERED
 *      VM without that row, and the next keeper resets it, since nobody can say whether a runner is there
 *
 * A failure before 4 leaves the lease as it was; its holder may try again or release it.
 */
#include "base/str.h"
#include "linux/log.h"
#include "linux/spawn.h"
#include "pool/keeper.h"
#include "pool/killpoints.h"
#include "ssh/proto.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct delivery {
	struct keeper *k;
	struct keeper_vm *vm; /* its delivery is this one as long as this exists */
	uint64_t client, generation;
	bool committed;
	int secret, guest, result; /* memfd, TCP socket, socket of the child */
	struct op *filter;
	sd_event_source *connecting, *again, *deadline, *io;
	struct loop_child *child;
	bool has_result;
	struct deliver_result said;
};

static void delivery_free(struct delivery *d)
{
	if (d->vm && d->vm->delivery == d)
		d->vm->delivery = NULL;
	d->filter = op_cancel(d->filter);
	(void)sd_event_source_disable_unref(d->connecting);
	(void)sd_event_source_disable_unref(d->again);
	(void)sd_event_source_disable_unref(d->deadline);
	(void)sd_event_source_disable_unref(d->io);
	loop_child_kill(d->child);
	d->secret = fd_close(d->secret);
	d->guest = fd_close(d->guest);
	d->result = fd_close(d->result);
	d->k->deliveries--;
	keeper_kick(d->k);
	free(d);
}

/* The end of one that did not work. Before the commit only the client is told. */
static void delivery_failed(struct delivery *d, const struct error *e)
{
	struct keeper_vm *v = d->vm;
	struct client *c = client_find(d->k, d->client);
	bool committed = d->committed;

	log_vm(LOG_WARNING, v->row.name, v->row.lease, "delivery failed: %s", e->text);
	delivery_free(d);
	if (committed) {
		struct store_detail detail = {.step = "deliver", .reason = e->text, .outcome = "delivery-failed"};
		struct error commit = ERROR_INIT;

		(void)keeper_apply(v, v->row.generation, HAPPENING_DOUBT, &detail, &commit);
	} else {
		keeper_record(v, "deliver", e->text, 0);
	}
	client_reply_error(c, e);
}

void delivery_end(struct keeper_vm *v, const char *reason)
{
	struct delivery *d = v->delivery;
	struct client *c;
	struct error e = ERROR_INIT;

	if (!d)
		return;
	c = client_find(d->k, d->client);
	(void)error_set(&e, ECANCELED, "the delivery to %s was given up: %s", v->row.name, reason);
	delivery_free(d);
	client_reply_error(c, &e);
}

static void delivery_done(struct delivery *d)
{
	struct keeper_vm *v = d->vm;
	struct client *c = client_find(d->k, d->client);

	KILL_POINT("deliver-result");
	keeper_record(v, "delivered", d->said.text, (uint64_t)d->said.total_ms * 1000);
	KILL_POINT("deliver-recorded");
	log_vm(LOG_INFO, v->row.name, v->row.lease, "has its secret (%u ms, handshake %u ms)", d->said.total_ms,
			d->said.handshake_ms);
	delivery_free(d);
	client_reply_ok(c, v);
}

static const size_t result_sizes[DELIVER_TYPE_COUNT] = {[DELIVER_RESULT] = sizeof(struct deliver_result)};

/* Takes the one message when it is there. */
static int read_result(struct delivery *d, struct error *e)
{
	struct deliver_result said;
	int fds[MSG_FDS_MAX];
	int r = msg_recv(d->result, result_sizes, DELIVER_TYPE_COUNT, &said, sizeof(said), fds, NULL, e);

	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		fds[i] = fd_close(fds[i]);
	if (r == 1 && (d->has_result || !str_is_terminated(said.text, sizeof(said.text))))
		return error_set(e, EPROTO, "it spoke twice, or a text has no end");
	if (r == 1) {
		d->has_result = true;
		d->said = said;
		str_show_n(d->said.text, sizeof(d->said.text), said.text, strlen(said.text));
	}
	return r;
}

static int on_result(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	struct delivery *d = userdata;
	struct error e = ERROR_INIT;
	int r = read_result(d, &e);

	if (r == -EAGAIN)
		return 0;
	if (r < 0 && r != -ECONNRESET) {
		(void)error_wrap(&e, "boxery-deliver said something that cannot be understood");
		delivery_failed(d, &e);
	} else if (r <= 0) {
		d->io = sd_event_source_disable_unref(d->io); /* its end says the rest */
	}
	return 0;
}

static void on_deliver_child(void *userdata, int status, bool timed_out)
{
	struct delivery *d = userdata;
	struct error e = ERROR_INIT;

	d->child = NULL;
	if (d->io && !d->has_result)
		(void)read_result(d, &e);
	error_clear(&e);
	if (d->has_result && d->said.code == 0) {
		delivery_done(d);
		return;
	}
	if (d->has_result)
		(void)error_set(&e, d->said.code < 0 && d->said.code > -4096 ? -d->said.code : EIO, "%s",
				d->said.text[0] ? d->said.text : "boxery-deliver failed and did not say why");
	else if (timed_out)
		(void)error_set(&e, ETIMEDOUT, "boxery-deliver had no result within %d s and was killed",
				KEEPER_DELIVER_TIMEOUT_MS / 1000);
	else if (WIFSIGNALED(status))
		(void)error_set(&e, EIO, "boxery-deliver died by signal %d without a result", WTERMSIG(status));
	else
		(void)error_set(&e, EIO, "boxery-deliver ended with status %d without a result", WEXITSTATUS(status));
	delivery_failed(d, &e);
}

static int spawn_deliver(struct delivery *d, struct error *e)
{
	struct deliver_request request = {.head = MSG_HEAD(DELIVER_REQUEST, struct deliver_request, 1),
			.timeout_ms = KEEPER_DELIVER_TIMEOUT_MS};
	const char *const argv[] = {"boxery-deliver", NULL};
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	CLEANUP_FD int theirs = -1;
	char path[PATH_MAX];
	int pair[2] = {-1, -1}, fds[4], r = program_path("boxery-deliver", path, sizeof(path), e);

	if (r == 0)
		r = str_copy(request.host_key, d->vm->row.host_key);
	if (r == 0)
		r = msg_pair(pair, e);
	if (r < 0)
		return r;
	d->result = pair[0];
	theirs = pair[1];
	if (fcntl(d->result, F_SETFL, fcntl(d->result, F_GETFL) | O_NONBLOCK) < 0 ||
			fcntl(d->guest, F_SETFL, fcntl(d->guest, F_GETFL) & ~O_NONBLOCK) < 0)
		return error_errno(e, errno, "cannot prepare a socket");
	fds[0] = theirs;
	fds[1] = d->secret;
	fds[2] = d->k->delivery_key;
	fds[3] = d->guest;
	o.program = path;
	o.argv = argv;
	o.fds = fds;
	o.n_fds = ARRAY_SIZE(fds);
	r = spawn(&o, &c, e);
	if (r == 0)
		r = msg_send(d->result, &request, NULL, 0, e);
	if (r == 0) {
		r = sd_event_add_io(d->k->event, &d->io, d->result, EPOLLIN, on_result, d);
		if (r < 0)
			(void)error_errno(e, -r, "cannot watch boxery-deliver");
	}
	if (r >= 0)
		r = loop_child_add(d->k->event, &c, KEEPER_DELIVER_TIMEOUT_MS + KEEPER_DELIVER_GRACE_MS, on_deliver_child, d,
				&d->child, e);
	/* From here on only the child has them. */
	d->secret = fd_close(d->secret);
	d->guest = fd_close(d->guest);
	return r < 0 ? r : 0;
}

static void connected(struct delivery *d)
{
	struct keeper_vm *v = d->vm;
	struct error e = ERROR_INIT;
	int r;

	d->connecting = sd_event_source_disable_unref(d->connecting);
	d->deadline = sd_event_source_disable_unref(d->deadline);
	KILL_POINT("connected");
	r = keeper_apply(v, d->generation, HAPPENING_DELIVER, NULL, &e);
	if (r == 0)
		(void)error_set(&e, EALREADY, "%s is %s, not LEASED any more", v->row.name, state_to_string(v->row.state));
	if (r > 0) {
		d->committed = true;
		r = spawn_deliver(d, &e) < 0 ? 0 : 1;
	}
	if (r <= 0) {
		delivery_failed(d, &e);
		return;
	}
	KILL_POINT("deliver-spawned");
	client_progress(client_find(d->k, d->client), "connected; handing over the secret");
}

static int try_to_connect(struct delivery *d, struct error *e);

static int on_again(sd_event_source *s, uint64_t us, void *userdata)
{
	struct delivery *d = userdata;
	struct error e = ERROR_INIT;

	d->again = sd_event_source_disable_unref(d->again);
	if (try_to_connect(d, &e) < 0)
		delivery_failed(d, &e);
	return 0;
}

/*
 * "No route to host" is the kernel's word that nobody has answered to the guest's address for three seconds. They may have begun
 * while the guest was asleep, with what an earlier connection had still to say, and say nothing of a guest that has just been
 * woken. So it is tried again as long as a connection may take.
 */
static int not_connected(struct delivery *d, int code, struct error *e)
{
	d->connecting = sd_event_source_disable_unref(d->connecting);
	d->guest = fd_close(d->guest);
	if (code == EHOSTUNREACH)
		return loop_timer(d->k->event, &d->again, KEEPER_CONNECT_AGAIN_MS, on_again, d, e);
	return error_errno(e, code, "cannot connect to %s at %s port %d", d->vm->row.name, d->vm->row.address, KEEPER_DELIVER_PORT);
}

static int on_connected(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	struct delivery *d = userdata;
	struct error e = ERROR_INIT;
	socklen_t len = sizeof(int);
	int code = 0;

	if (getsockopt(d->guest, SOL_SOCKET, SO_ERROR, &code, &len) < 0)
		code = errno;
	if (code == 0)
		connected(d);
	else if (not_connected(d, code, &e) < 0)
		delivery_failed(d, &e);
	return 0;
}

static int on_connect_deadline(sd_event_source *s, uint64_t us, void *userdata)
{
	struct delivery *d = userdata;
	struct error e = ERROR_INIT;

	(void)error_set(&e, ETIMEDOUT, "%s does not take a connection at %s port %d within %d s", d->vm->row.name,
			d->vm->row.address, KEEPER_DELIVER_PORT, KEEPER_CONNECT_TIMEOUT_MS / 1000);
	delivery_failed(d, &e);
	return 0;
}

static int try_to_connect(struct delivery *d, struct error *e)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(KEEPER_DELIVER_PORT)};
	int r;

	if (inet_pton(AF_INET, d->vm->row.address, &a.sin_addr) != 1)
		return error_set(e, EIO, "'%s' is no address", d->vm->row.address);
	d->guest = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (d->guest < 0)
		return error_errno(e, errno, "cannot make a socket");
	if (connect(d->guest, (struct sockaddr *)&a, sizeof(a)) < 0 && errno != EINPROGRESS)
		return not_connected(d, errno, e);
	/* Also when it is connected already: then the loop says so at once. */
	r = sd_event_add_io(d->k->event, &d->connecting, d->guest, EPOLLOUT, on_connected, d);
	return r < 0 ? error_errno(e, -r, "cannot wait for a connection") : 0;
}

static int begin_connect(struct delivery *d, struct error *e)
{
	int r = loop_timer(d->k->event, &d->deadline, KEEPER_CONNECT_TIMEOUT_MS, on_connect_deadline, d, e);

	return r < 0 ? r : try_to_connect(d, e);
}

static void filter_checked(struct op *op, const struct error *cause)
{
	struct keeper_vm *v = keeper_find(op->k, op->request.name);
	struct delivery *d = v ? v->delivery : NULL;
	struct error e = *cause;

	if (!d || d->filter != op)
		return;
	d->filter = NULL;
	if (e.code == ENOTCONN)
		e.code = EPERM; /* to our client that would be the end of this connection */
	if (e.code)
		(void)error_wrap(&e, "nothing is delivered to %s: its network filter is not in force", v->row.name);
	KILL_POINT("filter-checked");
	if (e.code || begin_connect(d, &e) < 0)
		delivery_failed(d, &e);
}

static int check_lease(struct request *r, struct keeper_vm **ret, struct error *e)
{
	struct lease_row lease;
	struct keeper_vm *v;
	int code = store_lease_get(r->k->store, r->in->lease, &lease, e);

	if (code < 0)
		return code;
	v = keeper_find(r->k, lease.vm);
	if (!lease.open || !v || !str_equal(v->row.lease, lease.id) || v->row.generation != lease.generation ||
			v->row.state == STATE_RESETTING)
		return error_set(e, ESTALE, "lease %s has ended; nothing was delivered", lease.id);
	if (v->row.state != STATE_LEASED || v->delivery)
		return error_set(e, EALREADY, "lease %s: a life gets one secret, and this one has had its delivery", lease.id);
	if (v->trouble)
		return error_set(e, ESTALE, "lease %s: nothing is delivered to %s, which is about to be reset: %s", lease.id, lease.vm,
				v->trouble);
	if (vm_sleeps(&v->row))
		return error_set(e, EBUSY, "lease %s: %s is not awake yet, and its holder has not been answered", lease.id, lease.vm);
	if (!r->k->conf.net_isolation)
		return error_set(e, EPERM, "BOXERY_NET_ISOLATION is off: nothing secret is delivered to a VM that no filter "
				"surrounds");
	*ret = v;
	return 0;
}

int serve_deliver(struct request *r, struct error *e)
{
	struct keeper_vm *v = NULL;
	struct delivery *d;
	int code = check_lease(r, &v, e);

	if (code < 0)
		return code;
	d = calloc(1, sizeof(*d));
	if (!d)
		return error_set(e, ENOMEM, "no memory for a delivery");
	*d = (struct delivery){.k = r->k, .vm = v, .client = r->client->id, .generation = v->row.generation,
			.secret = TAKE_FD(r->secret), .guest = -1, .result = -1};
	r->k->deliveries++;
	v->delivery = d;
	d->filter = op_new(r->k, VM_FILTER, v, 0, KEEPER_ASK_TIMEOUT_MS, filter_checked);
	if (!d->filter) {
		delivery_free(d);
		return error_set(e, ENOMEM, "no memory for a delivery");
	}
	op_queue(d->filter, NULL);
	return REPLY_LATER;
}
