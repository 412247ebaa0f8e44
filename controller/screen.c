/*
 * The descriptors stay blocking ones: they are shared with ssh, gh and the shell. So it is asked first whether something goes, never
 * more is written than a pipe takes then, and a terminal that is stopped just between question and write is left by a timer.
 */
#include "controller/screen.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define GUARD_US 100000

struct item {
	struct item *next;
	int fd;
	size_t done, len;
	char data[];
};

static struct item *first, **end = &first;
static size_t waiting;
static int lost; /* errno of the first write to standard output that failed */

static void on_alarm(int number)
{
}

static void guard(bool on)
{
	struct itimerval time = {0};
	struct sigaction act = {.sa_handler = on_alarm}; /* no SA_RESTART: write() returns */

	if (on) {
		(void)sigaction(SIGALRM, &act, NULL);
		time.it_value.tv_usec = time.it_interval.tv_usec = GUARD_US;
	}
	(void)setitimer(ITIMER_REAL, &time, NULL);
}

bool screen_is_taken(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0) > 0; /* an error too: write() says which */
}

/* False: not now. */
static bool write_some(struct item *i)
{
	size_t len = i->len - i->done;
	ssize_t n;
	int code;

	if (!screen_is_taken(i->fd))
		return false;
	guard(true);
	n = write(i->fd, i->data + i->done, len < PIPE_BUF ? len : PIPE_BUF);
	code = errno;
	guard(false);
	if (n < 0 && (code == EINTR || code == EAGAIN))
		return false;
	i->done = n < 0 ? i->len : i->done + (size_t)n;
	if (n < 0 && i->fd == STDOUT_FILENO && !lost)
		lost = code;
	return true;
}

int screen_lost(void)
{
	return lost;
}

void screen_flush(void)
{
	bool stuck[STDERR_FILENO + 1] = {false};
	struct item **at = &first, *i;

	while ((i = *at)) {
		stuck[i->fd] = stuck[i->fd] || !write_some(i);
		if (stuck[i->fd]) {
			at = &i->next;
		} else if (i->done == i->len) {
			*at = i->next;
			if (end == &i->next)
				end = at;
			waiting -= i->len;
			free(i);
		}
	}
}

void screen_add(int fd, const char *data, size_t len)
{
	struct item *i = len <= SCREEN_MAX - waiting ? malloc(sizeof(*i) + len) : NULL;

	if (!i)
		return;
	*i = (struct item){.fd = fd, .len = len};
	memcpy(i->data, data, len);
	*end = i;
	end = &i->next;
	waiting += len;
	screen_flush();
}

size_t screen_waiting(void)
{
	return waiting;
}

bool screen_wait(int within_ms)
{
	struct pollfd p = {.fd = first ? first->fd : -1, .events = POLLOUT};

	screen_flush();
	if (first && p.fd == first->fd) {
		(void)poll(&p, 1, within_ms);
		screen_flush();
	}
	return !first;
}
