#include "vm/start.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/agent.h"
#include "vm/domain.h"
#include "vm/filter.h"
#include "vm/memory.h"
#include "vm/rate.h"
#include <errno.h>
#include <fcntl.h>
#include <libvirt/virterror.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CREATE_TRIES 3
#define CREATE_RETRY_MS 200

void start_done(struct start *s)
{
	if (s->domain)
		(void)virDomainFree(s->domain);
	s->domain = NULL;
}

uint64_t start_left_ms(const struct start *s)
{
	uint64_t now = clock_boot_us();

	return now >= s->until_us ? 0 : (s->until_us - now) / 1000u;
}

struct warm_want start_want(const struct start *s)
{
	return (struct warm_want){.s = &s->s,
		.slot = &s->slot,
		.base = &s->base,
		.clean = &s->clean,
		.virt = &s->virt,
		.cpus = s->cpus,
		.memory_mib = s->memory_mib};
}

int start_load(struct start *s, struct error *e)
{
	struct host *h = s->h;
	bool plain = s->way == START_PLAIN;
	int r;

	r = settings_load(h, s->q->name, &s->s, e);
	if (r == 0 && plain && s->s.clean_of[0])
		return error_set(e, EINVAL,
			"%s has no disk of its own: it lives from the clean image of %s, in the pool only", s->s.name,
			s->s.clean_of);
	if (r == 0)
		r = slot_derive(&h->conf, s->s.slot, &s->slot, e);
	/* A clean image says by itself which base it is on: of a patched VM the settings follow later. */
	if (r == 0 && !plain)
		r = clean_load(h, clean_name(h, &s->s), &s->clean, e);
	if (r == 0)
		r = base_load(h, plain ? s->s.image : s->clean.image, &s->base, e);
	if (r == 0)
		r = HOST_PATH(h, s->overlay, e, "%s/%s.qcow2", plain ? "vms" : "run", s->s.name);
	if (r == 0)
		r = HOST_PATH(h, s->console, e, "console/%s.log", s->s.name);
	return r;
}

static int plain_disk(struct start *s, struct error *e)
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

static int fresh_overlay(struct start *s, struct error *e)
{
	bool warm = s->warm.disk[0];
	int r = clean_check(s->h, clean_name(s->h, &s->s), &s->clean, e);

	if (r == 0)
		r = warm ? overlay_copy(s->h, "run", s->s.name, s->warm.overlay, e)
			 : overlay_create(s->h, "run", s->s.name, s->clean.disk, 0, e);
	if (r < 0)
		return r;
	(void)str_copy(s->gen.clean_identity, s->clean.disk_identity);
	s->chain[s->n_chain++] = s->overlay;
	if (warm) {
		s->chain[s->n_chain++] = s->warm.disk;
		(void)str_copy(s->gen.warm_identity, s->warm.fact[WARM_DISK_IDENTITY]);
	}
	s->chain[s->n_chain++] = s->clean.disk;
	s->chain[s->n_chain++] = s->base.disk;
	return 0;
}

int start_disk(struct start *s, struct error *e)
{
	struct stat st;
	int r;

	host_step_begin(s->h, "overlay");
	s->n_chain = 0;
	r = host_free_space_check(s->h, e);
	if (r == 0)
		r = host_free_memory_check(s->memory_mib, e);
	if (r == 0)
		r = s->way == START_PLAIN ? plain_disk(s, e) : fresh_overlay(s, e);
	if (r < 0)
		return r;
	if (stat(s->overlay, &st) < 0)
		return error_errno(e, errno, "the disk of %s, %s", s->s.name, s->overlay);
	s->gen.plain = s->way == START_PLAIN;
	s->gen.overlay_inode = st.st_ino;
	(void)str_copy(s->gen.base_identity, s->base.disk_identity);
	if (s->way == START_PLAIN)
		host_step_done(s->h, "own disk");
	else
		host_step_done(s->h, "fresh, on %s@%s", s->warm.disk[0] ? s->s.name : clean_name(s->h, &s->s),
			s->warm.disk[0] ? WARM_LABEL : CLEAN_LABEL);
	return 0;
}

/* The console of the life before is kept; the new file is there before QEMU, so that its owner can be given
 * it. */
static int fresh_console(struct start *s, struct error *e)
{
	char now[64], before[64];
	int r;

	(void)str_format(now, "console/%s.log", s->s.name);
	(void)str_format(before, "console/%s.log.1", s->s.name);
	if (renameat(s->h->image_fd, now, s->h->image_fd, before) < 0 && errno != ENOENT)
		return error_errno(e, errno, "cannot put the old console of %s aside", s->s.name);
	r = file_write_unsynced(s->h->image_fd, now, "", 0, 0600, e); /* of a life that no crash of the host outlives */
	return r < 0 ? error_wrap(e, "console of %s", s->s.name) : 0;
}

