/*
 * The long-lived child: tells the keeper which of our domains run and when one stops, and keeps consoles
 * under their cap. One thread on libvirt's event loop. The full listing is sent at each (re)connect and again
 * every RELIST_MS, so that an event that was lost costs seconds, not the truth. The process ends when the
 * keeper's end of the socket closes.
 *
 * Consoles: QEMU (or virtlogd) appends to console/NAME.log for as long as the guest runs, and opened it with
 * O_APPEND. So a file can be cut under it: ftruncate to nothing, and the next byte goes to the new end. The
 * last CONSOLE_KEEP bytes are put back first. What the guest writes between the reading and the cut is lost;
 * it is a hint for people. With a look each CONSOLE_MS the overrun is what a serial port can carry in that
 * time.
 *
 * While guests run, each listing and each change of the kernel's rules by anybody also looks whether the guard is in
 * force, and puts it back: an `nft flush ruleset` by somebody else must not open the host to a job for the rest of its
 * life. A burst of changes is one look.
 *
 * A stopped libvirtd is noticed at once (the socket closes), a hung one by keepalive. Opening a connection to
 * a hung one would block: the alarm ends this process then, and the keeper starts another.
 */
#include "base/str.h"
#include "vm/filter.h"
#include "vm/nft_generation.h"
#include "vm/op.h"
#include <errno.h>
#include <fcntl.h>
#include <libvirt/virterror.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define RELIST_MS 10000
#define RECONNECT_MS 1000
#define CONSOLE_MS 1000
#define RULES_SETTLE_MS 100
#define CONSOLE_KEEP (64 * 1024)
#define KEEPALIVE_S 5
#define KEEPALIVE_COUNT 3
#define OPEN_TIMEOUT_S 30
#define KNOWN_MAX 1024

struct watch {
	struct host *h;
	struct life known[KNOWN_MAX]; /* a domain that has stopped has no metadata any more */
	size_t n_known;
	int timer, rules_timer;
	int changes_fd; /* -1: this kernel does not tell, so only the listings look */
	bool connected, lost, told_lost; /* lost: by the close callback, acted upon outside of it */
	int result;			 /* not 0: end the loop */
	struct error error;
};

static void stop_watching(struct watch *w, int r)
{
	if (w->result == 0)
		w->result = r;
}

static void send_event(struct watch *w, enum vm_event_kind kind, const struct life *life, const char *text)
{
	struct vm_event_msg m = {.head = MSG_HEAD(VM_EVENT, struct vm_event_msg, w->h->seq), .kind = kind};
	int r;

	if (life) {
		(void)str_copy(m.name, life->name);
		m.generation = life->generation;
	}
	str_show_n(m.text, sizeof(m.text), text, strlen(text));
	r = msg_send(w->h->report_fd, &m, NULL, 0, &w->error);
	if (r < 0)
		stop_watching(w, r);
}

static struct life *known(struct watch *w, const char *name)
{
	for (size_t i = 0; i < w->n_known; i++)
		if (str_equal(w->known[i].name, name))
			return &w->known[i];
	return NULL;
}

static void remember(void *userdata, const struct life *life)
{
	struct watch *w = userdata;
	struct life *k = known(w, life->name);

	if (!k && w->n_known < KNOWN_MAX)
		k = &w->known[w->n_known++];
	if (k)
		*k = *life;
}

static void forget(struct watch *w, struct life *k)
{
	*k = w->known[--w->n_known];
}

static const char *stopped_word(int detail)
{
	static const char *const words[] = {[VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN] = "shutdown",
		[VIR_DOMAIN_EVENT_STOPPED_DESTROYED] = "destroyed",
		[VIR_DOMAIN_EVENT_STOPPED_CRASHED] = "crashed",
		[VIR_DOMAIN_EVENT_STOPPED_MIGRATED] = "migrated",
		[VIR_DOMAIN_EVENT_STOPPED_SAVED] = "saved",
		[VIR_DOMAIN_EVENT_STOPPED_FAILED] = "failed",
		[VIR_DOMAIN_EVENT_STOPPED_FROM_SNAPSHOT] = "snapshot"};

	return detail >= 0 && (size_t)detail < ARRAY_SIZE(words) ? words[detail] : "stopped";
}

/* An old life's end may be told when a listing has already shown the next one. */
static bool runs_now(const struct watch *w, const struct life *k)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct life life;

	return virt_find(w->h, k->name, &d, &life, NULL) == 1 && life.generation == k->generation && virt_runs(d);
}

