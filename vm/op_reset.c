/* The ends of a life: reset, stop, remove. */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/agent.h"
#include "vm/image.h"
#include "vm/op.h"
#include <errno.h>
#include <fcntl.h>

#define STOP_TIMEOUT_MS 60000
#define POLL_MS 200

/* Destroys the domain of that name when it is ours and of a life up to `generation`. */
#define ANY_LIFE UINT64_MAX
static int end_domain(struct host *h, const char *name, uint64_t generation, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	struct life life;
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
	r = virt_destroy(h, d, e);
	if (r == 0)
		host_step_done(h, "life %llu ended", (unsigned long long)life.generation);
	return r;
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
	if (g.generation == generation && !g.begun)
		return 0;
	return generation_save(h, name, &(struct generation){.generation = generation}, e);
}

int op_reset(struct host *h, const struct vm_request *q, struct vm_result *res, struct error *e)
{
	CLEANUP_FD int lock = -1;
	int r;

	(void)res;
	host_step_begin(h, "lock");
	r = host_lock(h, q->name, &lock, e);
	if (r < 0 && r != -EBUSY && host_connect(h, NULL) == 0)
		/* A guest must not live on because its folder cannot be written; the reset has failed all the same. */
		(void)end_domain(h, q->name, q->generation, NULL);
	if (r < 0) {
		host_step_begin(h, "lock");
		return r;
	}
	host_step_begin(h, "connect");
	r = host_connect(h, e);
	if (r == 0)
		r = end_domain(h, q->name, q->generation, e);
	if (r < 0)
		return r;
	host_step_begin(h, "overlay");
	r = record_generation(h, q->name, q->generation, e);
	if (r == 0)
		r = overlay_remove(h, "run", q->name, e);
	if (r == 0)
		host_step_done(h, "dropped");
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
		return 0;
	}
	if (!(q->flags & VM_FLAG_FORCE) && agent_poweroff(d, &asked) == 0)
		while (virt_runs(d) && clock_boot_us() < until)
			host_sleep_ms(POLL_MS);
	if (!virt_runs(d)) {
		host_step_done(h, "powered off by itself");
		return end_domain(h, q->name, ANY_LIFE, e);
	}
	host_step_done(h, "%s",
		asked.code		   ? asked.text
		: q->flags & VM_FLAG_FORCE ? "not asked"
					   : "no power-off in time");
	return end_domain(h, q->name, ANY_LIFE, e);
}

static int remove_files(struct host *h, const char *name, struct error *e)
{
	static const struct {
		const char *folder, *suffix;
	} files[] = {{"run", "gen"}, {"console", "log"}, {"console", "log.1"}};
	char file[64];
	int r;

	r = overlay_remove(h, "run", name, e);
	if (r == 0)
		r = overlay_remove(h, "vms", name, e);
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
	CLEANUP_FD int lock = -1;
	struct life life;
	int r;

	(void)res;
	host_step_begin(h, "destroy");
	r = host_lock(h, q->name, &lock, e);
	if (r == 0)
		r = host_connect(h, e);
	if (r == 0)
		r = virt_find(h, q->name, &d, &life, e);
	if (r < 0)
		return r;
	if (r == 1 && virt_runs(d) && !(q->flags & VM_FLAG_FORCE))
		return error_set(
			e, EBUSY, "%s is running; stop it first, or remove it with --force", q->name);
	r = end_domain(h, q->name, ANY_LIFE, e);
	if (r < 0)
		return r;
	host_step_begin(h, "files");
	r = remove_files(h, q->name, e);
	if (r == 0)
		host_step_done(h, "removed");
	return r;
}
