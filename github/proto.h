#ifndef BOXERY_GITHUB_PROTO_H
#define BOXERY_GITHUB_PROTO_H
/*
 * boxery-runners -> boxery-github, on the SOCK_SEQPACKET socket the child is born with as fd 3. One request at a time,
 * one reply each. The credential, the base URL and the CA are read by boxery-github itself from runners.env (owner-only),
 * so that no peer can send the token anywhere else:
 *   GITHUB_TOKEN              fine-grained or classic token, or an installation token
 *   BOXERY_GITHUB_URL         default https://api.github.com; https only (http only to a loopback address)
 *   BOXERY_GITHUB_CA_FILE     PEM file with the only CA to be trusted; default the system's
 * The token goes into the Authorization header of requests to that one origin; redirects are never followed, proxies not
 * used. The file is read again for every request: a new token counts at once, a bad file fails the request (fault
 * CREDENTIAL; -EACCES when others can read it, -EBADMSG with FILE:LINE), not the process.
 *
 * verb          takes                             reply
 * HELLO         -                                 text: base URL, kind of credential (never the credential)
 * REPOSITORY    scope                             is_private (only a boolean true counts), text
 * MINT          scope, runner_name, labels,       runner_id + the sealed JIT memfd. Reads the repository's visibility first,
 *               runner_group_id (0: 1)            refuses with -EACCES unless private. Nothing is retried. may_exist = 1: the
 *                                                 name is there (409: -EEXIST), or the request may have been acted upon
 * RUNNER        scope, runner_id or runner_name   found, runner_id, online, busy
 * DELETE        scope, runner_id                  0 for 204, and for 404 in a repository that the token sees; -EBUSY for 422
 * JOBS          scope                             JSON {"jobs":[{id,run_id,name,workflow_name,status,conclusion,labels[],
 *                                                 runner_id,runner_name,created_at,started_at,completed_at}],"truncated":bool}
 *                                                 queued and in_progress ones
 * JOB_OF        scope, runner_name                JSON as JOBS: the job that ran on this runner (latest runs), 0 or 1
 * DEPRECATION   scope, text: runner version       text: dates or ""
 *
 * code by fault: CREDENTIAL -EACCES (of the file: as above), PERMISSION -EPERM, LIMIT -EAGAIN, ABSENT -ENOENT, CONFLICT -EEXIST,
 * INVALID -EINVAL, BUSY -EBUSY, SERVER -EIO, -EBADMSG, -EPIPE, -EFBIG, NETWORK -ENOTCONN, -ETIMEDOUT, PUBLIC -EACCES.
 * Writes are at least a second apart; unchanged lists (JOBS, JOB_OF) cost nothing of the primary rate limit.
 */
#include "base/parse.h"
#include "linux/msg.h"
#include <stdint.h>

#define GITHUB_LABELS_MAX 1024
#define GITHUB_RUNNER_NAME_MAX 65
#define GITHUB_REQUEST_TIMEOUT_MS 30000 /* one HTTP exchange; GitHub's own limit is 10 s */

enum github_type {
	GITHUB_HELLO = 1,
	GITHUB_REPOSITORY,
	GITHUB_MINT,
	GITHUB_RUNNER,
	GITHUB_DELETE,
	GITHUB_JOBS,
	GITHUB_JOB_OF,
	GITHUB_DEPRECATION,
	GITHUB_REPLY,
	GITHUB_TYPE_COUNT
};

struct github_request {
	struct msg_head head;
	char scope[SCOPE_MAX];
	char runner_name[GITHUB_RUNNER_NAME_MAX];
	char labels[GITHUB_LABELS_MAX]; /* comma-separated, at least one */
	uint64_t runner_id, runner_group_id;
	char text[256];
};

/* Why a call failed, in the words that decide what to do next. */
enum github_fault {
	GITHUB_FAULT_NONE,
	GITHUB_FAULT_CREDENTIAL, /* 401 */
	GITHUB_FAULT_PERMISSION, /* 403, names the permission */
	GITHUB_FAULT_LIMIT,      /* primary or secondary; retry_after_ms is set */
	GITHUB_FAULT_ABSENT,     /* 404 */
	GITHUB_FAULT_CONFLICT,   /* 409 */
	GITHUB_FAULT_INVALID,    /* 422 and other 4xx */
	GITHUB_FAULT_BUSY,       /* 422 on a delete */
	GITHUB_FAULT_SERVER,     /* 5xx, non-JSON, cut off */
	GITHUB_FAULT_NETWORK,    /* no answer at all, TLS */
	GITHUB_FAULT_PUBLIC,     /* the repository is not private */
	GITHUB_FAULT_COUNT
};
const char *github_fault_to_string(enum github_fault v);

struct github_reply {
	struct msg_head head;
	int32_t code;        /* 0 or -errno */
	int32_t fault;       /* enum github_fault */
	int32_t http_status; /* 0: none */
	uint32_t is_private, found, online, busy, may_exist;
	uint64_t runner_id, retry_after_ms;
	uint32_t rate_remaining, rate_limit;
	char text[ERROR_TEXT_MAX];
};
extern const size_t github_message_sizes[GITHUB_TYPE_COUNT];
#endif