int start_network(struct start *s, struct error *e)
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

static int create_once(struct start *s, const char *xml, const char *memory, struct error *e)
{
	struct life life;
	int r;

	if (!memory) {
		s->domain = virDomainCreateXML(s->h->conn, xml, VIR_DOMAIN_NONE);
		return s->domain ? 0 : virt_error(e, "cannot start the domain of %s", s->s.name);
	}
	r = memory_restore(s->h, memory, xml, s->way == START_STANDBY, e);
	if (r < 0)
		return r;
	r = virt_find(s->h, s->s.name, &s->domain, &life, e);
	return r == 0 ? error_set(e, ENOTCONN, "%s ended as soon as it was restored", s->s.name) : r < 0 ? r : 0;
}

/*
 * libvirt makes the filter by many small calls of ebtables, and one of them fails when any other program
 * changes the kernel's rules at the same moment. A domain whose filter could not be made was never started,
 * so it is tried again.
 */
static int create_with_retry(struct start *s, const char *xml, const char *memory, struct error *e)
{
	struct error why = ERROR_INIT;
	int r;

	for (int i = 1;; i++) {
		r = create_once(s, xml, memory, &why);
		if (r == 0 || !strstr(why.text, "firewall") || i == CREATE_TRIES)
			break;
		host_sleep_ms(CREATE_RETRY_MS);
	}
	if (r < 0 && e)
		*e = why;
	return r;
}

static int render(struct start *s, uint64_t generation, const struct filter_ops *filter, char **ret_xml, struct error *e)
{
	struct domain_spec spec = {.name = s->s.name,
		.net_name = s->h->conf.net_name,
		.generation = generation,
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
		.disposable = s->way != START_PLAIN,
		.console = s->console,
		.slot = &s->slot,
		.add_filter = filter ? filter->add_xml : NULL};

	memcpy(spec.layers, s->chain, sizeof(spec.layers));
	return domain_render(&spec, ret_xml, e);
}

int start_domain(struct start *s, uint64_t generation, const char *memory, struct error *e)
{
	const struct filter_ops *filter = filter_implementation(s->h);
	CLEANUP_FREE char *xml = NULL;
	int r;

	host_step_begin(s->h, memory ? "restore" : "create");
	r = render(s, generation, filter, &xml, e);
	if (r == 0)
		r = fresh_console(s, e);
	if (r == 0)
		r = generation_save(s->h, s->s.name, &s->gen, e);
	if (r < 0)
		return r;
	s->created = true;
	if (s->gen.rated)
		r = rate_set(s->h, &s->slot, s->q->net_kib_per_s, e);
	else if (s->was_rated)
		r = rate_clear(s->h, &s->slot, e);
	if (r == 0)
		r = create_with_retry(s, xml, memory, e);
	if (r == 0 && filter)
		r = filter_active(s->h, &s->slot, e);
	if (r == 0)
		host_step_done(s->h, "%s", s->virt.kvm ? "KVM" : "software emulation");
	return r;
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

int start_boot(struct start *s, struct error *e)
{
	CLEANUP_FREE char *out = NULL;
	char system[32];
	int r;

	host_step_begin(s->h, "agent");
	r = agent_wait(s->domain, start_left_ms(s), e);
	if (r < 0) {
		add_console_words(s, e);
		return error_wrap(e, "%s", s->s.name);
	}
	host_step_done(s->h, "it answers");
	host_step_begin(s->h, "ready");
	r = agent_exec(s->domain, READY_PROGRAM, NULL, "", 0, start_left_ms(s), &out, e);
	if (r == 0)
		r = ready_parse(out, system, sizeof(system), e);
	if (r < 0)
		return error_wrap(e, "%s", s->s.name);
	if (!str_equal(system, "running") && !str_equal(system, "degraded"))
		return error_set(e, EBADMSG, "%s did not finish its boot: its system is '%s'", s->s.name, system);
	host_step_done(s->h, "system %s", system);
	return 0;
}

int start_list(struct start *s, const char *verb, uint64_t timeout_ms, char ret[static BEGIN_SEEN_MAX], struct error *e)
{
	const uint64_t left = start_left_ms(s);
	CLEANUP_FREE char *out = NULL;
	int r = agent_exec(s->domain, BEGIN_PROGRAM, verb, "", 0, left < timeout_ms ? left : timeout_ms, &out, e);

	if (r == 0)
		r = seen_parse(out, ret, e);
	return r < 0 ? error_wrap(e, "%s", s->s.name) : 0;
}

void start_give_up(struct start *s)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct life life;

	if (s->created && virt_find(s->h, s->q->name, &d, &life, NULL) == 1 &&
		(life.generation == s->q->generation || life.generation == CAPTURE_GENERATION))
		(void)virt_destroy(s->h, d, NULL);
}
