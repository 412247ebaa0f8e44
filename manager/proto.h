#ifndef BOXERY_MANAGER_PROTO_H
#define BOXERY_MANAGER_PROTO_H
/*
 * The runner service's socket (runtime_dir/runners.sock, 0600), for `boxery-host runners ...`. One request, one reply;
 * SO_PEERCRED: the service's own user and root.
 *
 * request   takes                  reply
 * STATUS    -                      JSON document, see status.c
 * EXPLAIN   -                      JSON document: queued jobs that match no entry
 * PAUSE     scope ("": all)        -  no new leases
 * DRAIN     scope ("": all)        -  no new leases, runners without a job are taken back
 * RESUME    scope ("": all)        -
 * RELOAD    -                      -  as SIGHUP; -EBADMSG with file and line when the old configuration stays
 */
#include "base/parse.h"
#include "linux/msg.h"

#define CONTROL_SOCKET "runners.sock"
/* The consoles of ended leases: STATE_DIR/logs/LEASE.log. */
#define LOGS_FOLDER "logs"
/* Notes in a lease's timeline: GitHub's time (2026-11-29T22:10:01Z) of a step of its job follows. */
#define NOTE_QUEUED "GitHub: job queued "
#define NOTE_STARTED "GitHub: job started "
#define NOTE_COMPLETED "GitHub: job completed "
#define CONTROL_TIMEOUT_MS 10000

enum control_type {
	CONTROL_STATUS = 1,
	CONTROL_EXPLAIN,
	CONTROL_PAUSE,
	CONTROL_DRAIN,
	CONTROL_RESUME,
	CONTROL_RELOAD,
	CONTROL_REPLY,
	CONTROL_TYPE_COUNT
};

struct control_request {
	struct msg_head head;
	char scope[SCOPE_MAX];
};

struct control_reply {
	struct msg_head head;
	int32_t code;
	char text[ERROR_TEXT_MAX];
};
#endif
