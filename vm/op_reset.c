/* The ends of a life: reset, stop, remove. */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/agent.h"
#include "vm/connections.h"
#include "vm/image.h"
#include "vm/op.h"
#include "vm/process.h"
#include "vm/rate.h"
#include "vm/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define STOP_TIMEOUT_MS 60000
#define POLL_MS 200

enum ending {
	END_ORDERLY,
	END_HURRIED, /* nobody wants its disk: QEMU is killed */
};

/* Destroys the domain of that name when it is ours and of a life up to `generation`. */
#define ANY_LIFE UINT64_MAX
static int end_domain(struct host *h, const char *name, uint64_t generation, enum ending how, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct life life;
	bool killed;
	int r;

	host_step_begin(h, "destroy");
	r = virt_find(h, name, &d, &life, e);
	if (r < 0)
		return r;
	if (r == 0) {
		host_step_done(h, "no domain");
		return 0;
	}
	if (life.generation > generation)
		return error_set(e, ESTALE, "%s runs in its life %llu; a reset of life %llu came too late",
			name, (unsigned long long)life.generation, (unsigned long long)generation);
	killed = how == END_HURRIED && process_kill(h, d);
	r = virt_destroy(h, d, e);
	if (r == 0)
		host_step_done(h, "life %llu ended%s", (unsigned long long)life.generation, killed ? ", its QEMU killed" : "");
	return r;
}

/* 1, or 0 when nobody knows its slot any more: its settings file is gone. */
static int slot_of(struct host *h, const char *name, struct slot *ret)
{
	struct settings s;

	return settings_load(h, name, &s, NULL) == 0 && slot_derive(&h->conf, s.slot, ret, NULL) == 0;
}

/* Whoever gets a slot next removes what an unknown VM left there (VM_NEW). */
static int clear_rate(struct host *h, const char *name, struct error *e)
{
	struct slot slot;

	return slot_of(h, name, &slot) ? rate_clear(h, &slot, e) : 0;
}

/* Ends the life and whatever the host keeps of it outside of files. */
static int end_life(struct host *h, const char *name, uint64_t generation, enum ending how, struct error *e)
{
	struct slot slot;
	int r = end_domain(h, name, generation, how, e);

	return r == 0 && slot_of(h, name, &slot) ? connections_forget(&slot, e) : r;
}

/* Its disk is dropped with the reset that follows. */
int op_end_life(struct host *h, const char *name, uint64_t generation, struct error *e)
{
	return end_life(h, name, generation, END_HURRIED, e);
}

/* A start of a life that has been reset must be refused, however late it comes. */
static int record_generation(struct host *h, const char *name, uint64_t generation, struct error *e)
{
	struct generation g;
	int r = generation_load(h, name, &g, e);

	if (r < 0)
		return r;
	if (g.generation > generation)
		return error_set(e, ESTALE, "%s has had its life %llu; a reset of life %llu came too late",
			name, (unsigned long long)g.generation, (unsigned long long)generation);
	if (g.rated) {
		r = clear_rate(h, name, e);
		if (r < 0)
			return r;
	}
	if (g.generation == generation && !g.begun && !g.rated && !g.overlay_inode)
		return 0;
	return generation_save(h, name, &(struct generation){.generation = generation}, e);
}

/* broken/NAME.qcow2, of whatever life. */
static int evidence_remove(struct host *h, const char *name, struct error *e)
{
	return overlay_remove(h, "broken", name, e);
}

/*
 * The overlay becomes evidence in one step. What lies there from an earlier life gives way, also when this one cannot be
 * kept: evidence is always of the last failure. Without an overlay there was one before us: an earlier try of this reset.
 */