static int on_lifecycle(virConnectPtr conn, virDomainPtr d, int event, int detail, void *userdata)
{
	struct watch *w = userdata;
	struct life life, *k;

	(void)conn;
	if (event == VIR_DOMAIN_EVENT_STARTED && virt_life(w->h, d, &life, NULL) == 1 && life.generation > 0)
		remember(w, &life);
	if (event == VIR_DOMAIN_EVENT_SUSPENDED && detail == VIR_DOMAIN_EVENT_SUSPENDED_IOERROR)
		virEventUpdateTimeout(w->timer, 0); /* the listing says it */
	k = known(w, virDomainGetName(d));
	if (event == VIR_DOMAIN_EVENT_STOPPED && k && !runs_now(w, k)) {
		life = *k;
		forget(w, k);
		send_event(w, VM_EVENT_STOPPED, &life, stopped_word(detail));
	}
	return 0;
}

static void on_close(virConnectPtr conn, int reason, void *userdata)
{
	struct watch *w = userdata;

	(void)conn;
	(void)reason;
	w->lost = true;
	virEventUpdateTimeout(w->timer, 0);
}

static void disconnect(struct watch *w, const char *why)
{
	if (w->h->conn) {
		(void)virConnectUnregisterCloseCallback(w->h->conn, on_close);
		(void)virConnectClose(w->h->conn);
	}
	w->h->conn = NULL;
	w->connected = w->lost = false;
	if (!w->told_lost)
		send_event(w, VM_EVENT_DISCONNECTED, NULL, why);
	w->told_lost = true;
	virEventUpdateTimeout(w->timer, RECONNECT_MS);
}

/* A domain that was known and is not listed stopped without an event that reached us. */
struct relist {
	struct watch *w;
	struct life seen[KNOWN_MAX];
	size_t n;
};

static void on_found(void *userdata, const struct life *life)
{
	struct relist *l = userdata;

	if (l->n < KNOWN_MAX)
		l->seen[l->n++] = *life;
}

static void missing(struct watch *w, const struct relist *l)
{
	for (size_t i = 0; i < w->n_known;) {
		struct life *k = &w->known[i], gone = *k;
		bool there = false;

		for (size_t j = 0; j < l->n; j++)
			there |=
				str_equal(l->seen[j].name, k->name) && l->seen[j].generation == k->generation;
		if (there) {
			i++;
			continue;
		}
		forget(w, k);
		send_event(w, VM_EVENT_STOPPED, &gone, "gone");
	}
}

static void keep_guard(struct watch *w)
{
	struct error gone = ERROR_INIT, e = ERROR_INIT;
	struct hostconf conf;
	const char *then = "put back; if all rules were flushed, libvirt's are gone too: restart libvirtd";
	char text[VM_TEXT_MAX];

	/* As it is set now: this process may be older than that. */
	if (hostconf_load(&conf, &e) == 0) {
		w->h->conf.net_isolation = conf.net_isolation;
		w->h->conf.net_filter = conf.net_filter;
	}
	if (!filter_implementation(w->h) || filter_guarded(w->h, &gone) == 0)
		return;
	if (filter_ensure(w->h, &e) < 0)
		then = e.text;
	if (str_format(text, "%s: %s", gone.text, then) < 0)
		(void)str_copy(text, gone.text);
	send_event(w, VM_EVENT_UNGUARDED, NULL, text);
}

static void on_rules_changed(int handle, int fd, int events, void *userdata)
{
	struct watch *w = userdata;

	(void)handle;
	(void)events;
	nft_changes_drain(fd);
	virEventUpdateTimeout(w->rules_timer, RULES_SETTLE_MS);
}

static void on_rules_timer(int timer, void *userdata)
{
	struct watch *w = userdata;

	virEventUpdateTimeout(timer, -1);
	if (w->n_known > 0)
		keep_guard(w);
}

static void relist(struct watch *w)
{
	CLEANUP_FREE struct relist *l = calloc(1, sizeof(*l));
	struct error e = ERROR_INIT;
	int r;

	if (!l) {
		stop_watching(w, error_errno(&w->error, ENOMEM, "cannot list the domains"));
		return;
	}
	r = op_entries(w->h, false, on_found, l, &e);
	if (r == -EPIPE || r == -ECONNRESET) {
		w->error = e;
		stop_watching(w, r);
		return;
	}
	if (r < 0) {
		disconnect(w, e.text);
		return;
	}
	missing(w, l);
	for (size_t i = 0; i < l->n; i++)
		remember(w, &l->seen[i]);
	if (l->n > 0)
		keep_guard(w);
	send_event(w, VM_EVENT_SNAPSHOT, NULL, "");
	virEventUpdateTimeout(w->timer, RELIST_MS);
}

