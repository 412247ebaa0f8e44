#include "manager/github_link.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/clock.h"
#include "manager/backoff.h"
#include "manager/budget.h"
#include "manager/github_child.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#define RESPAWN_MIN_MS 1000
#define RESPAWN_MAX_MS 60000
#define HELLO_TIMEOUT_MS 10000
/* A MINT is two exchanges, a list is one per run. The child has its own limit for each; this is for one that hangs. */
#define SINGLE_TIMEOUT_MS (4 * GITHUB_REQUEST_TIMEOUT_MS)
#define LIST_TIMEOUT_MS (20 * GITHUB_REQUEST_TIMEOUT_MS)
#define LIMIT_DEFAULT_MS 60000
#define LIMIT_MAX_MS (2 * 60 * 60 * 1000)

struct request {
	struct request *next;
	struct github_request message;
	github_cb cb;
	void *userdata;
	uint64_t number;
};

struct github_link {
	sd_event *ev;
	void (*on_child)(void *userdata, int code, const char *text);
	void *userdata;
	struct request *queue[GITHUB_RANK_COUNT];
	size_t n_waiting;
	struct request *sent; /* the one on its way; NULL: idle, or HELLO is on its way */
	bool hello_sent, ready;
	struct child child;
	int fd;
	uint32_t seq;
	sd_event_source *io, *deadline, *pump, *respawn;
	struct backoff backoff, limits;
	struct budget budget;
	bool waiting_to_respawn;
	uint64_t quiet_until_ms;
	char quiet_text[ERROR_TEXT_MAX];
};

static uint64_t now_ms(void)
{
	return clock_boot_us() / 1000;
}

static void pump_soon(struct github_link *l)
{
	(void)sd_event_source_set_enabled(l->pump, SD_EVENT_ONESHOT);
}

static void request_free(struct github_link *l, struct request *q)
{
	l->n_waiting--;
	free(q);
}

static void answer(struct github_link *l, struct request *q, const struct github_answer *a)
{
	q->cb(q->userdata, q->number, a);
	request_free(l, q);
}

static void answer_fault(struct github_link *l, struct request *q, int code, enum github_fault fault,
	bool was_sent, uint64_t retry_after_ms, const char *text)
{
	struct github_reply reply = {
		.code = -code,
		.fault = (int32_t)fault,
		.may_exist = was_sent && q->message.head.type == GITHUB_MINT,
		.retry_after_ms = retry_after_ms,
	};
	int fd = -1;

	str_show_n(reply.text, sizeof(reply.text), text, strlen(text));
	answer(l, q, &(struct github_answer){.reply = &reply, .fd = &fd});
}

static void child_drop(struct github_link *l)
{
	l->io = sd_event_source_disable_unref(l->io);
	l->deadline = sd_event_source_disable_unref(l->deadline);
	l->fd = fd_close(l->fd);
	child_kill(&l->child);
	l->ready = l->hello_sent = false;
}

static int on_respawn(sd_event_source *s, uint64_t us, void *userdata)
{
	struct github_link *l = userdata;

	l->waiting_to_respawn = false;
	pump_soon(l);
	return 0;
}

/* The child is gone or must go. What it was asked, and what waits, is answered: the askers have waits of their own. */
static void child_lost(struct github_link *l, const char *why)
{
	struct request *sent = TAKE_PTR(l->sent), *waiting[GITHUB_RANK_COUNT];
	char text[ERROR_TEXT_MAX]; /* why may live in what is dropped here */

	str_show_n(text, sizeof(text), why, strlen(why));
	child_drop(l);
	l->waiting_to_respawn =
		loop_timer(l->ev, &l->respawn, backoff_next(&l->backoff), on_respawn, l, NULL) == 0;
	l->on_child(l->userdata, -ECONNRESET, text);
	if (sent)
		answer_fault(l, sent, ECONNRESET, GITHUB_FAULT_NETWORK, true, 0, text);
	/* Taken first: an asker may ask again at once, and that is for the next child. */
	for (int rank = 0; rank < GITHUB_RANK_COUNT; rank++)
		waiting[rank] = TAKE_PTR(l->queue[rank]);
	for (int rank = 0; rank < GITHUB_RANK_COUNT; rank++)
		while (waiting[rank]) {
			struct request *q = waiting[rank];

			waiting[rank] = q->next;
			answer_fault(l, q, ECONNRESET, GITHUB_FAULT_NETWORK, false, 0, text);
		}
}

static int on_deadline(sd_event_source *s, uint64_t us, void *userdata)
{
	child_lost(userdata, "boxery-github did not answer in time and was ended");
	return 0;
}

/*
 * What GitHub asks for is done. A limit that comes again right after its time was for something GitHub does not tell, so from
 * the second one in a row the wait grows too, and hosts that were limited together do not come back together.
 */
