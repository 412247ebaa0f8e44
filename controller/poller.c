#include "controller/poller.h"

void poller_add(struct poller *p, int fd, short events, poller_cb cb, void *userdata)
{
	if (fd < 0 || p->n == POLLER_MAX)
		return;
	p->fds[p->n] = (struct pollfd){.fd = fd, .events = events};
	p->calls[p->n].cb = cb;
	p->calls[p->n].userdata = userdata;
	p->n++;
}

void poller_wait(struct poller *p, int timeout_ms)
{
	if (poll(p->fds, (nfds_t)p->n, timeout_ms) > 0)
		for (size_t i = 0; i < p->n; i++)
			if (p->fds[i].revents)
				p->calls[i].cb(p->calls[i].userdata, p->fds[i].fd);
	p->n = 0;
}
