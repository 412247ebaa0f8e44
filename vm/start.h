#ifndef BOXERY_VM_START_H
#define BOXERY_VM_START_H
/*
 * The parts of a start, for op_start.c and op_wake.c. In order: start_load(), host_connect(), then what the way of the start
 * needs, then life_begin().
 */
#include "vm/begin.h"
#include "vm/domain.h"
#include "vm/op.h"
#include "vm/warm.h"

enum start_way {
	START_PLAIN,   /* booted from its own disk */
	START_COLD,    /* booted from a fresh overlay */
	START_WARM,    /* memory restored, runs at once */
	START_STANDBY, /* memory restored, stays paused */
	START_WAY_COUNT
};

struct start {
	struct host *h;
	const struct vm_request *q;
	enum start_way way;
	struct settings s;
	struct slot slot;
	struct base_image base;
	struct clean_image clean;
	struct warm_image warm;
	struct virt_choice virt;
	bool was_rated;
	uint32_t cpus, memory_mib;
	uint64_t until_us;
	struct generation gen;		      /* what is recorded of this life */
	const char *chain[DOMAIN_LAYERS_MAX]; /* what the disk must consist of, top first */
	size_t n_chain;
	char overlay[VM_PATH_MAX], console[VM_PATH_MAX];
	virDomainPtr domain;
	bool created; /* a domain may be there that is ours to end */
};
#define CAPTURE_GENERATION 0 /* of the domain of a capture: no life's, so nobody hears of it */

/* Settings, slot, base, clean image, paths. way and q are set. */
int start_load(struct start *s, struct error *e);
void start_done(struct start *s);
/* Milliseconds until the deadline of the whole start. */
uint64_t start_left_ms(const struct start *s);
struct warm_want start_want(const struct start *s);

/* Room and memory for it, and its disk, recorded in gen and chain. */
int start_disk(struct start *s, struct error *e);
int start_network(struct start *s, struct error *e);
/* A domain of that generation, on a new console: booted, or restored from `memory`. Its filter is in force. */
int start_domain(struct start *s, uint64_t generation, const char *memory, struct error *e);
/* Waits for the agent of a guest that boots, and for the end of its boot. */
int start_boot(struct start *s, struct error *e);
/* Runs BEGIN_PROGRAM with one of its other verbs, for timeout_ms or what is left of the start; the listing it answers. */
int start_list(struct start *s, const char *verb, uint64_t timeout_ms, char ret[static BEGIN_SEEN_MAX], struct error *e);
/* What was made must not go on running without anybody who knows it. */
void start_give_up(struct start *s);

/* The host's side of the clean check: disk chain and network card as libvirt has them, read-only files, filter. */
int life_check_outside(struct start *s, struct error *e);
/* begin, clean check, record; fills the result. s->domain runs, and nothing of a life is in it. */
int life_begin(struct start *s, struct vm_result *res, struct error *e);
/* A booted guest against the last capture of the same clean image, if there is one; waits a little for what just ends. */
int life_check_booted(struct start *s, struct error *e);
#endif
