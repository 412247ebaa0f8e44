#ifndef BOXERY_POOL_KEEPER_H
#define BOXERY_POOL_KEEPER_H
/* The inside of boxery-keeper; included by keeper*.c only. The theory of operation is at the top of keeper.c. */
#include "linux/hostconf.h"
#include "linux/loop.h"
#include "pool/keeper_limits.h"
#include "pool/proto.h"
#include "pool/store.h"
#include "vm/proto.h"
#include <sys/queue.h>

struct keeper;
struct op;
struct delivery;
struct watch;
struct spare;

/* POOL_ADD with a count, while the first one is being captured. */
struct grow {
	uint32_t count; /* 0: nothing is wanted */
	uint64_t client;
	enum vm_state awaited;
};

/* A VM as this process knows it. What must survive is in `row`, which is the store's row, renewed by every change. */
struct keeper_vm {
	struct keeper *k;
	struct vm_row row;
	uint64_t entered_us;   /* boot clock: the state began then, or we did */
	bool confirmed;        /* libvirt has said to this keeper that this life runs; only such a READY VM is leased */
	bool running;          /* what libvirt said last, or the last operation */
	uint64_t running_us;   /* when that was */
	uint64_t remover;      /* client that wants to know when it is removed (row.removing) */
	unsigned failed_removals; /* in a row, with nobody to be told */
	unsigned blamed;       /* failures in a row that were put down to libvirt */
	unsigned unread;       /* times in a row that its lease or its events could not be read */
	bool unadopted;        /* DELIVERED by an earlier keeper, and its events could not be read yet */
	uint64_t asker;        /* client whose request the next effect serves */
	uint64_t awaiter;      /* client that wants to know when it has come to awaited, and the request it asked with */
	uint32_t awaiter_seq;
	enum vm_state awaited;
	uint64_t bound_client; /* the open lease ends with this connection; 0: not bound, or bound to an earlier keeper's */
	bool bound;            /* what the store says: it was bound to some connection */
	uint64_t console_cut;  /* generation whose cut console was recorded */
	uint64_t seen_generation; /* the highest that libvirt has listed */
	char holder[HOLDER_MAX]; /* of the open lease, and how long its VM is to be kept */
	uint64_t keep_ms;
	char *trouble;         /* what is wrong with its files or its domain, as the last listing said; or NULL */
	bool host_short;       /* not started, because the host has too little memory or disk now */
	struct grow grow;      /* others to be made from its clean state, once it has one */
	struct op *op;         /* the one operation that may change it, queued or running */
	struct delivery *delivery;
	sd_event_source *retry;    /* armed: nothing is begun before it fires */
	sd_event_source *expiry;   /* of the open lease */
	sd_event_source *deadline; /* of the state */
	sd_event_source *stopped;  /* armed: the domain has stopped, its start has not said so yet */
	uint64_t stopped_generation;
};

enum client_wait {
	CLIENT_IDLE,
	CLIENT_WORK,  /* an operation or delivery has its id and replies */
	CLIENT_LEASE, /* in keeper.lessees */
	CLIENT_VMS,   /* until `awaits` VMs have come where keeper_vm.awaited says */
};
struct client {
	TAILQ_ENTRY(client) link;
	TAILQ_ENTRY(client) queue; /* while CLIENT_LEASE; in the order of `asked` */
	struct keeper *k;
	uint64_t id; /* never used again, so that whoever holds one may look up a client that has gone */
	int fd;
	bool gone, subscribed;
	enum client_wait wait;
	unsigned awaits;
	struct keeper_request request; /* the one being served */
	/* of LEASE: its place in the queue, until when it waits, and what went wrong with VMs that were woken for it */
	uint64_t asked, until_us;
	unsigned failed_wakes;
	char failure[KEEPER_TEXT_MAX / 2];
	sd_event_source *io, *deadline;
};
TAILQ_HEAD(client_list, client);

