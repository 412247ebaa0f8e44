#ifndef BOXERY_VM_BEGIN_H
#define BOXERY_VM_BEGIN_H
/* The text of the calls that begin a life and add a key to it, and the guest's answer to the first: guest/CONTRACT.md. Pure. */
#include "base/str.h"
#include "vm/hostkey.h"
#include <stdbool.h>

#define BEGIN_PROGRAM "/usr/lib/boxery/begin"
#define BEGIN_LIST "list"
#define BEGIN_SETTLE "settle"
#define READY_PROGRAM "/usr/lib/boxery/ready"
#define GRANT_PROGRAM "/usr/lib/boxery/grant"
#define BEGIN_TEXT_MAX (16 * 1024)
#define BEGIN_SEED_SIZE 64
#define BEGIN_LINE_MAX 2048
#define BEGIN_SEEN_MAX (16 * 1024) /* as LISTING_MAX in the guest */
/* What the delivery key may do in the guest, whatever is asked for with it. */
#define DELIVERY_OPTIONS "command=\"/usr/lib/boxery/deliver\",restrict "

struct begin_answer {
	uint64_t generation;
	char host_key[VM_HOST_KEY_MAX], address[VM_ADDRESS_MAX], kernel[64];
	uint64_t clock_ns;
	bool lease;
	char seen[BEGIN_SEEN_MAX]; /* its listing before it began, see listing.h */
};
/*
 * key_lines: one or more lines of authorized_keys, separated by newlines; each is prefixed with
 * DELIVERY_OPTIONS when `delivery`. The caller wipes b. The time is put in by this call: send it at once.
 */
int begin_render(struct buf *b, uint64_t generation, const char *address, const char *key_lines,
	bool delivery, const struct hostkey *key, struct error *e);
/* The text of the call that lets one more key in: one line of authorized_keys, without options. */
int grant_render(struct buf *b, uint64_t generation, const char *key_line, struct error *e);
/* The state of the guest's system after its boot: "running", "degraded" ... */
int ready_parse(const char *text, char *ret_system, size_t size, struct error *e);
/* The listing alone: what `begin list` and `begin settle` answer. */
int seen_parse(const char *text, char ret[static BEGIN_SEEN_MAX], struct error *e);
/* Strict: every key exactly once but for `seen`, `done` last, nothing else. */
int begin_parse(const char *text, struct begin_answer *ret, struct error *e);
#endif
