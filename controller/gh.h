#ifndef BOXERY_CONTROLLER_GH_H
#define BOXERY_CONTROLLER_GH_H
/*
 * One call of GitHub's REST API by the person's own `gh api`. This program never sees a token: gh has it, and GH_HOST in the
 * environment or gh itself decide which GitHub is asked (--hostname takes no port). What gh prints may
 * hold a JIT config, so it is read into memory that is wiped.
 */
#include "controller/poller.h"
#include "controller/process.h"
#include "link/link.h"

#define GH_TIMEOUT_MS 30000
#define GH_ANSWER_MAX (4 * 1024 * 1024)
#define GH_PATH_MAX 512
#define GH_DEPTH_MAX 32 /* GitHub's answers need 6 */
#define GH_HOST_MAX 256
#define GH_API_VERSION "2022-11-28"

enum gh_fault {
	GH_OK,
	GH_MISSING,    /* there is no gh */
	GH_LOGIN,      /* it is not logged in, or its token is not taken: 401 */
	GH_PERMISSION, /* 403 */
	GH_LIMIT,      /* 403 or 429 of a rate limit */
	GH_ABSENT,     /* 404 */
	GH_CONFLICT,   /* 409 */
	GH_INVALID,    /* 422 */
	GH_SERVER,     /* 5xx, and whatever cannot be understood */
	GH_NETWORK,    /* no answer */
	GH_FAULT_COUNT
};

struct gh_answer {
	enum gh_fault fault;
	int status;                /* HTTP; 0: no answer */
	json_t *body;              /* NULL when there is none; gone after the callback */
	uint64_t retry_after_ms;   /* 0: not said */
	char text[ERROR_TEXT_MAX]; /* a sentence when fault is not GH_OK */
};
typedef void (*gh_cb)(void *userdata, const struct gh_answer *a);

struct gh {
	struct process process;
	struct link_buffer in, out;
	char err[ERROR_TEXT_MAX];
	size_t err_len;
	uint64_t deadline_ms;
	gh_cb cb; /* NULL: idle */
	void *userdata;
};
#define GH_INIT ((struct gh){.process = PROCESS_INIT})
/* body is stolen; NULL: none. An error (no gh) is returned at once and cb is not called. */
int gh_call(struct gh *g, const char *method, const char *path, json_t *body, gh_cb cb, void *userdata, struct error *e);
bool gh_busy(const struct gh *g);
void gh_poll(struct gh *g, struct poller *p);
void gh_tick(struct gh *g); /* the end of the process, and its deadline */
void gh_free(struct gh *g);
/* Made of what gh prints; for gh_tick and its tests. exit_status: as of waitpid(). data is only read. */
void gh_understand(const char *data, size_t len, const char *err, int wait_status, struct gh_answer *ret);
const char *gh_fault_to_string(enum gh_fault v);
int gh_fault_from_string(const char *s, enum gh_fault *ret);
/* The exit status for a fault, by way of error_exit_status(). */
int gh_errno(enum gh_fault v);
#endif
