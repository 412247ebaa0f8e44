/*
 * A life: lock, refuse a stale generation, record it, overlay, network and filter, domain, agent, begin,
 * check. The guest counts as started only when all of it has passed; on any failure its domain is destroyed
 * again and the keeper's reset does the rest.
 *
 * The generation is on disk before the domain exists, so that after a crash no two domains of one life can
 * follow each other. What begin returned is kept beside it: a keeper that lost our result may ask again and
 * gets the same answer.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/agent.h"
#include "vm/begin.h"
#include "vm/domain.h"
#include "vm/filter.h"
#include "vm/image.h"
#include "vm/op.h"
#include "vm/probe.h"
#include "vm/rate.h"
#include "vm/slot.h"
#include <errno.h>
#include <fcntl.h>
#include <libvirt/virterror.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BEGIN_TIMEOUT_MS 60000
#define CLOCK_SKEW_MAX_MS 1000
#define CLOCK_SKEW_GOOD_MS 500
#define CREATE_TRIES 3
#define CREATE_RETRY_MS 200

struct start {
	struct host *h;
	const struct vm_request *q;
	struct settings s;
	struct slot slot;
	struct base_image base;
	struct clean_image clean;
	struct virt_choice virt;
	bool plain, was_rated;
	uint32_t cpus, memory_mib;
	uint64_t until_us;
	struct generation gen;		      /* what is recorded of this life */
	const char *chain[DOMAIN_LAYERS_MAX]; /* what the disk must consist of, top first */
	size_t n_chain;
	char overlay[VM_PATH_MAX], console[VM_PATH_MAX];
	virDomainPtr domain;
	bool created;
};

static void start_done(struct start *s)
{
	if (s->domain)
		(void)virDomainFree(s->domain);
}

/* Milliseconds until the deadline of the whole start. */
static uint64_t left_ms(const struct start *s)
{
	uint64_t now = clock_boot_us();

	return now >= s->until_us ? 0 : (s->until_us - now) / 1000u;
}

static int load(struct start *s, struct error *e)
{
	struct host *h = s->h;
	int r;

	r = settings_load(h, s->q->name, &s->s, e);
	if (r == 0 && s->plain && s->s.clean_of[0])
		return error_set(e, EINVAL,
			"%s has no disk of its own: it lives from the clean image of %s, in the pool only", s->s.name,
			s->s.clean_of);
	if (r == 0)
		r = slot_derive(&h->conf, s->s.slot, &s->slot, e);
	if (r == 0)
		r = base_load(h, s->s.image, &s->base, e);
	if (r == 0)
		r = HOST_PATH(h, s->overlay, e, "%s/%s.qcow2", s->plain ? "vms" : "run", s->s.name);
	if (r == 0)
		r = HOST_PATH(h, s->console, e, "console/%s.log", s->s.name);
	if (r == 0 && !s->plain)
		r = clean_load(h, settings_clean_name(&s->s), &s->clean, e);
	return r;
}

/* 1: that very life is up and has passed its check before; res is filled. 0: to be started. */
static int running_already(struct start *s, struct vm_result *res, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct generation g;
	struct life life;
	int r, found;

	r = generation_load(s->h, s->q->name, &g, e);
	if (r < 0)
		return r;
	s->was_rated = g.rated;
	found = virt_find(s->h, s->q->name, &d, &life, e);
	if (found < 0)
		return found;
	if (found && life.generation == s->q->generation && g.generation == life.generation && g.begun &&
		virt_runs(d)) {
		(void)str_copy(res->host_key, g.host_key);
		(void)str_copy(res->address, s->slot.address);
		res->kvm = g.kvm;
		return 1;
	}
	if (found)
		return error_set(e, ESTALE, "%s is running already in its life %llu; reset it first",
			s->q->name, (unsigned long long)life.generation);
	if (s->q->generation <= g.generation)
		return error_set(e, ESTALE, "%s has had its life %llu already; life %llu is refused",
			s->q->name, (unsigned long long)g.generation, (unsigned long long)s->q->generation);
	return 0;
}

