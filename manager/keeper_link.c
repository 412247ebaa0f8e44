#include "manager/keeper_link.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/clock.h"
#include "manager/backoff.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#define RECONNECT_MIN_MS 200
#define RECONNECT_MAX_MS 10000
#define STARTER_TIMEOUT_MS 20000
/* A keeper that has not answered by then hangs, and a new connection tells. */
#define QUICK_TIMEOUT_MS 60000
#define DELIVER_TIMEOUT_MS 180000 /* above the keeper's own deadline for a delivery */
#define MESSAGES_PER_TURN 64	  /* then the loop looks at other things */

struct pending {
	struct pending *next;
	uint32_t seq;
	keeper_cb cb; /* NULL: nobody cares (SUBSCRIBE) */
	void *userdata;
	uint64_t number, deadline_ms;
};

struct lane { /* one connection */
	struct lane *next;
	struct keeper_link *link;
	struct keeper_client *client;
	sd_event_source *io, *deadline;
	struct pending *pending; /* in the order of asking, which is the order of the answers */
};

struct keeper_link {
	sd_event *ev;
	const struct hostconf *conf;
	const struct keeper_link_ops *ops;
	void *userdata;
	const char *const *start_argv;
	struct lane *main;
	struct lane *deliveries;
	sd_event_source *reconnect;
	struct loop_child *starter;
	struct backoff backoff;
};

static uint64_t now_ms(void)
{
	return clock_boot_us() / 1000;
}

/* Out of the list, closed, its requests answered. The lane is gone when the first callback runs. */
static void lane_end(struct lane *lane, int code, const char *why)
{
	struct keeper_link *l = lane->link;
	struct pending *p = TAKE_PTR(lane->pending);

	if (l->main == lane)
		l->main = NULL;
	for (struct lane **at = &l->deliveries; *at; at = &(*at)->next)
		if (*at == lane) {
			*at = lane->next;
			break;
		}
	(void)sd_event_source_disable_unref(lane->io);
	(void)sd_event_source_disable_unref(lane->deadline);
	(void)keeper_client_free(lane->client);
	free(lane);
	while (p) {
		struct pending *next = p->next;

		if (p->cb)
			p->cb(p->userdata, p->number,
				&(struct keeper_link_answer){.code = code, .lost = true, .text = why});
		free(p);
		p = next;
	}
}

static int on_reconnect(sd_event_source *s, uint64_t us, void *userdata);

static void reconnect_later(struct keeper_link *l)
{
	/* Without memory for a timer there is nothing left to do but to end, and to be started again. */
	if (loop_timer(l->ev, &l->reconnect, backoff_next(&l->backoff), on_reconnect, l, NULL) < 0)
		(void)sd_event_exit(l->ev, EXIT_STATUS_FAILED);
}

static void lane_lost(struct lane *lane, const char *why)
{
	struct keeper_link *l = lane->link;
	bool is_main = l->main == lane;
	char text[ERROR_TEXT_MAX];

	str_show_n(text, sizeof(text), why, strlen(why));
	lane_end(lane, -ENOTCONN, text);
	if (is_main) {
		l->ops->down(l->userdata, text);
		reconnect_later(l);
	}
}

static int on_deadline(sd_event_source *s, uint64_t us, void *userdata)
{
	lane_lost(userdata, "the keeper does not answer");
	return 0;
}

/* Watches the oldest request; the later ones wait behind it anyway. */
static int lane_watch(struct lane *lane, struct error *e)
{
	uint64_t now = now_ms(), at;

	if (!lane->pending) {
		lane->deadline = sd_event_source_disable_unref(lane->deadline);
		return 0;
	}
	at = lane->pending->deadline_ms;
	return loop_timer(lane->link->ev, &lane->deadline, at > now ? at - now : 0, on_deadline, lane, e);
}

