#ifndef BOXERY_LINK_LINK_H
#define BOXERY_LINK_LINK_H
/*
 * The link of `boxery runners once`: newline-delimited JSON objects, both ways, between the controller (boxery) and the host
 * (boxery-host runners __once) over an ssh connection or a pair of pipes. The other end is not trusted: a line, its depth and
 * what waits to be written are bounded; what is no JSON object with a "type" ends the link; unknown types and keys are ignored.
 *
 * from        type        keys
 * both        hello       protocol, oldest (numbers: the newest and the oldest that this end speaks), version
 *                         host: also host (its id), arch ("x64", "arm64", "arm": what GitHub calls it, no other is taken)
 * both        beat        - every LINK_BEAT_MS; who has heard nothing for LINK_SILENT_MS takes the other end for dead
 * controller  lease       pool, scope, wait_ms, ttl_ms, follow (boolean: send the runner's output)
 * host        progress    text: what the host waits for
 * host        leased      vm, lease, runner (the name to register under, boxery-local-...; no other is taken)
 * controller  deliver     runner_id, jit: the one secret that ever crosses; wiped by both ends
 * host        delivered   -
 * host        hint        state "listening" or "running", text: as the guest's console says it, so it decides nothing
 * host        output      text: a line of the console, made harmless
 * controller  busy        job: GitHub says that the runner has this job
 * controller  release     outcome: take the VM back now
 * host        ended       clean (boolean: the guest powered itself off), text: the lease has ended, its VM is being reset
 * host        reset       ok (boolean), text
 * controller  outcome     outcome, gone (boolean: the registration is known to be gone): the last word
 * host        error       status (an exit status, base/error.h), text: the host gives up; it has released what it held
 *
 * The controller ends the link by closing its side. A host whose input ends releases the VM at once.
 */
#include "base/error.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINK_PROTOCOL 1
#define LINK_OLDEST 1
#define LINK_LINE_MAX (96 * 1024)   /* a JIT config may have 64 KiB */
#define LINK_QUEUE_MAX (256 * 1024) /* not yet taken by the other end */
#define LINK_BUFFER_MAX (8 * 1024 * 1024)
#define LINK_DEPTH_MAX 8
#define LINK_TEXT_MAX 400 /* of a text that is shown */
#define LINK_BEAT_MS 15000
#define LINK_SILENT_MS 120000

enum link_type {
	LINK_HELLO,
	LINK_BEAT,
	LINK_LEASE,
	LINK_PROGRESS,
	LINK_LEASED,
	LINK_DELIVER,
	LINK_DELIVERED,
	LINK_HINT,
	LINK_OUTPUT,
	LINK_BUSY,
	LINK_RELEASE,
	LINK_ENDED,
	LINK_RESET,
	LINK_OUTCOME,
	LINK_ERROR,
	LINK_TYPE_COUNT
};
const char *link_type_to_string(enum link_type v);
int link_type_from_string(const char *s, enum link_type *ret);

/* Bytes of one direction. Freed blocks are wiped. Starts as LINK_BUFFER_INIT. */
struct link_buffer {
	char *data;
	size_t len, cap;
};
#define LINK_BUFFER_INIT ((struct link_buffer){0})
void link_buffer_free(struct link_buffer *b);
int link_add(struct link_buffer *b, const void *data, size_t len); /* 0 or -ENOMEM, up to LINK_BUFFER_MAX */

/* Takes what is there: bytes read, 0 at the end of the stream, -EAGAIN, or an error. At most LINK_LINE_MAX are kept. */
int link_read(struct link_buffer *in, int fd, struct error *e);
/*
 * The next message out of what was read: 1 with *ret (the caller's to json_decref) and *ret_type, 0 when no whole line is
 * there, -EBADMSG when the other end does not keep to the rules. Unknown types are skipped.
 */
int link_next(struct link_buffer *in, enum link_type *ret_type, json_t **ret, struct error *e);
/* Adds {"type": ..., ...message}; steals message (NULL: no further keys). -E2BIG when too much waits already. */
int link_put(struct link_buffer *out, enum link_type type, json_t *message, struct error *e);
/* Writes what goes: 0 when nothing is left, 1 when some is, or an error. */
int link_flush(struct link_buffer *out, int fd, struct error *e);

/* Values of a message. A text that is missing or no string is "". */
const char *link_text(const json_t *message, const char *key);
/* Copies the text made harmless, at most size - 1 bytes of it. */
void link_shown(const json_t *message, const char *key, char *dst, size_t size);
uint64_t link_number(const json_t *message, const char *key, uint64_t max); /* 0 unless 0..max */
bool link_true(const json_t *message, const char *key);

/* Of a hello: the protocol that both speak, or -EOPNOTSUPP with what must be upgraded. us, them: names for the sentence. */
int link_agree(const json_t *hello, const char *us, const char *them, struct error *e);

/* The arch of a host's hello: 0, or -EOPNOTSUPP when there is no runner for it. It becomes a label, and jobs come by that. */
#define LINK_ARCH_MAX 8
int link_arch(const json_t *hello, char dst[static LINK_ARCH_MAX], struct error *e);

/* jansson's memory is wiped when it is freed, from here on. Before anything else uses jansson. */
void link_wipe_memory(void);
void link_wipe(void *p, size_t len);
void *link_memory(size_t size);
void link_memory_free(void *p); /* wipes; what json_dumps gives is freed with it */
#endif