static void note_limit(struct github_link *l, const struct github_reply *reply)
{
	uint64_t wait = reply->retry_after_ms ? reply->retry_after_ms : LIMIT_DEFAULT_MS;
	uint64_t grown = backoff_next(&l->limits);

	if (reply->limit_kind == GITHUB_LIMIT_SECONDARY && l->limits.n > 1 && grown > wait)
		wait = grown;
	l->quiet_until_ms = now_ms() + (wait < LIMIT_MAX_MS ? wait : LIMIT_MAX_MS);
	(void)str_copy(l->quiet_text, reply->text);
}

/* What takes more than one exchange, and comes with a document. */
static bool is_list(enum github_type type)
{
	return type == GITHUB_JOBS || type == GITHUB_JOB_OF || type == GITHUB_GROUP || type == GITHUB_RUNNERS;
}

static void take_reply(struct github_link *l, struct github_reply *reply, int fds[static MSG_FDS_MAX])
{
	struct request *q = TAKE_PTR(l->sent);
	CLEANUP_FREE char *document = NULL;
	struct github_answer a = {.reply = reply, .fd = &fds[0]};
	struct error e = ERROR_INIT;
	bool list = is_list((enum github_type)q->message.head.type);
	char text[ERROR_TEXT_MAX];

	if (reply->code == 0 && list) {
		if (msg_document_read(fds[0], &document, &a.document_len, &e) < 0) {
			reply->code = -EBADMSG;
			reply->fault = GITHUB_FAULT_SERVER;
			(void)str_copy(reply->text, e.text);
		}
		fds[0] = fd_close(fds[0]);
		a.document = document;
	}
	/* Parts of it may be GitHub's words, and it goes into logs. */
	str_show_n(text, sizeof(text), reply->text, strlen(reply->text));
	(void)str_copy(reply->text, text);
	budget_note(&l->budget, (enum github_type)q->message.head.type, reply, now_ms());
	if (reply->fault == GITHUB_FAULT_LIMIT)
		note_limit(l, reply);
	else if (reply->code == 0 && reply->calls + reply->calls_free > 0)
		backoff_reset(&l->limits); /* "not modified" is an answer, too: the limit is over */
	answer(l, q, &a);
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *userdata)
{
	static const size_t sizes[GITHUB_TYPE_COUNT] = {[GITHUB_REPLY] = sizeof(struct github_reply)};
	struct github_link *l = userdata;
	struct github_reply reply;
	struct error e = ERROR_INIT;
	int fds[MSG_FDS_MAX];
	size_t n_fds = 0;
	int r = msg_recv(l->fd, sizes, ARRAY_SIZE(sizes), &reply, sizeof(reply), fds, &n_fds, &e);

	if (r == -EAGAIN)
		return 0;
	if (r <= 0) {
		child_lost(l, r == 0 ? "boxery-github ended" : e.text);
		return 0;
	}
	if ((!l->sent && !l->hello_sent) || reply.head.seq != l->seq || reply.code > 0 ||
		!str_is_terminated(reply.text, sizeof(reply.text)) || reply.fault < 0 ||
		reply.fault >= GITHUB_FAULT_COUNT) {
		child_lost(l, "boxery-github sent an answer that fits no question");
	} else if (l->hello_sent) {
		l->hello_sent = false;
		l->deadline = sd_event_source_disable_unref(l->deadline);
		if (reply.code == 0) {
			l->ready = true;
			backoff_reset(&l->backoff);
			l->on_child(l->userdata, 0, reply.text);
		} else {
			child_lost(l, reply.text);
		}
		pump_soon(l);
	} else {
		l->deadline = sd_event_source_disable_unref(l->deadline);
		take_reply(l, &reply, fds);
		pump_soon(l);
	}
	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		fds[i] = fd_close(fds[i]);
	return 0;
}

static int child_start(struct github_link *l, struct error *e)
{
	struct github_request hello = {.head = MSG_HEAD(GITHUB_HELLO, struct github_request, l->seq + 1)};
	CLEANUP_FD int ours = -1;
	int r = github_child_start(&l->child, &ours, e);

	if (r < 0)
		return r;
	r = msg_send(ours, &hello, NULL, 0, e);
	if (r < 0)
		return r;
	r = sd_event_add_io(l->ev, &l->io, ours, EPOLLIN, on_io, l);
	if (r < 0)
		return error_errno(e, -r, "cannot watch boxery-github");
	l->fd = TAKE_FD(ours);
	l->seq++;
	l->hello_sent = true;
	return loop_timer(l->ev, &l->deadline, HELLO_TIMEOUT_MS, on_deadline, l, e);
}

static struct request *pop(struct github_link *l)
{
	for (int rank = 0; rank < GITHUB_RANK_COUNT; rank++) {
		struct request *q = l->queue[rank];

		if (!q)
			continue;
		l->queue[rank] = q->next;
		q->next = NULL;
		return q;
	}
	return NULL;
}

