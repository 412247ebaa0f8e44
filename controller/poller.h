#ifndef BOXERY_CONTROLLER_POLLER_H
#define BOXERY_CONTROLLER_POLLER_H
/*
 * poll(2) for a program with a few pipes: the list is made anew before each wait, so nothing in it can be stale but by what a
 * callback of the same round closes; a callback therefore gets its fd and looks whether it still is its owner's.
 */
#include <poll.h>
#include <stddef.h>

#define POLLER_MAX 128
typedef void (*poller_cb)(void *userdata, int fd);
struct poller {
	struct pollfd fds[POLLER_MAX];
	struct {
		poller_cb cb;
		void *userdata;
	} calls[POLLER_MAX];
	size_t n;
};
/* -1 is left out, and so is what does not fit any more. */
void poller_add(struct poller *p, int fd, short events, poller_cb cb, void *userdata);
/* Waits and calls; empties the list. */
void poller_wait(struct poller *p, int timeout_ms);
#endif
