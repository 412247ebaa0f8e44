#ifndef BOXERY_MANAGER_ONCE_H
#define BOXERY_MANAGER_ONCE_H
/*
 * `boxery-host runners __once`: the host's end of the link of `boxery runners once` (link/link.h). One process, one lease, one
 * job. It holds its lease by its connection to the keeper and by nothing else: whatever ends this process, the kernel closes
 * that connection and the keeper resets the VM. The other end is a person's machine and may vanish at any time: the end of
 * standard input, or silence for LINK_SILENT_MS, is the end.
 *
 * Should: lease, pass one JIT config on as a sealed memfd (and wipe it), tell how the VM fares. Mustn't: ask GitHub anything,
 * write a file, hold a credential.
 */
#include "linux/loop.h"
#include "link/link.h"
#include "manager/keeper_link.h"
#include "manager/outcome.h"
#include <stdbool.h>

/* Only once_enter() changes it. */
enum once_state {
	ONCE_GREETING,   /* the keeper's name for this host is asked for */
	ONCE_IDLE,       /* greeted; nothing is held */
	ONCE_LEASING,    /* the keeper was asked, perhaps again and again until wait_ms is over */
	ONCE_PLANNING,   /* leased; the keeper writes down that a registration may come to be */
	ONCE_LEASED,     /* the controller knows; it registers now */
	ONCE_DELIVERING, /* the secret is with the keeper */
	ONCE_DELIVERED,  /* the guest has it */
	ONCE_REJOINING,  /* the keeper is gone and the guest runs on; bound to us again when the keeper is back */
	ONCE_RELEASING,  /* the keeper was asked to take the VM back */
	ONCE_ENDED,      /* the lease is over, the VM is being reset */
	ONCE_OVER,       /* the controller knows how the reset went; its last word is awaited */
	ONCE_LEAVING,    /* nobody is there any more; only the keeper is waited for: its return, so that it resets the VM, or a last note */
	ONCE_STATE_COUNT
};

struct once {
	sd_event *ev;
	struct hostconf conf;
	struct keeper_link *keeper;
	enum once_state state;
	struct link_buffer in, out;
	sd_event_source *in_io, *out_io, *beat, *silence, *due, *tail;
	/* What was asked for. */
	char pool[VM_NAME_MAX], scope[SCOPE_MAX];
	uint64_t ttl_ms, wait_until_ms, expires_ms;
	bool greeted, follow;
	/* What is held. */
	char vm[VM_NAME_MAX], lease[LEASE_ID_MAX], runner_name[RUNNER_NAME_MAX];
	uint64_t generation, runner_id;
	int jit_fd;
	/* The console: a hint for people. */
	int console;
	char line[LINK_TEXT_MAX];
	size_t line_len;
	unsigned left_out;
	unsigned notes; /* not yet written down by the keeper */
	int status; /* of this process */
};

/* The whole program; returns its exit status. */
int once_main(void);

const char *once_state_to_string(enum once_state v);
int once_state_from_string(const char *s, enum once_state *ret);
void once_enter(struct once *o, enum once_state state);
void once_send(struct once *o, enum link_type type, json_t *message); /* steals message */
/* Tells the other end and ends this process; what is held ends with it. */
void once_fail(struct once *o, const struct error *e);
void once_tell(struct once *o, const struct error *e); /* only the message */
/* The other end is gone: ends this process, unless the keeper has to be waited for. */
void once_leave(struct once *o, const char *why);
void once_ask(struct once *o, struct keeper_request *r, int secret_fd, keeper_cb cb);
uint64_t once_now_ms(void);
int once_timer(struct once *o, sd_event_source **s, uint64_t in_ms, sd_event_time_handler_t cb);

/* Acts of once_lease.c. */
void once_greet(struct once *o);
void once_lease(struct once *o);
void once_deliver(struct once *o);
void once_release(struct once *o, const char *outcome);
void once_note(struct once *o, enum keeper_type type, const char *text); /* JOB_SEEN, OUTCOME: nothing depends on it */
void once_gone(struct once *o);
extern const struct keeper_link_ops once_keeper_ops;

/* once_link.c */
int once_on_input(sd_event_source *s, int fd, uint32_t events, void *userdata);

/* once_console.c: what the runner says from now on, until the lease ends. A console that cannot be read is not followed. */
void once_console_open(struct once *o);
void once_console_start(struct once *o);
/* True when the line is one of the runner's own that say something; *ret_state is then "listening" or "running". */
bool once_console_hint(const char *line, const char **ret_state, const char **ret_rest);
#endif