static void send_one(struct github_link *l, struct request *q)
{
	struct error e = ERROR_INIT;
	enum github_type type = (enum github_type)q->message.head.type;
	bool list = is_list(type);
	int r;

	q->message.head.seq = ++l->seq;
	l->sent = q;
	r = msg_send(l->fd, &q->message, NULL, 0, &e);
	if (r == 0)
		r = loop_timer(l->ev, &l->deadline, list ? LIST_TIMEOUT_MS : SINGLE_TIMEOUT_MS, on_deadline, l, &e);
	if (r < 0)
		child_lost(l, e.text);
}

static int on_pump(sd_event_source *s, void *userdata)
{
	struct github_link *l = userdata;
	struct error e = ERROR_INIT;
	uint64_t now = now_ms();
	struct request *q;

	if (l->sent || l->hello_sent || l->waiting_to_respawn || !l->n_waiting)
		return 0;
	if (now < l->quiet_until_ms) {
		/* One per turn of the loop, so that an asker that asks again at once cannot hold it. */
		q = pop(l);
		if (q)
			answer_fault(l, q, EAGAIN, GITHUB_FAULT_LIMIT, false, l->quiet_until_ms - now,
				l->quiet_text);
		pump_soon(l);
		return 0;
	}
	if (!l->ready) {
		if (child_start(l, &e) < 0)
			child_lost(l, e.text);
		return 0;
	}
	q = pop(l);
	if (q)
		send_one(l, q);
	return 0;
}

int github_link_new(sd_event *ev, void (*on_child)(void *userdata, int code, const char *text),
	void *userdata, struct github_link **ret, struct error *e)
{
	CLEANUP(github_link_freep) struct github_link *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return error_errno(e, ENOMEM, "cannot talk to GitHub");
	l->fd = -1;
	l->child = CHILD_INIT;
	l->on_child = on_child;
	l->userdata = userdata;
	l->backoff = (struct backoff){.min_ms = RESPAWN_MIN_MS, .max_ms = RESPAWN_MAX_MS};
	l->limits = (struct backoff){.min_ms = LIMIT_DEFAULT_MS, .max_ms = LIMIT_MAX_MS};
	budget_init(&l->budget, now_ms());
	l->ev = sd_event_ref(ev);
	r = sd_event_add_defer(ev, &l->pump, on_pump, l);
	if (r == 0)
		r = sd_event_source_set_enabled(l->pump, SD_EVENT_OFF);
	if (r < 0)
		return error_errno(e, -r, "cannot talk to GitHub");
	*ret = TAKE_PTR(l);
	return 0;
}

struct github_link *github_link_free(struct github_link *l)
{
	struct request *q;

	if (!l)
		return NULL;
	child_drop(l);
	if (l->sent)
		request_free(l, l->sent);
	while ((q = pop(l)))
		request_free(l, q);
	(void)sd_event_source_disable_unref(l->pump);
	(void)sd_event_source_disable_unref(l->respawn);
	(void)sd_event_unref(l->ev);
	free(l);
	return NULL;
}

int github_link_ask(struct github_link *l, enum github_type type, const struct github_request *r,
	enum github_rank rank, github_cb cb, void *userdata, uint64_t number, struct error *e)
{
	struct request *q, **end = &l->queue[rank];

	if (l->n_waiting >= GITHUB_LINK_QUEUE_MAX)
		return error_set(e, EAGAIN, "too many questions to GitHub are waiting");
	q = calloc(1, sizeof(*q));
	if (!q)
		return error_errno(e, ENOMEM, "cannot ask GitHub");
	q->message = *r;
	q->message.head = MSG_HEAD(type, struct github_request, 0);
	q->cb = cb;
	q->userdata = userdata;
	q->number = number;
	while (*end)
		end = &(*end)->next;
	*end = q;
	l->n_waiting++;
	pump_soon(l);
	return 0;
}

bool github_link_cancel(struct github_link *l, uint64_t number)
{
	for (int rank = 0; rank < GITHUB_RANK_COUNT; rank++)
		for (struct request **at = &l->queue[rank]; *at; at = &(*at)->next) {
			struct request *q = *at;

			if (q->number != number)
				continue;
			*at = q->next;
			request_free(l, q);
			return true;
		}
	return false;
}

struct budget *github_link_budget(struct github_link *l)
{
	return &l->budget;
}

pid_t github_link_child(const struct github_link *l)
{
	return l->child.pid > 0 ? l->child.pid : 0;
}

uint64_t github_link_quiet(const struct github_link *l, const char **ret_text)
{
	*ret_text = l->quiet_text;
	return l->quiet_until_ms > now_ms() ? l->quiet_until_ms : 0;
}