/* What boxery-vm listed; entries[n]. */
struct listing {
	struct vm_entry *entries;
	size_t n, cap;
};
int listing_add(struct listing *l, const struct vm_entry *entry); /* -E2BIG, -ENOMEM */
void listing_free(struct listing *l);

typedef void (*op_done_cb)(struct op *op, const struct error *e); /* e->code 0: done; step and reason are in op */
struct op {
	TAILQ_ENTRY(op) link;
	struct keeper *k;
	struct vm_request request; /* head.type is the verb */
	uint64_t generation;       /* of the VM when this was asked */
	uint64_t client;           /* gets the progress; 0: nobody */
	uint64_t timeout_ms, began_us;
	bool exclusive, running;   /* exclusive: keeper_vm.op points here */
	bool slow;                 /* runs for long, and does not hold a place any more */
	op_done_cb done;
	struct error cause;        /* for done: kept over a second operation */
	/* from the child */
	unsigned steps;
	bool has_result, broken;
	bool making;               /* NEW: it has begun to make what was not there */
	struct vm_result result;
	char step[STEP_MAX];       /* where it failed, or "" */
	struct event_row *rows;    /* its steps, not recorded yet */
	size_t n_rows;
	struct listing listing;
	void *document;            /* CHECK: a json_t array */
	int fd;
	sd_event_source *io, *grace, *slow_timer, *record;
	struct loop_child *child;
};
TAILQ_HEAD(op_list, op);

struct keeper {
	struct hostconf conf;
	struct store *store;
	sd_event *event;
	sd_event_source *kick, *listener, *shutdown, *log_timer;
	int lock_fd, listen_fd, config_dir, state_dir, delivery_key;
	char boot_id[BOOT_ID_MAX];
	char delivery_line[VM_KEY_LINE_MAX], admin_line[VM_KEY_LINE_MAX]; /* public halves */
	struct keeper_vm **vms; /* in name order */
	size_t n_vms;
	struct client_list clients, lessees;
	unsigned n_clients;
	uint64_t next_client, next_ask;
	struct op_list ops; /* queued and running */
	unsigned work_running, resets_running, wakes_running, asks_running, slow_running, deliveries;
	struct pool_row *pools; /* what is set for pools; in name order */
	size_t n_pools;
	struct watch *watch;
	char strangers[KEEPER_STRANGERS_MAX][VM_NAME_MAX]; /* domains of ours that the store does not know, and that were told of */
	unsigned n_strangers;
	struct spare *spares[KEEPER_SPARES]; /* oldest first, then NULL */
	sd_event_source *spare_timer;
	bool listed;    /* libvirt has been compared with the store at least once */
	bool connected; /* libvirt answered last time; while it does not, nothing new is started */
	uint64_t outage_us; /* since when it does not; 0: it does, or nothing is known yet */
	bool stopping, listen_passed;
};

/* keeper.c */
int keeper_run(const struct hostconf *conf, struct error *e); /* returns when the keeper has ended */
void keeper_stop(struct keeper *k);                           /* takes no more work, ends when what runs has ended */
/* Has the rest done soon, from the loop: gone clients, waiting lessees, queued operations, VMs to start. Everything that
 * may call back into its caller goes through here. */
void keeper_kick(struct keeper *k);
struct keeper_vm *keeper_find(struct keeper *k, const char *name);
int keeper_vm_track(struct keeper *k, const char *name, struct keeper_vm **ret, struct error *e); /* a row that is stored */
void keeper_vm_forget(struct keeper_vm *v);                                                       /* frees it */

/* keeper_change.c: the only caller of store_apply() */
int keeper_apply(struct keeper_vm *v, uint64_t generation, enum vm_happening what, const struct store_detail *d,
		struct error *e);
