#ifndef BOXERY_MANAGER_GITHUB_LINK_H
#define BOXERY_MANAGER_GITHUB_LINK_H
/*
 * The service's boxery-github child: one request at a time, in order of asking within two ranks. The child is
 * started when there is something to ask, killed when an answer is overdue, and started again with a growing
 * wait when it ends. A request that was sent to a child that died is answered with GITHUB_FAULT_NETWORK and,
 * for a MINT, may_exist. After a rate limit, nothing is sent until GitHub allows it; requests are answered
 * with GITHUB_FAULT_LIMIT meanwhile. Answers always come from the loop, never from within github_link_ask().
 */
#include "github/proto.h"
#include "linux/loop.h"
#include <stdbool.h>
#include <sys/types.h>

enum github_rank {
	GITHUB_RANK_LIVE,  /* somebody waits: demand, mint, a running runner */
	GITHUB_RANK_CLEAN, /* outcomes and tidying up */
	GITHUB_RANK_COUNT
};

struct github_answer {
	const struct github_reply *reply; /* text is already fit to be shown */
	const char *document;		  /* of a list, on success; NULL otherwise */
	size_t document_len;
	int *fd; /* MINT on success: the sealed memfd; take it with TAKE_FD or it is closed */
};
typedef void (*github_cb)(void *userdata, uint64_t number, const struct github_answer *a);

struct github_link;
struct budget;
/* on_child: told when the child answered HELLO (0, base URL and kind of credential) or ended (-errno, a sentence). */
int github_link_new(sd_event *ev, void (*on_child)(void *userdata, int code, const char *text),
	void *userdata, struct github_link **ret, struct error *e);
struct github_link *github_link_free(struct github_link *l);
DEFINE_CLEANUP(struct github_link *, github_link_free);

/* r is copied; head is filled in here. `number` is given back to cb. */
int github_link_ask(struct github_link *l, enum github_type type, const struct github_request *r,
	enum github_rank rank, github_cb cb, void *userdata, uint64_t number, struct error *e);
/* Forgets the request with this number if it has not been sent yet; true: it was there, and nothing was asked. */
bool github_link_cancel(struct github_link *l, uint64_t number);

/* What the answers of this life cost. */
struct budget *github_link_budget(struct github_link *l);
/* The child's process id, or 0. */
pid_t github_link_child(const struct github_link *l);
/* Until when (boot clock, milliseconds) nothing is asked because of a rate limit, and GitHub's words; 0: not limited. */
uint64_t github_link_quiet(const struct github_link *l, const char **ret_text);

#define GITHUB_LINK_QUEUE_MAX 4096
#endif
