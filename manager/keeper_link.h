#ifndef BOXERY_MANAGER_KEEPER_LINK_H
#define BOXERY_MANAGER_KEEPER_LINK_H
/*
 * The service's connections to the keeper. The keeper answers one request after the other per connection, so
 * one connection carries events and everything quick, and each delivery gets one of its own: a slow guest
 * delays nobody. When a connection is lost, everything unanswered on it is answered as `lost`; the main one is
 * made again with a growing wait, and a keeper is started by a short child of ours (never from within the
 * loop). `up` is where the caller subscribes to what it missed.
 */
#include "linux/loop.h"
#include "pool/client.h"
#include <stdbool.h>

struct keeper_link_ops {
	void (*up)(void *userdata);		       /* connected and subscribed */
	void (*down)(void *userdata, const char *why); /* after the unanswered requests have been answered */
	void (*event)(void *userdata, const struct keeper_event *event);
};

struct keeper_link_answer {
	int code;			  /* 0 or -errno: the keeper's own, or ours when lost */
	bool lost;			  /* no answer came and none will: whether the keeper acted is not known */
	const char *text;		  /* a sentence when code is not 0 */
	const struct keeper_reply *reply; /* NULL unless the keeper answered */
	const char *document;		  /* NULL when there is none */
};
typedef void (*keeper_cb)(void *userdata, uint64_t number, const struct keeper_link_answer *a);

struct keeper_link;
/* conf, ops and userdata must outlive the link. start_argv: how to run this program so that it makes the
 * keeper run and ends (NULL-terminated); NULL: only connect. */
int keeper_link_new(sd_event *ev, const struct hostconf *conf, const struct keeper_link_ops *ops,
	void *userdata, const char *const *start_argv, struct keeper_link **ret, struct error *e);
struct keeper_link *keeper_link_free(struct keeper_link *l);
DEFINE_CLEANUP(struct keeper_link *, keeper_link_free);
/* First connection; blocks while a keeper is started (before the loop runs). `up` is called from within. */
int keeper_link_start(struct keeper_link *l, struct error *e);
bool keeper_link_is_up(const struct keeper_link *l);

/* An error is returned at once (cb is not called); otherwise cb is called once, from the loop. secret_fd is borrowed. */
int keeper_link_ask(struct keeper_link *l, struct keeper_request *r, int secret_fd, keeper_cb cb,
	void *userdata, uint64_t number, struct error *e);
#endif