void keeper_note(struct keeper_vm *v, enum vm_happening what, const char *reason); /* of this life; errors are logged */
void keeper_retry(struct keeper_vm *v, uint64_t in_ms);  /* nothing is begun before; then keeper_settle() */
void keeper_settle(struct keeper_vm *v);                 /* whatever the state is: sees to it that something moves it on */
/* What the store has of its lease cannot be read now: keeper_settle() tries it again, and after KEEPER_UNREAD_MAX times it is a doubt. */
void keeper_unread(struct keeper_vm *v, const char *what, const struct error *why);
void keeper_record(struct keeper_vm *v, const char *kind, const char *text, uint64_t took_us); /* an event row */
uint64_t keeper_backoff_ms(int32_t attempts);
/* STOPPED or DOUBT, which count as a failed start when the VM has only just become READY. */
void keeper_life_ended(struct keeper_vm *v, uint64_t generation, enum vm_happening what, const char *step, const char *reason);
void keeper_await(struct keeper_vm *v, struct client *c, enum vm_state awaited); /* COLD or READY; then CLIENT_VMS */
void keeper_await_end(struct keeper_vm *v, const struct error *e); /* answers that client; e->code 0: the VM has come there */

/* keeper_deadline.c: how long a state may last */
void deadline_watch(struct keeper_vm *v); /* after every change, and when what it depends on has changed */
/* Its holder had a connection to the keeper before this one, and none to this one yet: it has KEEPER_REJOIN_MS. */
bool deadline_is_orphan(const struct keeper_vm *v);
int64_t deadline_left_ms(const struct keeper_vm *v); /* of KEPT; 0 of any other */

/* keeper_effect.c: what follows a change, and what its end means */
void effect_start(struct keeper_vm *v);
void effect_reset(struct keeper_vm *v);
void effect_halt(struct keeper_vm *v);
void effect_capture(struct keeper_vm *v);
bool starts_cold_only(const struct keeper_vm *v); /* warm has failed too often; a repair tries it again */
bool starts_warm(const struct keeper_vm *v);      /* while STARTING: was started so; else: would be */
uint64_t start_timeout_ms(const struct keeper_vm *v); /* what boxery-vm is given for it */
int life_check(const struct vm_result *res, struct error *e); /* a host key and an address */

/* keeper_host.c: may this VM be started on this host now? -ENOMEM, -ENOSPC with a sentence. */
int host_room(const struct keeper_vm *v, struct error *e);
int host_memory_total_mib(uint64_t *ret, struct error *e);
int host_disk_mib(const struct keeper *k, uint64_t *ret_free, uint64_t *ret_total, struct error *e);

/* keeper_op.c: children of boxery-vm. A queued or running op owns itself. */
struct op *op_new(struct keeper *k, enum vm_verb verb, struct keeper_vm *v, uint64_t client, uint64_t timeout_ms,
		op_done_cb done); /* NULL: no memory */
void op_queue(struct op *op, struct keeper_vm *exclusive);
struct op *op_cancel(struct op *op); /* kills it; done is not called; takes NULL */
void op_record(struct op *op);       /* its steps so far; whoever has recorded them himself sets n_rows to 0 */
void ops_run(struct keeper *k);      /* starts what may start now */
bool ops_room(const struct keeper *k); /* could a VM be started now? */
const char *vm_verb_word(enum vm_verb verb);
int vm_child(int *ret_fd, struct child *ret, struct error *e); /* waits for its request on *ret_fd */

/* keeper_spare.c: children that were started ahead and wait for their request */
void spares_fill(struct keeper *k, uint64_t in_ms); /* so many as are missing, one after the other */
/* true: one has got this request; its socket, and itself, which has no deadline yet. */
bool spare_take(struct keeper *k, const struct vm_request *request, int *ret_fd, struct loop_child **ret);
void spares_free(struct keeper *k);

/* keeper_vm_answer.c: what such a child says */
union vm_answer {
	struct msg_head head;
	struct vm_step step;
	struct vm_entry entry;
	struct vm_event_msg event;
	struct vm_result result;
};
/* 1: *ret filled and its texts terminated and shown; 0: end; -EAGAIN; -EBADMSG. `watch`: events instead of results. */
int vm_answer_receive(int fd, bool watch, union vm_answer *ret, struct error *e);