static int evidence_keep(struct host *h, const char *name, char text[static VM_TEXT_MAX], struct error *e)
{
	const uint64_t max = (uint64_t)h->conf.evidence_max_mib * 1024 * 1024;
	CLEANUP_FD int folder = -1;
	char from[64], to[64];
	struct stat st;
	uint64_t size;
	int r;

	(void)str_format(from, "run/%s.qcow2", name);
	(void)str_format(to, "broken/%s.qcow2", name);
	if (fstatat(h->image_fd, from, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return error_errno(e, errno, "cannot look at %s/%s", h->conf.image_dir, from);
		if (faccessat(h->image_fd, to, F_OK, 0) == 0)
			return str_format_n(text, VM_TEXT_MAX, "%s/%s", h->conf.image_dir, to);
		return str_format_n(text, VM_TEXT_MAX, "not kept: there is no disk of this life");
	}
	size = (uint64_t)st.st_blocks * 512;
	if (size > max) {
		r = overlay_remove(h, "run", name, e);
		if (r == 0)
			r = evidence_remove(h, name, e);
		return r < 0 ? r
			     : str_format_n(text, VM_TEXT_MAX,
				       "not kept: the disk has %llu MiB, BOXERY_EVIDENCE_MAX in host.env allows %u",
				       (unsigned long long)(size + 1024 * 1024 - 1) / (1024 * 1024), h->conf.evidence_max_mib);
	}
	if (renameat(h->image_fd, from, h->image_fd, to) < 0)
		return error_errno(e, errno, "cannot keep %s/%s as %s", h->conf.image_dir, from, to);
	r = dir_open(h->image_fd, "broken", &folder, e);
	if (r == 0)
		r = dir_sync(folder, e);
	if (r == 0)
		r = overlay_remove(h, "run", name, e);
	return r < 0 ? r : str_format_n(text, VM_TEXT_MAX, "%s/%s", h->conf.image_dir, to);
}

/* What becomes of the disk of a life that has ended. */
static int end_disk(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	int r;

	if (q->flags & VM_FLAG_HALT) {
		r = HOST_PATH(h, res->text, e, "run/%s.qcow2", q->name);
	} else if (q->flags & VM_FLAG_EVIDENCE) {
		r = evidence_keep(h, q->name, res->text, e);
	} else {
		r = overlay_remove(h, "run", q->name, e);
		if (r == 0)
			r = evidence_remove(h, q->name, e);
		if (r == 0)
			host_step_done(h, "dropped");
		return r;
	}
	if (r == 0)
		host_step_done(h, "%s%s", res->text[0] == '/' ? "kept: " : "", res->text);
	return r;
}

/*
 * What a patch has left: undecided while its clean state is being tried; else the keeper's row says which one stays. Evidence stands
 * on what it was made on. A VM whose settings file is gone has nothing to be started from.
 */
static int end_patch(struct host *h, const struct vm_request *q, struct error *e)
{
	struct settings s;

	if (q->flags & (VM_FLAG_TRIAL | VM_FLAG_HALT | VM_FLAG_EVIDENCE) || settings_load(h, q->name, &s, NULL) < 0)
		return 0;
	return clean_settle(h, &s, q->image, q->clean_of, e);
}

int op_reset(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP_FD int lock = -1;
	int r;

	host_step_begin(h, "lock");
	r = host_lock(h, q->name, &lock, e);
	if (r < 0 && r != -EBUSY && host_connect(h, NULL) == 0)
		/* A guest must not live on because its folder cannot be written; the reset has failed all the same. */
		(void)end_domain(h, q->name, q->generation, END_ORDERLY, NULL);
	if (r < 0) {
		host_step_begin(h, "lock");
		return r;
	}
	host_step_begin(h, "connect");
	r = host_connect(h, e);
	if (r == 0)
		r = end_life(h, q->name, q->generation, q->flags & (VM_FLAG_HALT | VM_FLAG_EVIDENCE) ? END_ORDERLY : END_HURRIED, e);
	if (r < 0)
		return r;
	host_step_begin(h, "overlay");
	r = record_generation(h, q->name, q->generation, e);
	if (r == -ENOSPC) {
		/* A job has filled the folder: what it wrote goes first, so that there is room for the record. */
		r = end_disk(h, q, res, e);
		if (r == 0)
			r = record_generation(h, q->name, q->generation, e);
	} else if (r == 0) {
		r = end_disk(h, q, res, e);
	}
	if (r == 0)
		r = host_sweep(h, q->name, e);
	if (r == 0)
		r = warm_sweep(h, q->name, e);
	if (r == 0)
		r = end_patch(h, q, e);
	if (r == 0)
		r = clean_sweep(h, q->name, e);
	if (r < 0 || !(q->flags & VM_FLAG_DROP_MEMORY) || q->flags & (VM_FLAG_HALT | VM_FLAG_EVIDENCE))
		return r;
	host_step_begin(h, "memory");
	r = warm_drop(h, q->name, e);
	if (r == 0)
		host_step_done(h, "image dropped: a life out of it has failed");
	return r;
}

int op_stop(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	const uint64_t until = clock_boot_us() + (q->timeout_ms ? q->timeout_ms : STOP_TIMEOUT_MS) * 1000ull;
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	CLEANUP_FD int lock = -1;
	struct error asked = ERROR_INIT;
	struct life life;
	int r;

	(void)res;
	host_step_begin(h, "shutdown");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = virt_find(h, q->name, &d, &life, e);
	if (r < 0)
		return r;
	if (r == 0) {
		host_step_done(h, "it is off");
		return end_life(h, q->name, ANY_LIFE, END_ORDERLY, e);
	}
	if (!(q->flags & VM_FLAG_FORCE) && agent_poweroff(d, &asked) == 0)
		while (virt_runs(d) && clock_boot_us() < until)
			host_sleep_ms(POLL_MS);
	if (!virt_runs(d)) {
		host_step_done(h, "powered off by itself");
		return end_life(h, q->name, ANY_LIFE, END_ORDERLY, e);
	}
	host_step_done(h, "%s",
		asked.code		   ? asked.text
		: q->flags & VM_FLAG_FORCE ? "not asked"
					   : "no power-off in time");
	return end_life(h, q->name, ANY_LIFE, END_ORDERLY, e);
}

static int remove_files(struct host *h, const char *name, struct error *e)
{
	static const struct {
		const char *folder, *suffix;
	} files[] = {{"run", "gen"}, {"console", "log"}, {"console", "log.1"}};
	struct generation g;
	char file[64];
	int r;

	r = generation_load(h, name, &g, NULL);
	if (r == 0 && g.rated)
		(void)clear_rate(h, name, NULL);
	r = host_sweep(h, name, e);
	if (r == 0)
		r = overlay_remove(h, "run", name, e);
	if (r == 0)
		r = evidence_remove(h, name, e);
	if (r == 0)
		r = overlay_remove(h, "vms", name, e);
	if (r == 0)
		r = warm_sweep(h, name, e);
	if (r == 0)
		r = warm_drop(h, name, e);
	if (r == 0)
		r = clean_remove(h, name, e);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
		(void)str_format(file, "%s/%s.%s", files[i].folder, name, files[i].suffix);
		r = file_remove(h->image_fd, file, true, e);
	}
	if (r < 0)
		return r;
	/* Last: while it is there, the VM is, and removing it can be repeated. */
	(void)str_format(file, "vms/%s.env", name);
	r = file_remove(h->image_fd, file, true, e);
	/* Still held by us; host_lock() copes with a lock that has lost its name. */
	(void)str_format(file, "run/%s.lock", name);
	return r < 0 ? r : file_remove(h->image_fd, file, true, e);
}

int op_remove(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	CLEANUP_FD int lock = -1, settings_lock = -1;
	char clone[VM_NAME_MAX];
	struct life life;
	int r;

	(void)res;
	host_step_begin(h, "destroy");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = host_lock_settings(h, q->name, false, &settings_lock, e);
	if (r == -ENOENT) { /* removed up to its last file by one that was killed */
		error_clear(e);
		r = 0;
	}
	if (r == 0)
		r = clean_clone_find(h, q->name, clone, e);
	if (r == 1)
		return error_set(e, EBUSY, "%s lives from the clean image of %s; remove that one first", clone, q->name);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = virt_find(h, q->name, &d, &life, e);
	if (r < 0)
		return r;
	if (r == 1 && virt_runs(d) && !(q->flags & VM_FLAG_FORCE))
		return error_set(
			e, EBUSY, "%s is running; stop it first, or remove it with --force", q->name);
	r = end_life(h, q->name, ANY_LIFE, END_ORDERLY, e);
	if (r < 0)
		return r;
	host_step_begin(h, "files");
	r = remove_files(h, q->name, e);
	if (r == 0)
		host_step_done(h, "removed");
	return r;
}