/* False when the lane is gone. */
static bool take_reply(struct lane *lane, const struct keeper_answer *a)
{
	struct keeper_link *l = lane->link;
	struct pending *p = lane->pending;
	struct error e = ERROR_INIT;
	char text[KEEPER_TEXT_MAX];
	struct keeper_link_answer answer = {
		.code = a->reply.code <= 0 ? a->reply.code : -EBADMSG,
		.text = text,
		.reply = &a->reply,
		.document = a->document,
	};
	keeper_cb cb;
	bool alive = true;

	if (!p || p->seq != a->seq) {
		lane_lost(lane, "the keeper sent an answer that fits no question");
		return false;
	}
	str_show_n(text, sizeof(text), a->reply.text, strlen(a->reply.text));
	lane->pending = p->next;
	if (lane_watch(lane, &e) < 0 || (lane != l->main && !lane->pending)) {
		/* A delivery's connection has done its work. */
		if (lane == l->main)
			lane_lost(lane, e.text);
		else
			lane_end(lane, -ENOTCONN, e.text);
		alive = false;
	}
	cb = p->cb;
	if (cb)
		cb(p->userdata, p->number, &answer);
	free(p);
	return alive;
}

static bool lane_exists(const struct keeper_link *l, const struct lane *lane)
{
	if (l->main == lane)
		return true;
	for (const struct lane *d = l->deliveries; d; d = d->next)
		if (d == lane)
			return true;
	return false;
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	struct lane *lane = userdata;
	struct keeper_link *l = lane->link;

	for (int i = 0; i < MESSAGES_PER_TURN; i++) {
		struct keeper_answer a = {0};
		CLEANUP_FREE char *document = NULL;
		struct error e = ERROR_INIT;
		int r = keeper_receive(lane->client, &a, &e);

		if (r == -EAGAIN)
			return 0;
		if (r < 0) {
			lane_lost(lane, e.text);
			return 0;
		}
		document = a.document;
		if (a.type == KEEPER_REPLY && !take_reply(lane, &a))
			return 0;
		if (a.type == KEEPER_EVENT)
			l->ops->event(l->userdata, &a.event);
		/* What was called may have lost the connection by asking something. */
		if (!lane_exists(l, lane))
			return 0;
	}
	return 0;
}

static int lane_open(struct keeper_link *l, bool start, struct lane **ret, struct error *e)
{
	struct lane *lane = calloc(1, sizeof(*lane));
	int r;

	if (!lane)
		return error_errno(e, ENOMEM, "cannot connect to the keeper");
	lane->link = l;
	r = keeper_connect(l->conf, start, &lane->client, e);
	if (r == 0) {
		r = sd_event_add_io(l->ev, &lane->io, keeper_client_fd(lane->client), EPOLLIN, on_io, lane);
		if (r < 0)
			(void)error_errno(e, -r, "cannot watch the connection to the keeper");
	}
	if (r < 0) {
		(void)keeper_client_free(lane->client);
		free(lane);
		return r;
	}
	*ret = lane;
	return 0;
}

static int lane_send(struct lane *lane, struct keeper_request *r, int secret_fd, keeper_cb cb, void *userdata,
	uint64_t number, struct error *e)
{
	struct pending *p = calloc(1, sizeof(*p)), **end = &lane->pending;
	bool first = !lane->pending;
	int rc;

	if (!p)
		return error_errno(e, ENOMEM, "cannot ask the keeper");
	rc = keeper_send(lane->client, r, secret_fd, &p->seq, e);
	if (rc < 0) {
		free(p);
		return rc;
	}
	p->cb = cb;
	p->userdata = userdata;
	p->number = number;
	p->deadline_ms = now_ms() + (r->head.type == KEEPER_DELIVER ? DELIVER_TIMEOUT_MS : QUICK_TIMEOUT_MS);
	while (*end)
		end = &(*end)->next;
	*end = p;
	/* Sent is sent: without a timer the answer is still awaited, only not for a limited time. */
	if (first)
		(void)lane_watch(lane, NULL);
	return 0;
}

