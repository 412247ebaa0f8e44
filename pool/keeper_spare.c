/*
 * Spare children: boxery-vm that has been started, has its libraries and a connection to libvirt, and waits for its request.
 * Starting one takes longer than most of what it does then, and whoever gives a VM back or leases one waits for that.
 *
 * A spare becomes the child of one operation and is never used again, so that nothing of one VM's operation is there in
 * another's. Nothing depends on it: when there is none, or it has died, the operation starts its own. It holds nothing but the
 * connection, no lock and no VM's name, and a libvirt that was restarted meanwhile is its own matter (host_connect()). The next
 * one is started a moment after one was used, since what that does comes first. While libvirt does not answer none is started.
 */
#include "linux/log.h"
#include "pool/keeper.h"
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

struct spare {
	struct keeper *k;
	int fd;
	struct loop_child *child;
};

static struct spare *spare_free(struct spare *s)
{
	if (s) {
		loop_child_kill(s->child);
		s->fd = fd_close(s->fd);
		free(s);
	}
	return NULL;
}

/* The oldest comes first: it is the most likely to be ready. */
static struct spare *take_at(struct keeper *k, size_t i)
{
	struct spare *s = k->spares[i];

	memmove(k->spares + i, k->spares + i + 1, (KEEPER_SPARES - i - 1) * sizeof(struct spare *));
	k->spares[KEEPER_SPARES - 1] = NULL;
	return s;
}

/* Nobody has used it: killed for want of memory, say. */
static void on_spare_child(void *userdata, int status, bool timed_out)
{
	struct spare *s = userdata;
	struct keeper *k = s->k;

	log_debug("a spare boxery-vm has ended by itself (%s %d)", WIFSIGNALED(status) ? "signal" : "status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	s->child = NULL; /* the loop frees it */
	for (size_t i = 0; i < KEEPER_SPARES; i++)
		if (k->spares[i] == s) {
			(void)spare_free(take_at(k, i));
			break;
		}
	spares_fill(k, KEEPER_SPARE_AGAIN_MS);
}

static int spare_new(struct keeper *k, struct spare **ret, struct error *e)
{
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	struct spare *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_set(e, ENOMEM, "no memory for a spare boxery-vm");
	s->k = k;
	s->fd = -1;
	r = vm_child(&s->fd, &c, e);
	if (r == 0)
		r = loop_child_add(k->event, &c, 0, on_spare_child, s, &s->child, e);
	if (r < 0) {
		(void)spare_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* One at a time, so that nobody waits for more than that. */
static int on_fill(sd_event_source *source, uint64_t us, void *userdata)
{
	struct keeper *k = userdata;
	struct error e = ERROR_INIT;
	size_t n = 0;

	k->spare_timer = sd_event_source_disable_unref(k->spare_timer);
	while (n < KEEPER_SPARES && k->spares[n])
		n++;
	if (n == KEEPER_SPARES || !k->connected || k->stopping)
		return 0;
	if (spare_new(k, &k->spares[n], &e) < 0) {
		log_debug("%s", e.text); /* the operation that needs one says the same aloud */
		spares_fill(k, KEEPER_SPARE_AGAIN_MS);
	} else if (n + 1 < KEEPER_SPARES) {
		spares_fill(k, KEEPER_SPARE_DELAY_MS);
	}
	return 0;
}

void spares_fill(struct keeper *k, uint64_t in_ms)
{
	/* Without a timer there are none, and everything works. */
	if (!k->spare_timer && !k->stopping)
		(void)loop_timer(k->event, &k->spare_timer, in_ms, on_fill, k, NULL);
}

bool spare_take(struct keeper *k, const struct vm_request *request, int *ret_fd, struct loop_child **ret)
{
	bool taken = false;

	while (!taken && k->spares[0]) {
		struct spare *s = take_at(k, 0);

		if (msg_send(s->fd, request, NULL, 0, NULL) == 0) {
			*ret_fd = TAKE_FD(s->fd);
			*ret = TAKE_PTR(s->child);
			taken = true;
		}
		(void)spare_free(s);
	}
	spares_fill(k, KEEPER_SPARE_DELAY_MS);
	return taken;
}

void spares_free(struct keeper *k)
{
	k->spare_timer = sd_event_source_disable_unref(k->spare_timer);
	for (size_t i = 0; i < KEEPER_SPARES; i++)
		k->spares[i] = spare_free(k->spares[i]);
}
