#ifndef BOXERY_VM_OP_H
#define BOXERY_VM_OP_H
/*
 * One function per verb. The request's strings have been checked by main; res starts as zeros and keeps what
 * was filled in only when the result is 0. All are idempotent: whatever point a process of an earlier try was
 * killed at, doing it again ends the same.
 */
#include "vm/host.h"
#include "vm/settings.h"
#include "vm/virt.h"

typedef int (*op_fn)(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_check(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_new(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_start(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_wake(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_reset(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_stop(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_capture(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_remove(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_grant(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_patch(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_settle(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_filter(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_list(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
int op_uninstall(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);
/* Never returns 0: it lives until the keeper closes its end (-EPIPE). */
int op_watch(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e);

/* Ends the life, up to that generation, and whatever the host keeps of it outside of files. */
int op_end_life(struct host *h, const char *name, uint64_t generation, struct error *e);
/* Network, filter and guard, under their lock. */
int op_network(struct host *h, struct error *e);
/* Sends a VM_ENTRY for each domain of ours, and for each settings file without one, when `stopped` or when there is doubt
 * about it. found is called for each running one; may be NULL. */
int op_entries(struct host *h, bool stopped, void (*found)(void *userdata, const struct life *life),
	void *userdata, struct error *e);
#endif