/* keeper_log.c */
void keeper_log_watch(struct keeper *k); /* from now on the log has a largest size */

/* keeper_watch.c */
int watch_start(struct keeper *k, struct error *e);
struct watch *watch_free(struct watch *w);

/* keeper_libvirt.c */
void libvirt_is(struct keeper *k, bool connected, const char *why);
/* An operation could not reach libvirt. The next listing says that it is back. */
void libvirt_lost(struct keeper *k, const char *why);
uint64_t libvirt_grace_ms(const struct keeper *k); /* what needs libvirt waits so long before its failure counts; 0: it does not */
/*
 * Libvirt has just gone: no failure of the VM's, and its next try waits. One that stays away is a failure, and so is one that
 * comes back and refuses the same VM again and again: then e says so as well.
 */
bool libvirt_to_blame(struct keeper_vm *v, struct error *e);

/* keeper_reconcile.c */
/* Compares libvirt's listing with the store. What began after floor_us cannot be judged by it. */
void keeper_reconcile(struct keeper *k, const struct listing *l, uint64_t floor_us);

/* keeper_adopt.c */
int adopt_all(struct keeper *k, struct error *e); /* at start-up, before the first request */
void adopt_delivered(struct keeper_vm *v); /* was its delivery cut off? again, when that could not be read */

/* keeper_server.c */
int server_lock(struct keeper *k, struct error *e); /* first of all: -EBUSY when another keeper runs */
int server_open(struct keeper *k, struct error *e);
void server_close(struct keeper *k); /* no new connections */
void server_free(struct keeper *k);
void server_sweep(struct keeper *k); /* frees those that have gone */
struct client *client_find(struct keeper *k, uint64_t id); /* NULL when gone */
void client_wait(struct client *c, enum client_wait wait);
/* Answers the request being served, if there is one; c may be NULL. document: -1, or a sealed memfd, closed here. */
void client_reply(struct client *c, const struct keeper_reply *reply, int document);
void client_reply_ok(struct client *c, const struct keeper_vm *v); /* v: NULL, or its name, address and generation are told */
void client_reply_error(struct client *c, const struct error *e);
void client_progress(struct client *c, const char *text);
void keeper_progress(struct keeper_vm *v, uint64_t client, const char *text); /* to all who wait for this VM, and this client */
void keeper_publish(struct keeper_vm *v, const struct keeper_event *event);

/* keeper_request.c: type -> handler. 0: `out` is sent; REPLY_LATER; -errno: e is sent. */
#define REPLY_LATER 1
struct request {
	struct keeper *k;
	struct client *client;
	const struct keeper_request *in;
	struct keeper_vm *vm; /* of `name`, when the rule says so */
	int secret;           /* received fd; a handler that keeps it takes it */
	struct keeper_reply out;
	int document;
};
int request_serve(struct request *r, struct error *e);
int request_rules_check(struct error *e);