static int prepare_plain_disk(struct start *s, struct error *e)
{
	if (!str_equal(s->base.disk_identity, s->s.base_identity))
		return error_set(e, ESTALE,
			"the base image %s was replaced or changed since %s was made on it; remove the VM and make "
			"it again",
			s->s.image, s->s.name);
	s->chain[s->n_chain++] = s->overlay;
	s->chain[s->n_chain++] = s->base.disk;
	return 0;
}

static int prepare_overlay(struct start *s, struct error *e)
{
	int r = clean_check(s->h, settings_clean_name(&s->s), &s->clean, e);

	if (r == 0)
		r = overlay_create(s->h, "run", s->s.name, s->clean.disk, 0, e);
	if (r < 0)
		return r;
	(void)str_copy(s->gen.clean_identity, s->clean.disk_identity);
	s->chain[s->n_chain++] = s->overlay;
	s->chain[s->n_chain++] = s->clean.disk;
	s->chain[s->n_chain++] = s->base.disk;
	return 0;
}

static int prepare_disk(struct start *s, struct error *e)
{
	struct stat st;
	int r;

	host_step_begin(s->h, "overlay");
	r = host_free_space_check(s->h, e);
	if (r == 0)
		r = host_free_memory_check(s->memory_mib, e);
	if (r == 0)
		r = s->plain ? prepare_plain_disk(s, e) : prepare_overlay(s, e);
	if (r < 0)
		return r;
	if (stat(s->overlay, &st) < 0)
		return error_errno(e, errno, "the disk of %s, %s", s->s.name, s->overlay);
	s->gen.plain = s->plain;
	s->gen.overlay_inode = st.st_ino;
	(void)str_copy(s->gen.base_identity, s->base.disk_identity);
	if (s->plain)
		host_step_done(s->h, "own disk");
	else
		host_step_done(s->h, "fresh, on %s@" CLEAN_LABEL, settings_clean_name(&s->s));
	return 0;
}

/* The console of the life before is kept; the new file is there before QEMU, so that its owner can be given
 * it. */
static int prepare_console(struct start *s, struct error *e)
{
	char now[64], before[64];
	int r;

	(void)str_format(now, "console/%s.log", s->s.name);
	(void)str_format(before, "console/%s.log.1", s->s.name);
	if (renameat(s->h->image_fd, now, s->h->image_fd, before) < 0 && errno != ENOENT)
		return error_errno(e, errno, "cannot put the old console of %s aside", s->s.name);
	r = file_write_atomic(s->h->image_fd, now, "", 0, 0600, e);
	return r < 0 ? error_wrap(e, "console of %s", s->s.name) : 0;
}

static int prepare_network(struct start *s, struct error *e)
{
	int r;

	host_step_begin(s->h, "network");
	r = op_network(s->h, e);
	if (r < 0)
		return r;
	host_step_done(
		s->h, "%s, isolation %s", s->h->conf.net_name, s->h->conf.net_isolation ? "on" : "OFF");
	return 0;
}

/*
 * libvirt makes the filter by many small calls of ebtables, and one of them fails when any other program
 * changes the kernel's rules at the same moment. A domain whose filter could not be made was never started,
 * so it is tried again.
 */
static int create_with_retry(struct start *s, const char *xml, struct error *e)
{
	for (int i = 1;; i++) {
		const virError *v;

		s->domain = virDomainCreateXML(s->h->conn, xml, VIR_DOMAIN_NONE);
		if (s->domain)
			return 0;
		v = virGetLastError();
		if (!v || !v->message || !strstr(v->message, "firewall") || i == CREATE_TRIES)
			return virt_error(e, "cannot start the domain of %s", s->s.name);
		host_sleep_ms(CREATE_RETRY_MS);
	}
}

