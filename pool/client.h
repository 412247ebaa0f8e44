#ifndef BOXERY_POOL_CLIENT_H
#define BOXERY_POOL_CLIENT_H
/*
 * A connection to the keeper. Two ways to use it: call() blocks (commands), or fd + send + dispatch from a loop
 * (services). A dead keeper is -ENOTCONN; the caller reconnects and asks LEASES again.
 */
#include "base/cleanup.h"
#include "linux/holder.h"
#include "linux/hostconf.h"
#include "pool/proto.h"

struct keeper_client;
/* start: when no keeper answers, start one (detached, log in state_dir/keeper.log) and wait up to 10 s for it. */
int keeper_connect(const struct hostconf *conf, bool start, struct keeper_client **ret, struct error *e);
/* The keeper that has the lock, whether or not it answers; false: none, or one that cannot be seen from here. */
bool keeper_holder(const struct hostconf *conf, struct holder *ret);
struct keeper_client *keeper_client_free(struct keeper_client *c);
DEFINE_CLEANUP(struct keeper_client *, keeper_client_free);

void keeper_request_init(struct keeper_request *r, enum keeper_type type);
typedef void (*keeper_progress_cb)(void *userdata, const char *text);
/*
 * Sends (secret_fd: -1, or the memfd of DELIVER) and waits for the reply up to timeout_ms. A reply with a code is
 * returned as that error. ret_document (may be NULL) gets the JSON text when there is one.
 */
int keeper_call(struct keeper_client *c, struct keeper_request *r, int secret_fd, uint64_t timeout_ms,
		keeper_progress_cb progress, void *userdata, struct keeper_reply *ret, char **ret_document,
		struct error *e);

/* For loops: non-blocking from here on. */
int keeper_client_fd(const struct keeper_client *c);
int keeper_send(struct keeper_client *c, struct keeper_request *r, int secret_fd, uint32_t *ret_seq, struct error *e);
struct keeper_answer {
	enum keeper_type type; /* PROGRESS, REPLY or EVENT */
	uint32_t seq;
	union {
		struct keeper_progress progress;
		struct keeper_reply reply;
		struct keeper_event event;
	};
	char *document; /* malloc'd; the receiver frees */
};
/* 1: *ret filled; -EAGAIN: nothing now; -ENOTCONN: gone. */
int keeper_receive(struct keeper_client *c, struct keeper_answer *ret, struct error *e);
#endif
