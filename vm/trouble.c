#include "vm/trouble.h"
#include "base/str.h"
#include "vm/domain.h"
#include "vm/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Is the disk that QEMU has open still the file under its name? */
static int overlay_check(const struct host *h, const char *name, const struct generation *g, struct error *e)
{
	char file[64];
	struct stat st;

	(void)str_format(file, "%s/%s.qcow2", g->plain ? "vms" : "run", name);
	if (fstatat(h->image_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return error_set(e, ESTALE, "the disk of its running guest, %s/%s, was deleted",
				h->conf.image_dir, file);
		return error_errno(e, errno, "the disk of its running guest, %s/%s", h->conf.image_dir, file);
	}
	if (st.st_ino != g->overlay_inode)
		return error_set(e, ESTALE, "the disk of its running guest, %s/%s, was replaced by another file",
			h->conf.image_dir, file);
	return 0;
}

static int base_check(const struct host *h, const struct settings *s, struct error *e)
{
	struct base_image base;
	int r = base_load(h, s->image, &base, e);

	if (r == 0 && !str_equal(base.disk_identity, s->base_identity))
		return error_set(e, ESTALE, "its base image %s was replaced or changed (%s then, %s now)", s->image,
			s->base_identity, base.disk_identity);
	return r;
}

static int own_disk_check(const struct host *h, const struct settings *s, struct error *e)
{
	char file[64];

	(void)str_format(file, "vms/%s.qcow2", s->name);
	if (faccessat(h->image_fd, file, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(e, errno, "its disk, %s/%s", h->conf.image_dir, file);
	return base_check(h, s, e);
}

/* Only the layer its guest runs on: what else belongs to the memory image is asked for at the next start. */
static int warm_layer_check(const struct host *h, const char *name, const struct generation *g, struct error *e)
{
	char path[VM_PATH_MAX], now[IDENTITY_MAX];
	int r = HOST_PATH(h, path, e, "images/%s@" WARM_LABEL "/disk.qcow2", name);

	if (r == 0)
		r = image_identity(path, now, e);
	if (r == 0 && !str_equal(now, g->warm_identity))
		return error_set(e, ESTALE, "the disk of its memory image was replaced or changed (%s then, %s now)",
			g->warm_identity, now);
	return r;
}

int trouble_files(const struct host *h, const struct settings *s, const struct life *life, struct error *e)
{
	const char *owner = clean_name(h, s);
	struct clean_image clean;
	struct generation g;
	bool plain;
	int r;

	r = generation_load(h, s->name, &g, e);
	if (r < 0)
		return r;
	if (life && life->generation != g.generation)
		return error_set(e, ESTALE, "its domain says life %llu, but run/%s.gen says %llu",
			(unsigned long long)life->generation, s->name, (unsigned long long)g.generation);
	if (life && g.overlay_inode) {
		r = overlay_check(h, s->name, &g, e);
		if (r < 0)
			return r;
		plain = g.plain;
	} else {
		plain = !s->clean_of[0] && !clean_exists(h, owner);
	}
	if (plain)
		return own_disk_check(h, s, e);
	r = clean_load(h, owner, &clean, e);
	if (r == 0)
		r = clean_check(h, owner, &clean, e);
	if (r == 0 && life && g.warm_identity[0])
		r = warm_layer_check(h, s->name, &g, e);
	if (r == 0 && life && g.clean_identity[0] && !str_equal(g.clean_identity, clean.disk_identity))
		return error_set(e, ESTALE, "the clean image of %s was made again since its guest was started on it",
			owner);
	return r;
}

/* What it should consist of. */
static int devices_check(const struct host *h, const struct trouble_view *v, const struct generation *g, struct error *e)
{
	char overlay[VM_PATH_MAX], warm[VM_PATH_MAX], base[VM_PATH_MAX];
	struct clean_image clean = {0};
	const char *layers[DOMAIN_LAYERS_MAX];
	struct slot slot;
	size_t n = 0;
	int r;

	r = slot_derive(&h->conf, v->settings->slot, &slot, e);
	if (r == 0)
		r = HOST_PATH(h, overlay, e, "%s/%s.qcow2", g->plain ? "vms" : "run", v->name);
	if (r == 0)
		r = HOST_PATH(h, warm, e, "images/%s@" WARM_LABEL "/disk.qcow2", v->name);
	if (r == 0 && !g->plain)
		r = clean_load(h, clean_name(h, v->settings), &clean, e);
	if (r == 0)
		r = HOST_PATH(h, base, e, "base/%s/disk.qcow2", g->plain ? v->settings->image : clean.image);
	layers[n++] = overlay;
	if (g->warm_identity[0])
		layers[n++] = warm;
	if (!g->plain)
		layers[n++] = clean.disk;
	layers[n++] = base;
	return r < 0 ? r : virt_check_devices(v->domain, layers, n, &slot, e);
}

static int paused_check(virDomainPtr d, bool standby, struct error *e)
{
	int state, reason;

	if (virt_stuck(d))
		return error_set(e, EIO, "its guest was stopped by an I/O error; the host's disk may be full");
	if (virDomainGetState(d, &state, &reason, 0) < 0)
		return 0;
	if (standby && state == VIR_DOMAIN_RUNNING)
		return error_set(e, ESTALE, "its guest waited in standby and runs now, without having been checked");
	if (state != VIR_DOMAIN_PAUSED || standby)
		return 0;
	return reason == VIR_DOMAIN_PAUSED_USER ? error_set(e, ESTALE, "its guest was paused by somebody (virsh suspend)")
						: 0;
}

static int domain_check(const struct host *h, const struct trouble_view *v, struct error *e)
{
	struct generation g;
	int r;

	if (virDomainIsPersistent(v->domain) == 1)
		return error_set(e, ESTALE, "somebody has defined its domain in libvirt (virsh define, edit or autostart)");
	r = generation_load(h, v->name, &g, e);
	if (r < 0)
		return r;
	if ((g.begun || g.standby) && g.domain_id && g.domain_id != virDomainGetID(v->domain))
		return error_set(e, ESTALE,
			"the domain that runs under its name (number %u) is not the one boxery started (%llu)",
			virDomainGetID(v->domain), (unsigned long long)g.domain_id);
	r = paused_check(v->domain, g.standby, e);
	return r < 0 || !g.overlay_inode ? r : devices_check(h, v, &g, e);
}

static int look(const struct host *h, const struct trouble_view *v, struct error *e)
{
	struct settings s;
	char shown[64];
	int r;

	if (v->twin) {
		str_show_n(shown, sizeof(shown), v->twin, strlen(v->twin));
		return error_set(e, EEXIST, "another domain, %s, carries a copy of its mark; boxery did not make that one",
			shown);
	}
	if (v->foreign)
		return error_set(e, EEXIST, "libvirt has a domain of its name that boxery did not make");
	if (!v->settings) {
		r = settings_load(h, v->name, &s, e);
		return r < 0 ? error_wrap(e, "its settings file vms/%s.env is missing or damaged", v->name) : 0;
	}
	if (v->defined)
		return error_set(e, EEXIST, "it is off, but somebody has defined a domain for it in libvirt");
	r = trouble_files(h, v->settings, v->life, e);
	return r == 0 && v->domain ? domain_check(h, v, e) : r;
}

void trouble_find(const struct host *h, const struct trouble_view *v, char ret[static VM_TEXT_MAX])
{
	struct error e = ERROR_INIT;
	CLEANUP_FD int lock = -1;

	ret[0] = '\0';
	if (host_lock_try(h, v->name, &lock) == -EBUSY)
		return;
	/* Twice: another VM's clean image may be exchanged just now, and files are read one after the other. */
	if (look(h, v, NULL) == 0 || look(h, v, &e) == 0)
		return;
	/* A guest that has ended since it was listed has no disk to miss. */
	if (v->domain && virt_runs_check(v->domain, NULL) != 1)
		return;
	(void)str_copy_n(ret, VM_TEXT_MAX, e.text);
}