int serve_new(struct request *r, struct error *e); /* keeper_admin.c */
int serve_start(struct request *r, struct error *e);
int serve_stop(struct request *r, struct error *e);
int serve_check(struct request *r, struct error *e);
int serve_filter(struct request *r, struct error *e);
int serve_uninstall(struct request *r, struct error *e);
int serve_pool_add(struct request *r, struct error *e); /* keeper_pool.c */
int serve_pool_repair(struct request *r, struct error *e);
int serve_remove(struct request *r, struct error *e);
void pool_grow(struct keeper_vm *v); /* its clean state is there: the others can be made */
int serve_pool_set(struct request *r, struct error *e); /* keeper_pools.c */
int serve_pools(struct request *r, struct error *e);
int pools_load(struct keeper *k, struct error *e);
const struct pool_settings *pool_settings(const struct keeper *k, const char *pool); /* never NULL */
/* How many VMs of this pool a holder has to leave to others right now. */
unsigned pool_reserved(const struct keeper *k, const char *pool, const char *holder);
int serve_pool_remove(struct request *r, struct error *e);
int serve_pool_patch(struct request *r, struct error *e); /* keeper_patch.c */
void patches_begin(struct keeper *k); /* whoever's turn it is */
bool patch_begun(const struct keeper_vm *v); /* and is not decided yet */
/* Why the patch that was asked for has not begun, "": it has, or none was asked for. */
void patch_waits(const struct keeper_vm *v, char dst[static KEEPER_TEXT_MAX]);
/* After a change: the patch to `image` that was wanted before it ("": none) may be over. */
void patch_ended(struct keeper_vm *v, const char *image);
/* The first start of a patched clean state fails for the image, not for the VM. */
enum vm_happening patch_happening(const struct keeper_vm *v, enum vm_happening what);
void pool_removed_soon(struct keeper_vm *v); /* a VM that is being removed has come to rest */
void pool_remove_again(struct keeper_vm *v); /* what another keeper began, or what has failed */
int serve_lease(struct request *r, struct error *e); /* keeper_lease.c */
int serve_renew(struct request *r, struct error *e);
int serve_pool_keep(struct request *r, struct error *e);
void lessees_serve(struct keeper *k);
bool lease_runs(const struct keeper_vm *v); /* a holder has it, or an admin looks at it */
void lease_load(struct keeper_vm *v);       /* what this process knows of the open lease, from the store */
void lease_watch_expiry(struct keeper_vm *v); /* arms or drops the timer of the open lease */
uint64_t lease_left_ms(const struct keeper *k, const struct lease_row *lease); /* of another boot of the host: 0 */
void lease_reply(struct client *c, struct keeper_vm *v); /* the answer to LEASE, or its end when the client has gone */
/* It is awake and nobody's yet: the key is put in, or LEASE is answered. c may be NULL. */
int lease_hand_over(struct client *c, struct keeper_vm *v, struct error *e);
/* Not v, which could not be woken: another one, now or within the time it would wait. */
void lease_again(struct client *c, const struct keeper_vm *v, const char *reason);
int wake_begin(struct client *c, struct keeper_vm *v, struct error *e); /* keeper_wake.c; LEASED and asleep */
/* WAKE_FAILED, or INTERRUPTED, which is no failure of the VM's; d: step, reason, took_us. */
void wake_failed(struct keeper_vm *v, uint64_t client, enum vm_happening what, const struct store_detail *d);
int serve_register(struct request *r, struct error *e); /* keeper_holder.c */
int serve_job_seen(struct request *r, struct error *e);
int serve_release(struct request *r, struct error *e);
int serve_outcome(struct request *r, struct error *e);
int serve_note(struct request *r, struct error *e);
int grant_check(const struct keeper_request *in, struct error *e); /* keeper_grant.c: LEASE's key line */
int grant_begin(struct client *c, struct keeper_vm *v, struct error *e);
void grant_end(struct keeper_vm *v, const char *reason); /* the life it, or a wake-up, was for has ended */
int serve_deliver(struct request *r, struct error *e); /* keeper_deliver.c */
void delivery_end(struct keeper_vm *v, const char *reason); /* the life it was for has ended */
int serve_list(struct request *r, struct error *e); /* keeper_list.c */
int serve_leases(struct request *r, struct error *e);
int serve_history(struct request *r, struct error *e);
int list_document(void *json, int *ret_fd, struct error *e); /* takes a json_t, NULL: no memory */

/* keeper_keys.c */
int keys_load(struct keeper *k, struct error *e); /* makes what is missing; may run ssh-keygen, so only before the loop */
int host_key_check(const char *line, struct error *e);
int host_key_publish(struct keeper *k, const struct vm_row *row, struct error *e); /* config_dir/host-keys/NAME */
void host_key_withdraw(struct keeper *k, const char *name);
#endif