static int create_domain(struct start *s, struct error *e)
{
	const struct filter_ops *filter = filter_implementation(s->h);
	struct domain_spec spec = {.name = s->s.name,
		.net_name = s->h->conf.net_name,
		.generation = s->q->generation,
		.type = virt_type(s->virt.kvm),
		.arch = s->base.arch,
		.kvm = s->virt.kvm,
		.cpus = s->cpus,
		.memory_mib = s->memory_mib,
		.kernel = s->base.kernel,
		.initrd = s->base.initrd,
		.cmdline = s->base.cmdline,
		.n_layers = s->n_chain,
		.limits = {s->q->disk_mib_per_s, s->q->disk_iops},
		.disposable = !s->plain,
		.console = s->console,
		.slot = &s->slot,
		.add_filter = filter ? filter->add_xml : NULL};
	CLEANUP_FREE char *xml = NULL;
	int r;

	host_step_begin(s->h, "create");
	memcpy(spec.layers, s->chain, sizeof(spec.layers));
	r = domain_render(&spec, &xml, e);
	if (r == 0)
		r = prepare_console(s, e);
	if (r == 0)
		r = generation_save(s->h, s->s.name, &s->gen, e);
	if (r < 0)
		return r;
	s->created = true;
	if (s->gen.rated)
		r = rate_set(&s->slot, s->q->net_kib_per_s, e);
	else if (s->was_rated)
		r = rate_clear(&s->slot, e);
	if (r == 0)
		r = create_with_retry(s, xml, e);
	if (r < 0)
		return r;
	if (filter) {
		r = filter_active(s->h, &s->slot, e);
		if (r < 0)
			return r;
	}
	host_step_done(s->h, "%s", s->virt.kvm ? "KVM" : "software emulation");
	return 0;
}

/* What the guest said last, as far as it can be shown, for the reader of a failure. */
static void add_console_words(const struct start *s, struct error *e)
{
	CLEANUP_FD int fd = open(s->console, O_RDONLY | O_CLOEXEC);
	char tail[200], shown[120];
	ssize_t n;
	size_t from;

	if (fd < 0 || !e)
		return;
	if (lseek(fd, -(off_t)sizeof(tail), SEEK_END) < 0)
		(void)lseek(fd, 0, SEEK_SET);
	n = read(fd, tail, sizeof(tail));
	while (n > 0 && strchr("\r\n \t", tail[n - 1]))
		n--;
	if (n <= 0)
		return;
	for (from = (size_t)n; from > 0 && tail[from - 1] != '\n';)
		from--;
	str_show_n(shown, sizeof(shown), tail + from, (size_t)n - from);
	n = (ssize_t)strlen(e->text);
	(void)snprintf(e->text + n, sizeof(e->text) - (size_t)n, "; last on its console: %s", shown);
}

static int wait_for_agent(struct start *s, struct error *e)
{
	int r;

	host_step_begin(s->h, "agent");
	r = agent_wait(s->domain, left_ms(s), e);
	if (r < 0) {
		add_console_words(s, e);
		return error_wrap(e, "%s", s->s.name);
	}
	host_step_done(s->h, "it answers");
	return 0;
}

static void wipe_buf(struct buf *b)
{
	if (b->data)
		secret_wipe(b->data, b->cap);
	buf_free(b);
}

static int begin(struct start *s, const struct hostkey *key, struct begin_answer *ret, struct error *e)
{
	CLEANUP(wipe_buf) struct buf text = BUF_INIT(BEGIN_TEXT_MAX);
	CLEANUP_FREE char *out = NULL;
	uint64_t timeout = left_ms(s) < BEGIN_TIMEOUT_MS ? left_ms(s) : BEGIN_TIMEOUT_MS;
	int r;

	host_step_begin(s->h, "begin");
	/* Its full size at once: a buffer that grows leaves copies of a key behind. */
	text.data = malloc(text.max + 1);
	if (!text.data)
		return error_errno(e, ENOMEM, "begin");
	text.cap = text.max + 1;
	r = begin_render(&text, s->q->generation, s->slot.address, s->q->key_line, !s->plain, key, e);
	if (r == 0)
		r = agent_exec(s->domain, BEGIN_PROGRAM, text.data, text.len, timeout, &out, e);
	if (r == 0)
		r = begin_parse(out, ret, e);
	if (r < 0)
		return error_wrap(e, "%s", s->s.name);
	host_step_done(s->h, "kernel %s, system %s", ret->kernel, ret->system);
	return 0;
}

