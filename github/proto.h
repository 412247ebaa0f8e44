#ifndef BOXERY_GITHUB_PROTO_H
#define BOXERY_GITHUB_PROTO_H
/*
 * boxery-runners -> boxery-github, on the SOCK_SEQPACKET socket the child is born with as fd 3. One request at a time,
 * one reply each. The credential, the base URL and the CA are read by boxery-github itself from runners.env (owner-only),
 * so that no peer can send the token anywhere else (the settings are in credential.h).
 * The token goes into the Authorization header of requests to that one origin; redirects are never followed, no proxy is used
 * but the one in the file. The file is read again for every request: a new token counts at once, a bad file fails the request (fault
 * CREDENTIAL; -EACCES when others can read it, -EBADMSG with FILE:LINE), not the process.
 *
 * verb          takes                             reply
 * HELLO         -                                 text: base URL, kind of credential (never the credential)
 * REPOSITORY    scope OWNER/REPO                  is_private (only a boolean true counts), text
 * GROUP         scope ORG, group                  is_private (no public repository can use the group), group_id, JSON
 *                                                 {"visibility":"...","repositories":["ORG/NAME"...],"truncated":bool}; the list is
 *                                                 that of a group for selected repositories, else empty
 * MINT          scope, runner_name, labels,       runner_id + the sealed JIT memfd. Reads first who could use the runner: the
 *               group (ORG only)                  repository's or the group's visibility; refuses with -EACCES unless private.
 *                                                 Nothing is retried. may_exist = 1: the name is there (409: -EEXIST), or the
 *                                                 request may have been acted upon
 * RUNNER        scope, runner_id or runner_name   found, runner_id, online, busy
 * RUNNERS       scope                             JSON {"runners":[{id,name,online,busy}],"truncated":bool}: those of the first page
 *                                                 of 100. Only when nothing was left out (truncated is false) who is not in it is gone
 * DELETE        scope, runner_id                  0 for 204, and for 404 in a repository that the token sees; -EBUSY for 422
 * JOBS          scope                             JSON {"jobs":[{id,run_id,name,workflow_name,status,conclusion,labels[],
 *                                                 runner_id,runner_name,created_at,started_at,completed_at}],"truncated":bool}
 *                                                 queued and in_progress ones
 * JOB_OF        scope, runner_name,               JSON as JOBS: the job that ran on this runner, 0 or 1: of the run when it
 *               run_id (0: not known)             is known, else of the latest runs
 * DEPRECATION   scope, text: runner version       text: dates or ""
 *
 * A scope is OWNER/REPO or ORG; JOBS and JOB_OF need a repository. Each reply says what it cost: calls counts the exchanges
 * that use up the primary rate limit, calls_free those answered "not modified".
 *
 * code by fault: CREDENTIAL -EACCES (of the file: as above), PERMISSION -EPERM, LIMIT -EAGAIN, ABSENT -ENOENT, CONFLICT -EEXIST,
 * INVALID -EINVAL, BUSY -EBUSY, SERVER -EIO, -EBADMSG, -EPIPE, -EFBIG, NETWORK -ENOTCONN, -ETIMEDOUT, PUBLIC -EACCES.
 * Writes are at least a second apart; what is unchanged (all that is only read)
 * costs nothing of the primary rate limit.
 */
#include "base/parse.h"
#include "linux/msg.h"
#include <stdint.h>

#define GITHUB_LABELS_MAX 1024
#define GITHUB_RUNNER_NAME_MAX 65
#define GITHUB_GROUP_MAX 65 /* a runner group's name */
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
	GITHUB_GROUP,
	GITHUB_REPLY,
	GITHUB_RUNNERS, /* behind the reply, whose number is part of the protocol */
	GITHUB_TYPE_COUNT
};

struct github_request {
	struct msg_head head;
	char scope[SCOPE_MAX];
	char runner_name[GITHUB_RUNNER_NAME_MAX];
	char labels[GITHUB_LABELS_MAX]; /* comma-separated, at least one */
	uint64_t runner_id, run_id;
	char group[GITHUB_GROUP_MAX]; /* ORG: the runner group's name */
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

enum github_limit { /* with GITHUB_FAULT_LIMIT */
	GITHUB_LIMIT_NONE,
	GITHUB_LIMIT_PRIMARY,   /* so many calls an hour; retry_after_ms ends when the hour does */
	GITHUB_LIMIT_SECONDARY, /* too much at once; where GitHub names no time, the asker's wait has to grow */
	GITHUB_LIMIT_COUNT
};

struct github_reply {
	struct msg_head head;
	int32_t code;        /* 0 or -errno */
	int32_t fault;       /* enum github_fault */
	int32_t http_status; /* 0: none */
	uint32_t is_private, found, online, busy, may_exist;
	uint64_t runner_id, retry_after_ms;
	uint32_t rate_remaining, rate_limit, rate_reset_s; /* rate_limit 0: GitHub did not say; seconds until the quota is whole */
	int32_t limit_kind; /* enum github_limit */
	uint32_t calls, calls_free;
	uint64_t group_id;
	uint64_t credential_expires; /* epoch seconds; 0: GitHub has not said */
	char text[ERROR_TEXT_MAX];
};
extern const size_t github_message_sizes[GITHUB_TYPE_COUNT];
#endif