static int main_open(struct keeper_link *l, bool start, struct error *e)
{
	struct keeper_request r;
	int rc = lane_open(l, start, &l->main, e);

	if (rc < 0)
		return rc;
	keeper_request_init(&r, KEEPER_SUBSCRIBE);
	rc = lane_send(l->main, &r, -1, NULL, NULL, 0, e);
	if (rc < 0) {
		lane_end(l->main, rc, "");
		return rc;
	}
	backoff_reset(&l->backoff);
	l->ops->up(l->userdata);
	return 0;
}

static void on_starter(void *userdata, int status, bool timed_out)
{
	struct keeper_link *l = userdata;

	l->starter = NULL;
	reconnect_later(l);
}

static int starter_run(struct keeper_link *l, struct error *e)
{
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	int r;

	o.program = "/proc/self/exe";
	o.argv = l->start_argv;
	r = spawn(&o, &c, e);
	if (r < 0)
		return r;
	return loop_child_add(l->ev, &c, STARTER_TIMEOUT_MS, on_starter, l, &l->starter, e);
}

static int on_reconnect(sd_event_source *s, uint64_t us, void *userdata)
{
	struct keeper_link *l = userdata;
	struct error e = ERROR_INIT;
	int r = main_open(l, false, &e);

	if (r == 0)
		return 0;
	if (r == -ENOTCONN && l->start_argv && starter_run(l, &e) == 0)
		return 0;
	reconnect_later(l);
	return 0;
}

int keeper_link_new(sd_event *ev, const struct hostconf *conf, const struct keeper_link_ops *ops,
	void *userdata, const char *const *start_argv, struct keeper_link **ret, struct error *e)
{
	struct keeper_link *l = calloc(1, sizeof(*l));

	if (!l)
		return error_errno(e, ENOMEM, "cannot connect to the keeper");
	l->ev = sd_event_ref(ev);
	l->conf = conf;
	l->ops = ops;
	l->userdata = userdata;
	l->start_argv = start_argv;
	l->backoff = (struct backoff){.min_ms = RECONNECT_MIN_MS, .max_ms = RECONNECT_MAX_MS};
	*ret = l;
	return 0;
}

static void lane_discard(struct lane *lane)
{
	for (struct pending *p = lane->pending; p; p = p->next)
		p->cb = NULL;
	lane_end(lane, -ENOTCONN, "");
}

struct keeper_link *keeper_link_free(struct keeper_link *l)
{
	if (!l)
		return NULL;
	if (l->main)
		lane_discard(l->main);
	while (l->deliveries)
		lane_discard(l->deliveries);
	loop_child_kill(l->starter);
	(void)sd_event_source_disable_unref(l->reconnect);
	(void)sd_event_unref(l->ev);
	free(l);
	return NULL;
}

int keeper_link_start(struct keeper_link *l, struct error *e)
{
	return main_open(l, l->start_argv != NULL, e);
}

bool keeper_link_is_up(const struct keeper_link *l)
{
	return l->main != NULL;
}

int keeper_link_ask(struct keeper_link *l, struct keeper_request *r, int secret_fd, keeper_cb cb,
	void *userdata, uint64_t number, struct error *e)
{
	struct lane *lane = l->main;
	int rc;

	if (!lane)
		return error_set(e, ENOTCONN, "there is no connection to the keeper");
	if (r->head.type != KEEPER_DELIVER)
		/* A dead connection shows itself in on_io; nothing is torn down under the caller's feet. */
		return lane_send(lane, r, secret_fd, cb, userdata, number, e);
	rc = lane_open(l, false, &lane, e);
	if (rc < 0)
		return rc;
	lane->next = l->deliveries;
	l->deliveries = lane;
	rc = lane_send(lane, r, secret_fd, cb, userdata, number, e);
	if (rc < 0)
		lane_end(lane, rc, "");
	return rc;
}