static void reconnect(struct watch *w)
{
	struct error e = ERROR_INIT;
	virConnectPtr c;
	int r;

	(void)alarm(OPEN_TIMEOUT_S);
	r = host_connect(w->h, &e);
	(void)alarm(0);
	if (r < 0) {
		disconnect(w, e.text);
		return;
	}
	c = w->h->conn;
	if (virConnectSetKeepAlive(c, KEEPALIVE_S, KEEPALIVE_COUNT) < 0 ||
		virConnectRegisterCloseCallback(c, on_close, w, NULL) < 0 ||
		virConnectDomainEventRegisterAny(c, NULL, VIR_DOMAIN_EVENT_ID_LIFECYCLE,
			VIR_DOMAIN_EVENT_CALLBACK(on_lifecycle), w, NULL) < 0) {
		(void)virt_error(&e, "cannot watch libvirt at %s", w->h->conf.libvirt_uri);
		disconnect(w, e.text);
		return;
	}
	w->connected = true;
	w->told_lost = false;
	relist(w);
}

static void on_timer(int timer, void *userdata)
{
	struct watch *w = userdata;

	(void)timer;
	if (w->lost)
		disconnect(w, "the connection to libvirt was closed");
	else if (w->connected)
		relist(w);
	else
		reconnect(w);
}

/* Cuts one console down to its end. true: it was over its cap. */
static bool cut_console(const struct host *h, const char *file, uint64_t max)
{
	CLEANUP_FD int fd = openat(h->image_fd, file, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	CLEANUP_FREE char *tail = NULL;
	static const char note[] = "[boxery: the console was longer than allowed and was cut here]\n";
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= max)
		return false;
	tail = malloc(CONSOLE_KEEP);
	n = tail ? pread(fd, tail, CONSOLE_KEEP, st.st_size - CONSOLE_KEEP) : 0;
	if (ftruncate(fd, 0) < 0)
		return false;
	(void)!write(fd, note, sizeof(note) - 1);
	if (n > 0)
		(void)!write(fd, tail, (size_t)n);
	return true;
}

static void on_console_timer(int timer, void *userdata)
{
	struct watch *w = userdata;
	char file[64];

	(void)timer;
	for (size_t i = 0; i < w->n_known; i++) {
		struct life life = w->known[i];

		(void)str_format(file, "console/%s.log", life.name);
		if (cut_console(w->h, file, (uint64_t)w->h->conf.console_max_mib * 1024 * 1024))
			send_event(w, VM_EVENT_CONSOLE_CUT, &life, "");
	}
}

/* The keeper sends nothing more: readable or closed means that it has gone. */
static void on_keeper(int handle, int fd, int events, void *userdata)
{
	struct watch *w = userdata;

	(void)handle;
	(void)fd;
	(void)events;
	stop_watching(w, error_set(&w->error, EPIPE, "the keeper has closed the connection"));
}

static int watch_rules(struct watch *w)
{
	if (nft_changes_open(&w->changes_fd, NULL) < 0)
		return 0;
	return virEventAddHandle(w->changes_fd, VIR_EVENT_HANDLE_READABLE, on_rules_changed, w, NULL);
}

int op_watch(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP_FREE struct watch *w = calloc(1, sizeof(*w));
	int console;

	(void)q;
	(void)res;
	host_step_begin(h, "watch");
	if (!w)
		return error_errno(e, ENOMEM, "watch");
	w->h = h;
	w->changes_fd = -1;
	if (virEventRegisterDefaultImpl() < 0)
		return virt_error(e, "cannot watch libvirt");
	w->timer = virEventAddTimeout(0, on_timer, w, NULL);
	w->rules_timer = virEventAddTimeout(-1, on_rules_timer, w, NULL);
	console = virEventAddTimeout(CONSOLE_MS, on_console_timer, w, NULL);
	if (w->timer < 0 || w->rules_timer < 0 || console < 0 || watch_rules(w) < 0 ||
		virEventAddHandle(h->report_fd,
			VIR_EVENT_HANDLE_READABLE | VIR_EVENT_HANDLE_HANGUP | VIR_EVENT_HANDLE_ERROR,
			on_keeper, w, NULL) < 0)
		return virt_error(e, "cannot watch libvirt");
	while (w->result == 0)
		if (virEventRunDefaultImpl() < 0)
			return virt_error(e, "cannot watch libvirt");
	if (e)
		*e = w->error;
	return w->result;
}
