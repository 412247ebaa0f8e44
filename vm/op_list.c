#include "base/str.h"
#include "vm/filter.h"
#include "vm/image.h"
#include "vm/op.h"
#include "vm/slot.h"
#include <errno.h>
#include <string.h>

#define RUNNING_MAX 1024

struct listing {
	struct host *h;
	char names[RUNNING_MAX][VM_NAME_MAX]; /* running ones, already sent */
	size_t n;
};

static int send_entry(
	struct host *h, const char *name, const struct settings *s, const struct life *life, struct error *e)
{
	struct vm_entry m = {.head = MSG_HEAD(VM_ENTRY, struct vm_entry, h->seq)};
	struct slot place;
	struct generation last = {0};

	/* Of a stopped VM: the highest life it has had, so that a keeper with an older store does not fall behind it. */
	if (!life)
		(void)generation_load(h, name, &last, NULL);
	(void)str_copy(m.name, name);
	m.running = life != NULL;
	m.generation = life ? life->generation : last.generation;
	m.plain = !clean_exists(h, name);
	if (s) {
		m.slot = s->slot;
		m.cpus = s->cpus;
		m.memory_mib = s->memory_mib;
		m.disk_gib = s->disk_gib;
		if (slot_derive(&h->conf, s->slot, &place, NULL) == 0)
			(void)str_copy(m.address, place.address);
	}
	return msg_send(h->report_fd, &m, NULL, 0, e);
}

static int send_stopped(void *userdata, const struct settings *s, struct error *e)
{
	struct listing *l = userdata;

	for (size_t i = 0; i < l->n; i++)
		if (str_equal(l->names[i], s->name))
			return 0;
	return send_entry(l->h, s->name, s, NULL, e);
}

static int send_running(struct listing *l, virDomainPtr d,
	void (*found)(void *userdata, const struct life *life), void *userdata, struct error *e)
{
	struct settings s;
	struct life life;
	bool known;
	int r = virt_life(l->h, d, &life, e);

	/* Generation 0 is the probe for KVM. A domain that is not ours is nobody's business. */
	if (r <= 0 || life.generation == 0 || !virt_runs(d))
		return r < 0 ? r : 0;
	if (l->n == RUNNING_MAX)
		return error_set(e, E2BIG, "more than %d VMs are running", RUNNING_MAX);
	(void)str_copy(l->names[l->n++], life.name);
	known = settings_load(l->h, life.name, &s, NULL) == 0;
	if (found)
		found(userdata, &life);
	return send_entry(l->h, life.name, known ? &s : NULL, &life, e);
}

int op_entries(struct host *h, bool stopped, void (*found)(void *userdata, const struct life *life),
	void *userdata, struct error *e)
{
	CLEANUP_FREE struct listing *l = calloc(1, sizeof(*l));
	virDomainPtr *all = NULL;
	int n, r = 0;

	if (!l)
		return error_errno(e, ENOMEM, "cannot list the domains");
	l->h = h;
	n = virConnectListAllDomains(h->conn, &all, 0);
	if (n < 0)
		return virt_error(e, "cannot list the domains");
	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = send_running(l, all[i], found, userdata, e);
		(void)virDomainFree(all[i]);
	}
	free(all);
	if (r == 0 && stopped)
		r = settings_each(h, send_stopped, l, e);
	return r;
}

int op_list(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	int r;

	(void)q;
	(void)res;
	host_step_begin(h, "list");
	r = host_connect(h, e);
	return r < 0 ? r : op_entries(h, true, NULL, NULL, e);
}

int op_filter(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct settings s;
	struct slot place;
	struct life life = {0};
	int r;

	(void)res;
	host_step_begin(h, "filter");
	r = settings_load(h, q->name, &s, e);
	if (r == 0)
		r = slot_derive(&h->conf, s.slot, &place, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = virt_find(h, q->name, &d, &life, e);
	if (r < 0)
		return r;
	if (r == 0 || !virt_runs(d))
		return error_set(e, ENOTCONN, "%s is not running", q->name);
	if (life.generation != q->generation)
		return error_set(e, ESTALE, "%s runs in its life %llu, not %llu", q->name,
			(unsigned long long)life.generation, (unsigned long long)q->generation);
	return filter_active(h, &place, e);
}
