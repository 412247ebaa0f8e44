/*
 * boxery-keeper: the one process that owns the pool on a host.
 *
 * Theory of operation
 *
 * The truth is the database: which VMs there are, each one's state, the open leases. A change of state is looked up in the
 * table (state.c), committed (keeper_apply), told to the world, and only then acted on; the acts (keeper_effect.c) are
 * children of boxery-vm and may be repeated at will. So killing this process at any instruction loses no decision: the next
 * one reads the states and does what each of them calls for (keeper_adopt.c), and takes over the VMs that run on.
 *
 * Everything that happens comes in as one of four things: a request (keeper_server.c, keeper_request.c), the end of a child
 * (keeper_op.c), a word from libvirt by way of the watch child (keeper_watch.c), or a timer. Each of these handlers changes
 * at most what it was called for. What follows for others (a clean VM and somebody who waits for one, a free place and a VM
 * to start, a client that has gone) is left to the kick: one deferred handler that runs when the others have returned. That
 * keeps every handler free of surprises from below.
 *
 * The policy of the pool is three lines in the kick: every pool VM that is COLD is started, as many at once as
 * BOXERY_PARALLEL allows, unless libvirt does not answer or the host is short of memory or disk; a READY VM waits, paused or
 * running, for a holder; one whose turn it is is patched first.
 *
 * One thread; nothing here blocks but the commit. The exception is start-up, before the first request is taken.
 */
#include "pool/keeper.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "linux/log.h"
#include "linux/secret.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>

#define DATABASE "boxery.db"

/* Index of the name, or of the place where it belongs. */
static size_t position(const struct keeper *k, const char *name, bool *found)
{
	size_t low = 0, high = k->n_vms;

	*found = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, k->vms[middle]->row.name);

		if (order == 0) {
			*found = true;
			return middle;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

struct keeper_vm *keeper_find(struct keeper *k, const char *name)
{
	bool found;
	size_t i = position(k, name, &found);

	return found ? k->vms[i] : NULL;
}

int keeper_vm_track(struct keeper *k, const char *name, struct keeper_vm **ret, struct error *e)
{
	struct keeper_vm **vms = reallocarray(k->vms, k->n_vms + 1, sizeof(*vms)), *v;
	bool found;
	size_t i;
	int r;

	if (!vms)
		return error_set(e, ENOMEM, "no memory for a VM");
	k->vms = vms;
	v = calloc(1, sizeof(*v));
	if (!v)
		return error_set(e, ENOMEM, "no memory for a VM");
	r = store_vm_get(k->store, name, &v->row, e);
	if (r < 0) {
		free(v);
		return r;
	}
	v->k = k;
	v->entered_us = clock_boot_us();
	i = position(k, name, &found);
	memmove(vms + i + 1, vms + i, (k->n_vms - i) * sizeof(*vms));
	vms[i] = v;
	k->n_vms++;
	*ret = v;
	return 0;
}

static void vm_free(struct keeper_vm *v)
{
	delivery_end(v, "the VM is gone");
	grant_end(v, "the VM is gone");
	v->op = op_cancel(v->op);
	(void)sd_event_source_disable_unref(v->retry);
	(void)sd_event_source_disable_unref(v->expiry);
	(void)sd_event_source_disable_unref(v->deadline);
	(void)sd_event_source_disable_unref(v->stopped);
	free(v->trouble);
	free(v);
}

void keeper_vm_forget(struct keeper_vm *v)
{
	struct keeper *k = v->k;
	bool found;
	size_t i = position(k, v->row.name, &found);

	if (found) {
		k->n_vms--;
		memmove(k->vms + i, k->vms + i + 1, (k->n_vms - i) * sizeof(*k->vms));
	}
	vm_free(v);
}

/* A start that this host cannot bear now is no failure of the VM: it waits, and says for what. */
static bool host_has_room(struct keeper_vm *v)
{
	struct error e = ERROR_INIT;
	int r = host_room(v, &e);

	if (r < 0 && !v->host_short) {
		log_vm(LOG_WARNING, v->row.name, NULL, "is not started now: %s", e.text);
		keeper_record(v, "host", e.text, 0);
		keeper_progress(v, 0, e.text);
	}
	v->host_short = r < 0;
	if (r == 0)
		return true;
	/* Of this moment only, so in memory only: any change brings the stored ones back. */
	(void)str_copy(v->row.step, "host");
	(void)str_copy(v->row.reason, e.text);
	keeper_retry(v, KEEPER_HOST_RETRY_MS);
	return false;
}

/* Two lines of policy: who is COLD is started while there is room. */
static void start_cold(struct keeper *k)
{
	for (size_t i = 0; i < k->n_vms && k->connected && !k->stopping && ops_room(k); i++) {
		struct keeper_vm *v = k->vms[i];

		if (v->row.state == STATE_COLD && !v->row.removing && !v->retry && !v->op && host_has_room(v))
			keeper_note(v, HAPPENING_START, NULL);
	}
}

static bool at_rest(const struct keeper *k)
{
	return k->work_running == 0 && k->resets_running == 0 && k->wakes_running == 0 && k->asks_running == 0 &&
			k->slow_running == 0 && k->deliveries == 0;
}

static int on_kick(sd_event_source *s, void *userdata)
{
	struct keeper *k = userdata;

	server_sweep(k);
	lessees_serve(k);
	ops_run(k);
	patches_begin(k);
	start_cold(k);
	ops_run(k);
	if (k->stopping && at_rest(k))
		(void)sd_event_exit(k->event, 0);
	return 0;
}

void keeper_kick(struct keeper *k)
{
	if (k->kick)
		(void)sd_event_source_set_enabled(k->kick, SD_EVENT_ONESHOT);
}

static int on_shutdown_deadline(sd_event_source *s, uint64_t us, void *userdata)
{
	struct keeper *k = userdata;

	log_warning("some operations did not end in time; the next keeper does them over");
	(void)sd_event_exit(k->event, 0);
	return 0;
}

void keeper_stop(struct keeper *k)
{
	struct error e = ERROR_INIT;

	if (k->stopping)
		return;
	log_info("ending; VMs and running jobs are left alone");
	(void)sd_notify(0, "STOPPING=1");
	k->stopping = true;
	spares_free(k);
	server_close(k);
	if (loop_timer(k->event, &k->shutdown, KEEPER_SHUTDOWN_MS, on_shutdown_deadline, k, &e) < 0)
		(void)sd_event_exit(k->event, 0);
	keeper_kick(k);
}

static void on_stop_signal(void *userdata)
{
	keeper_stop(userdata);
}

static int open_dir(const char *path, int *ret, struct error *e)
{
	int r = dir_make(path, 0700, e);

	return r < 0 ? r : dir_open(AT_FDCWD, path, ret, e);
}

/* 256 clients and the children's sockets are more than some defaults allow. */
static void raise_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max < 4096 ? l.rlim_max : 4096;
		(void)setrlimit(RLIMIT_NOFILE, &l);
	}
}

