/*
 * boxery-vm: the only process that holds a libvirt connection. Born with the keeper's socket as fd 3, takes
 * one request, does it, answers, ends. What it may do is the table of verbs below; the request carries a
 * checked name and numbers.
 *
 * When no request is there yet it is a spare, which the keeper has started ahead: it connects to libvirt and waits, as long
 * as the keeper lives. Settings are read, and the connection is tried, when the request has come.
 */
#include "base/str.h"
#include "linux/log.h"
#include "linux/secret.h"
#include "vm/op.h"
#include "vm/probe.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#define KEEPER_FD 3
/* On top of what the request allows: a libvirtd that hangs in a call is not waited for. No result means
 * failure. */
#define HANG_GRACE_S 60

static const struct verb {
	op_fn run;
	const char *name;
	bool named;	  /* takes a VM's name */
	unsigned limit_s; /* 0: the start's own deadline; the process is ended by SIGALRM after it and the
			     grace */
} verbs[] = {
	[VM_CHECK] = {op_check, "check", false, 120},
	[VM_NEW] = {op_new, "new", true, 120},
	[VM_START] = {op_start, "start", true, 0},
	[VM_RESET] = {op_reset, "reset", true, 120},
	[VM_STOP] = {op_stop, "stop", true, 0},
	[VM_CAPTURE] = {op_capture, "capture", true, 3600},
	[VM_REMOVE] = {op_remove, "remove", true, 120},
	[VM_FILTER] = {op_filter, "filter", true, 60},
	[VM_LIST] = {op_list, "list", false, 60},
	[VM_WATCH] = {op_watch, "watch", false, 0},
	[VM_GRANT] = {op_grant, "grant", true, 60},
	[VM_WAKE] = {op_wake, "wake", true, 60},
	[VM_UNINSTALL] = {op_uninstall, "uninstall", false, 120},
	[VM_PATCH] = {op_patch, "patch", true, 900},
	[VM_SETTLE] = {op_settle, "settle", true, 60},
};

static int request_check(const struct vm_request *q, struct error *e)
{
	if (!str_is_terminated(q->name, sizeof(q->name)) || !str_is_terminated(q->image, sizeof(q->image)) ||
		!str_is_terminated(q->key_line, sizeof(q->key_line)) ||
		!str_is_terminated(q->clean_of, sizeof(q->clean_of)))
		return error_set(e, EBADMSG, "the keeper sent a text without an end");
	if (q->clean_of[0] && name_check(q->clean_of, "VM name", e) < 0)
		return -EINVAL;
	return verbs[q->head.type].named ? name_check(q->name, "VM name", e) : 0;
}

static void limit_time(const struct host *h, const struct vm_request *q)
{
	uint64_t ms = q->timeout_ms > h->conf.start_timeout_ms ? q->timeout_ms : h->conf.start_timeout_ms;
	unsigned limit = verbs[q->head.type].limit_s;

	if (q->head.type != VM_WATCH)
		(void)alarm((limit ? limit : (unsigned)(ms / 1000u)) + HANG_GRACE_S);
}

static int answer(
	const struct host *h, struct vm_result *res, int r, const struct error *e, struct error *send_error)
{
	if (r < 0) {
		*res = (struct vm_result){.code = r};
		(void)str_copy(res->step, h->step);
		(void)str_copy(res->text, e->text);
	}
	res->head = MSG_HEAD(VM_RESULT, struct vm_result, h->seq);
	return msg_send(h->report_fd, res, NULL, 0, send_error);
}

static int receive(struct vm_request *q, struct error *e)
{
	size_t sizes[ARRAY_SIZE(verbs)] = {0};
	int fds[MSG_FDS_MAX];
	size_t n_fds;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		sizes[i] = vm_message_sizes[i];
	r = msg_recv(KEEPER_FD, sizes, ARRAY_SIZE(sizes), q, sizeof(*q), fds, &n_fds, e);
	for (size_t i = 0; i < MSG_FDS_MAX && r > 0; i++)
		(void)fd_close(fds[i]);
	return r == 0 ? error_set(e, EPIPE, "the keeper closed the connection without a request") : r;
}

static bool is_asked(void)
{
	struct pollfd p = {.fd = KEEPER_FD, .events = POLLIN};

	return poll(&p, 1, 0) != 0;
}

int main(void)
{
	CLEANUP(host_close) struct host h = HOST_INIT;
	struct vm_request q = {0};
	struct vm_result res = {0};
	struct error e = ERROR_INIT, send_error = ERROR_INIT;
	int r;

	log_open("boxery-vm", LOG_INFO);
	if (fcntl(KEEPER_FD, F_SETFD, FD_CLOEXEC) < 0) {
		log_error("this program is started by boxery-keeper, with a socket as file 3");
		return EXIT_STATUS_USAGE;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	virt_init();
	r = secret_init(&e);
	if (r == 0 && !is_asked()) {
		(void)prctl(PR_SET_NAME, VM_SPARE_NAME);
		host_connect_ahead(&h);
	}
	if (r == 0)
		r = receive(&q, &e);
	(void)prctl(PR_SET_NAME, "boxery-vm");
	if (r < 0) {
		log_error("%s", e.text);
		return error_exit_status(&e);
	}
	h.report_fd = KEEPER_FD;
	h.seq = q.head.seq;
	r = request_check(&q, &e);
	if (r == 0)
		r = host_open(&h, &e);
	if (r == 0) {
		limit_time(&h, &q);
		r = verbs[q.head.type].run(&h, &q, &res, &e);
		if (r < 0 && verbs[q.head.type].named)
			host_lock_sweep(&h, q.name);
	}
	/* A watcher whose keeper has gone has nobody to answer to. */
	if (q.head.type == VM_WATCH && r == -EPIPE)
		return EXIT_STATUS_OK;
	if (answer(&h, &res, r, &e, &send_error) < 0)
		log_error("%s %s: nobody takes the result: %s", verbs[q.head.type].name, q.name,
			send_error.text);
	secret_wipe(&q, sizeof(q));
	return r < 0 ? error_exit_status(&e) : EXIT_STATUS_OK;
}
