#include "base/str.h"
#include "vm/filter.h"
#include "vm/image.h"
#include "vm/op.h"
#include "vm/slot.h"
#include "vm/trouble.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define MARKED_MAX 1024

/* A domain that carries our metadata; or, `foreign`, one without that has the name of one of our VMs. */
struct marked {
	virDomainPtr domain;
	struct life life;
	bool ours, running, foreign; /* ours: it has the name that its metadata says */
};

struct listing {
	struct host *h;
	struct marked marked[MARKED_MAX];
	size_t n;
	bool stopped; /* those that are off, too; else only where there is doubt */
};

static void listing_done(struct listing **p)
{
	for (size_t i = 0; *p && i < (*p)->n; i++)
		(void)virDomainFree((*p)->marked[i].domain);
	free(*p);
}

static const struct marked *find_ours(const struct listing *l, const char *name, bool running)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->marked[i].ours && l->marked[i].running == running && str_equal(l->marked[i].life.name, name))
			return &l->marked[i];
	return NULL;
}

/* Another domain with our metadata for that name. */
static const char *find_twin(const struct listing *l, const char *name)
{
	for (size_t i = 0; i < l->n; i++)
		if (!l->marked[i].ours && !l->marked[i].foreign && str_equal(l->marked[i].life.name, name))
			return virDomainGetName(l->marked[i].domain);
	return NULL;
}

/* A domain of that very name that is not ours. */
static bool find_foreign(const struct listing *l, const char *name)
{
	for (size_t i = 0; i < l->n; i++)
		if (!l->marked[i].ours && str_equal(virDomainGetName(l->marked[i].domain), name))
			return true;
	return false;
}

static int send_entry(const struct listing *l, const char *name, const struct settings *s, const struct marked *m,
	const char *trouble, struct error *e)
{
	struct vm_entry entry = {.head = MSG_HEAD(VM_ENTRY, struct vm_entry, l->h->seq)};
	struct slot place;
	struct generation last = {0};

	/* Of a stopped VM: the highest life it has had, so that a keeper with an older store does not fall behind it. */
	if (!m)
		(void)generation_load(l->h, name, &last, NULL);
	(void)str_copy(entry.name, name);
	(void)str_copy(entry.trouble, trouble);
	entry.running = m != NULL;
	entry.stuck = m && virt_stuck(m->domain);
	entry.generation = m ? m->life.generation : last.generation;
	entry.plain = !clean_exists(l->h, s ? clean_name(l->h, s) : name);
	if (s) {
		entry.slot = s->slot;
		entry.cpus = s->cpus;
		entry.memory_mib = s->memory_mib;
		entry.disk_gib = s->disk_gib;
		if (slot_derive(&l->h->conf, s->slot, &place, NULL) == 0)
			(void)str_copy(entry.address, place.address);
	}
	return msg_send(l->h->report_fd, &entry, NULL, 0, e);
}

/* m: its running domain, or NULL. */
static int list_one(const struct listing *l, const char *name, const struct settings *s, const struct marked *m,
	struct error *e)
{
	const struct trouble_view view = {.name = name,
		.settings = s,
		.domain = m ? m->domain : NULL,
		.life = m ? &m->life : NULL,
		.twin = find_twin(l, name),
		.foreign = find_foreign(l, name),
		.defined = !m && find_ours(l, name, false)};
	char trouble[VM_TEXT_MAX];

	trouble_find(l->h, &view, trouble);
	if (!m && !l->stopped && !trouble[0])
		return 0;
	return send_entry(l, name, s, m, trouble, e);
}

static int list_stopped(void *userdata, const struct settings *s, struct error *e)
{
	const struct listing *l = userdata;

	return find_ours(l, s->name, true) ? 0 : list_one(l, s->name, s, NULL, e);
}

static int add_marked(struct listing *l, virDomainPtr d, struct error *e)
{
	struct marked m = {.domain = d};
	char file[64];
	int r = virt_mark(l->h, d, &m.life, e);

	if (r < 0)
		return r;
	if (r == 0) {
		/* A domain that is not ours is nobody's business, unless it is in one of our VMs' way. */
		if (!name_valid(virDomainGetName(d)) || str_format(file, "vms/%s.env", virDomainGetName(d)) < 0 ||
			faccessat(l->h->image_fd, file, F_OK, 0) < 0)
			return 0;
		m.foreign = true;
		(void)str_copy(m.life.name, virDomainGetName(d));
	} else if (m.life.generation == 0) {
		return 0; /* the probe for KVM */
	}
	if (l->n == MARKED_MAX)
		return error_set(e, E2BIG, "more than %d domains carry the mark of boxery", MARKED_MAX);
	m.running = virt_runs(d);
	m.ours = !m.foreign && str_equal(m.life.name, virDomainGetName(d));
	(void)virDomainRef(d);
	l->marked[l->n++] = m;
	return 0;
}

static int find_all(struct listing *l, struct error *e)
{
	virDomainPtr *all = NULL;
	int n, r = 0;

	n = virConnectListAllDomains(l->h->conn, &all, 0);
	if (n < 0)
		return virt_error(e, "cannot list the domains");
	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = add_marked(l, all[i], e);
		(void)virDomainFree(all[i]);
	}
	free(all);
	return r;
}

/* Marks for a VM that is not there at all: named, so that somebody looks. */
static int list_orphan(const struct listing *l, size_t at, struct error *e)
{
	const struct marked *m = &l->marked[at];
	struct settings s;

	if (find_ours(l, m->life.name, true) || settings_load(l->h, m->life.name, &s, NULL) == 0)
		return 0;
	for (size_t i = 0; i < at; i++)
		if (str_equal(l->marked[i].life.name, m->life.name))
			return 0;
	return list_one(l, m->life.name, NULL, NULL, e);
}

int op_entries(struct host *h, bool stopped, void (*found)(void *userdata, const struct life *life),
	void *userdata, struct error *e)
{
	__attribute__((cleanup(listing_done))) struct listing *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return error_errno(e, ENOMEM, "cannot list the domains");
	l->h = h;
	l->stopped = stopped;
	r = find_all(l, e);
	for (size_t i = 0; r == 0 && i < l->n; i++) {
		const struct marked *m = &l->marked[i];
		struct settings s;
		bool known;

		if (!m->ours || !m->running)
			continue;
		known = settings_load(h, m->life.name, &s, NULL) == 0;
		if (found)
			found(userdata, &m->life);
		r = list_one(l, m->life.name, known ? &s : NULL, m, e);
	}
	if (r == 0)
		r = settings_each(h, list_stopped, l, e);
	for (size_t i = 0; r == 0 && i < l->n; i++)
		r = list_orphan(l, i, e);
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