static int open_files(struct keeper *k, struct error *e)
{
	char path[sizeof(k->conf.state_dir) + sizeof(DATABASE) + 1];
	int r = server_lock(k, e);

	if (r == 0)
		r = open_dir(k->conf.state_dir, &k->state_dir, e);
	if (r == 0)
		r = open_dir(k->conf.config_dir, &k->config_dir, e);
	if (r == 0)
		r = clock_boot_id(k->boot_id, e);
	if (r == 0)
		r = str_format(path, "%s/" DATABASE, k->conf.state_dir);
	if (r < 0)
		return r;
	r = store_open(path, &k->store, e);
	if (r == -EBUSY) /* we have the lock, so it is no keeper of ours that is just ending: trying again would not help */
		r = error_set(e, EIO, "%s", e->text);
	if (r == 0 && store_warning(k->store)[0])
		log_warning("%s", store_warning(k->store));
	if (r == 0)
		r = keys_load(k, e);
	return r;
}

static int start(struct keeper *k, struct error *e)
{
	int r;

	raise_files();
	r = secret_init(e);
	if (r == 0)
		r = open_files(k, e);
	if (r == 0)
		r = loop_new(&k->event, on_stop_signal, k, e);
	if (r < 0)
		return r;
	r = sd_event_add_defer(k->event, &k->kick, on_kick, k);
	if (r < 0)
		return error_errno(e, -r, "cannot make an event loop");
	r = pools_load(k, e);
	if (r == 0)
		r = adopt_all(k, e);
	if (r == 0)
		r = watch_start(k, e);
	if (r == 0)
		r = server_open(k, e);
	if (r == 0)
		keeper_log_watch(k);
	return r;
}

static void finish(struct keeper *k)
{
	struct op *op;

	k->stopping = true;
	k->kick = sd_event_source_disable_unref(k->kick);
	k->watch = watch_free(k->watch);
	spares_free(k);
	for (size_t i = 0; i < k->n_vms; i++)
		delivery_end(k->vms[i], "the keeper has ended");
	while ((op = TAILQ_FIRST(&k->ops)))
		(void)op_cancel(op);
	for (size_t i = 0; i < k->n_vms; i++)
		vm_free(k->vms[i]);
	free(k->vms);
	free(k->pools);
	k->shutdown = sd_event_source_disable_unref(k->shutdown);
	k->log_timer = sd_event_source_disable_unref(k->log_timer);
	k->store = store_free(k->store);
	k->config_dir = fd_close(k->config_dir);
	k->state_dir = fd_close(k->state_dir);
	k->delivery_key = fd_close(k->delivery_key);
	/* Last: whoever sees the lock free, or the connection closed, may start the next keeper. */
	server_free(k);
	k->event = sd_event_unref(k->event);
}

int keeper_run(const struct hostconf *conf, struct error *e)
{
	struct keeper k = {
		.conf = *conf, .lock_fd = -1, .listen_fd = -1, .config_dir = -1, .state_dir = -1, .delivery_key = -1};
	int r;

	TAILQ_INIT(&k.clients);
	TAILQ_INIT(&k.lessees);
	TAILQ_INIT(&k.ops);
	r = start(&k, e);
	if (r == 0) {
		log_info("keeper of host %s: %zu VMs, socket %s, isolation %s", store_host_id(k.store), k.n_vms,
				conf->keeper_socket, conf->net_isolation ? "on" : "off: nothing secret is delivered");
		(void)sd_notify(0, "READY=1");
		r = sd_event_loop(k.event);
		if (r < 0)
			(void)error_errno(e, -r, "the event loop has failed");
	}
	finish(&k);
	return r < 0 ? r : 0;
}