static int check(struct start *s, const struct hostkey *key, const struct begin_answer *a, struct error *e)
{
	uint64_t skew;
	int r;

	host_step_begin(s->h, "check");
	if (a->generation != s->q->generation)
		return error_set(
			e, ESTALE, "%s says its life is %llu", s->s.name, (unsigned long long)a->generation);
	if (!str_equal(a->host_key, key->public_line))
		return error_set(
			e, EBADMSG, "%s has another ssh host key than the one it was given", s->s.name);
	if (!str_equal(a->address, s->slot.address))
		return error_set(e, EBADMSG, "%s says its address is %s, not %s", s->s.name, a->address,
			s->slot.address);
	if (a->lease)
		return error_set(e, ESTALE,
			"%s is not clean: something of an earlier life lies under /run/boxery", s->s.name);
	if (!str_equal(a->system, "running") && !str_equal(a->system, "degraded"))
		return error_set(
			e, EBADMSG, "%s did not finish its boot: its system is '%s'", s->s.name, a->system);
	r = agent_clock_skew_ms(s->domain, &skew, e);
	/* begin set it, but on a busy host the way there may have taken long. */
	if (r == 0 && skew >= CLOCK_SKEW_GOOD_MS && agent_clock_set(s->domain, NULL) == 0)
		r = agent_clock_skew_ms(s->domain, &skew, e);
	if (r < 0)
		return r;
	if (skew >= CLOCK_SKEW_MAX_MS)
		return error_set(
			e, EBADMSG, "the clock of %s is %llu ms off", s->s.name, (unsigned long long)skew);
	r = virt_check_devices(s->domain, s->chain, s->n_chain, &s->slot, e);
	if (r == 0 && !s->plain)
		r = clean_check(s->h, settings_clean_name(&s->s), &s->clean, e);
	if (r == 0 && s->h->conf.net_isolation)
		r = filter_active(s->h, &s->slot, e);
	if (r < 0)
		return r;
	host_step_done(
		s->h, "%s, clock %llu ms off", s->plain ? "own disk" : "clean", (unsigned long long)skew);
	return 0;
}

static int run(struct start *s, struct vm_result *res, struct error *e)
{
	CLEANUP(hostkey_free) struct hostkey key = {0};
	struct begin_answer answer;
	int r;

	r = prepare_disk(s, e);
	if (r == 0)
		r = prepare_network(s, e);
	if (r == 0)
		r = create_domain(s, e);
	if (r == 0)
		r = wait_for_agent(s, e);
	if (r == 0)
		r = hostkey_new(&key, e);
	if (r == 0)
		r = begin(s, &key, &answer, e);
	if (r == 0)
		r = check(s, &key, &answer, e);
	if (r < 0)
		return r;
	s->gen.begun = true;
	s->gen.kvm = s->virt.kvm;
	s->gen.domain_id = virDomainGetID(s->domain);
	(void)str_copy(s->gen.host_key, key.public_line);
	r = generation_save(s->h, s->s.name, &s->gen, e);
	if (r < 0)
		return r;
	(void)str_copy(res->host_key, key.public_line);
	(void)str_copy(res->address, s->slot.address);
	res->kvm = s->virt.kvm;
	return 0;
}

/* What was made must not go on running without anybody who knows it. */
static void give_up(struct start *s)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct life life;

	if (s->created && virt_find(s->h, s->q->name, &d, &life, NULL) == 1 &&
		life.generation == s->q->generation)
		(void)virt_destroy(s->h, d, NULL);
}

int op_start(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP(start_done) struct start s = {.h = h, .q = q, .plain = q->flags & VM_FLAG_PLAIN};
	CLEANUP_FD int lock = -1;
	int r;

	s.gen.generation = q->generation;
	s.gen.rated = q->net_kib_per_s > 0;
	s.until_us = clock_boot_us() + (q->timeout_ms ? q->timeout_ms : h->conf.start_timeout_ms) * 1000u;
	host_step_begin(h, "start");
	if (q->generation == 0)
		return error_set(e, EINVAL, "%s: a life has a number from 1 on", q->name);
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = load(&s, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = running_already(&s, res, e);
	if (r != 0)
		return r < 0 ? r : 0;
	s.cpus = q->start_cpus ? q->start_cpus : s.s.cpus;
	s.memory_mib = q->start_memory_mib ? q->start_memory_mib : s.s.memory_mib;
	r = host_size_check(s.cpus, s.memory_mib, e);
	if (r == 0)
		r = virt_choose(h, &s.virt, e);
	if (r == 0)
		r = run(&s, res, e);
	if (r < 0)
		give_up(&s);
	return r;
}
