/*
 * Capturing a clean state. The VM's own disk is written out as one layer on its base (qemu-img convert -B),
 * into a new folder beside the old clean image; synced, hashed, bound, made read-only; then the two folders
 * change places in one step and the old one is dropped. At every moment there is a whole clean image under
 * the name, if there was one. The VM keeps its own disk: that is what an admin changes before capturing
 * again.
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/disk.h"
#include "vm/folder.h"
#include "vm/image.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static int on_manifest(void *userdata, const char *key, const char *value, struct error *e)
{
	struct clean_image *c = userdata;
	int r = 0;

	if (str_equal(key, "IMAGE"))
		r = str_copy(c->image, value);
	else if (str_equal(key, "DISK_IDENTITY"))
		r = str_copy(c->disk_identity, value);
	else if (str_equal(key, "DISK_SHA256"))
		r = str_copy(c->disk_sha256, value);
	else if (str_equal(key, "BASE_IDENTITY"))
		r = str_copy(c->base_identity, value);
	else if (str_equal(key, "BASE_SHA256"))
		r = str_copy(c->base_sha256, value);
	else if (!str_equal(key, "CAPTURED"))
		return error_set(e, EINVAL, "%.100s is not a setting of this file", key);
	return r < 0 ? error_set(e, EINVAL, "%s is too long", key) : 0;
}

int clean_load_from(const struct host *h, const char *folder, const char *vm, struct clean_image *ret, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	struct error local = ERROR_INIT;
	struct clean_image c = {0};
	char path[VM_PATH_MAX];
	size_t len;
	int r;

	r = HOST_PATH(h, path, e, "%s/manifest.env", folder);
	if (r < 0)
		return r;
	r = file_read(AT_FDCWD, path, ENVFILE_MAX, &data, &len, &local);
	if (r == -ENOENT)
		return error_set(
			e, ENOENT, "%s has no clean image; make it with boxery-host pool add %s", vm, vm);
	if (r < 0)
		return error_set(e, local.code, "%s", local.text);
	r = envfile_parse(path, data, len, on_manifest, &c, e);
	if (r == 0)
		r = HOST_PATH(h, c.disk, e, "%s/disk.qcow2", folder);
	if (r < 0)
		return r;
	if (!name_valid(c.image) || !c.disk_identity[0] || !c.base_identity[0] || !c.disk_sha256[0] ||
		!c.base_sha256[0])
		return error_set(e, EBADMSG,
			"%s: one of IMAGE, DISK_IDENTITY, DISK_SHA256, BASE_IDENTITY and BASE_SHA256 is "
			"missing; capture %s again",
			path, vm);
	*ret = c;
	return 0;
}

int clean_load(const struct host *h, const char *vm, struct clean_image *ret, struct error *e)
{
	char folder[96];

	(void)str_format(folder, "images/%s@" CLEAN_LABEL, vm);
	return clean_load_from(h, folder, vm, ret, e);
}

bool clean_exists(const struct host *h, const char *vm)
{
	char file[128];

	return str_format(file, "images/%s@" CLEAN_LABEL "/manifest.env", vm) == 0 &&
	       faccessat(h->image_fd, file, F_OK, 0) == 0;
}

const char *clean_name(const struct host *h, const struct settings *s)
{
	return s->clean_of[0] && !clean_exists(h, s->name) ? s->clean_of : s->name;
}

struct clone_search {
	const struct host *h;
	const char *origin;
	char found[VM_NAME_MAX];
};

static int is_clone(void *userdata, const struct settings *s, struct error *e)
{
	struct clone_search *c = userdata;

	(void)e;
	/* One that was patched has a clean image of its own, also before its settings say so. */
	if (str_equal(s->clean_of, c->origin) && !clean_exists(c->h, s->name))
		(void)str_copy(c->found, s->name);
	return 0;
}

int clean_clone_find(const struct host *h, const char *name, char ret[static VM_NAME_MAX], struct error *e)
{
	struct clone_search c = {.h = h, .origin = name};
	int r = settings_each(h, is_clone, &c, e);

	if (r < 0 || !c.found[0])
		return r;
	memcpy(ret, c.found, sizeof(c.found));
	return 1;
}

int clean_check(const struct host *h, const char *vm, const struct clean_image *c, struct error *e)
{
	char now[IDENTITY_MAX];
	struct base_image base;
	int r;

	r = image_identity(c->disk, now, e);
	if (r < 0)
		return error_wrap(e, "clean image of %s", vm);
	if (!str_equal(now, c->disk_identity))
		return error_set(e, ESTALE,
			"the clean image of %s is not the file it was when it was captured (%s then, %s "
			"now); "
			"capture it again",
			vm, c->disk_identity, now);
	r = base_load(h, c->image, &base, e);
	if (r < 0)
		return error_wrap(e, "base of the clean image of %s", vm);
	if (!str_equal(base.disk_identity, c->base_identity))
		return error_set(e, ESTALE,
			"the base image %s was replaced or changed since the clean image of %s was made on "
			"it "
			"(%s then, %s now); remove the VM and make it again",
			c->image, vm, c->base_identity, base.disk_identity);
	return 0;
}

int clean_remove(const struct host *h, const char *vm, struct error *e)
{
	char folder[96];
	int r;

	r = clean_sweep(h, vm, e);
	(void)str_format(folder, "images/%s@" BEFORE_LABEL, vm);
	if (r == 0)
		r = folder_drop(h, folder, e);
	(void)str_format(folder, "images/%s@" CLEAN_LABEL, vm);
	return r < 0 ? r : folder_drop(h, folder, e);
}

static int write_layer(const struct settings *s, const struct base_image *base, const char *own,
	const char *to, struct error *e)
{
	int r = disk_layer(own, base->disk, to, e);

	if (r < 0)
		return error_wrap(e, "cannot copy the disk of %s (is it running?)", s->name);
	/* Read-only for everybody, and QEMU's own user must be able to read it. */
	return folder_seal_file(to, 0444, e);
}

int clean_write_manifest(const struct host *h, const char *folder, const struct base_image *base,
	const char *disk, const char *base_sha256, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(4096);
	char sha256[SHA256_TEXT], identity[IDENTITY_MAX], now[32], file[128];
	int r;

	r = image_sha256(disk, sha256, e);
	if (r == 0)
		r = image_identity(disk, identity, e);
	if (r < 0)
		return r;
	clock_wall_text(clock_wall_us(), now, sizeof(now));
	r = buf_addf(&b,
		"IMAGE=%s\nDISK_IDENTITY=%s\nDISK_SHA256=%s\nBASE_IDENTITY=%s\nBASE_SHA256=%s\nCAPTURED=%s\n",
		base->name, identity, sha256, base->disk_identity, base_sha256, now);
	if (r == 0)
		r = str_format(file, "%s/manifest.env", folder);
	if (r < 0)
		return error_errno(e, -r, "manifest of a clean image");
	return file_write_atomic(h->image_fd, file, b.data, b.len, 0644, e);
}

int clean_capture(struct host *h, const struct settings *s, struct error *e)
{
	char made[96], final[96], own[VM_PATH_MAX], disk[VM_PATH_MAX], sha256[SHA256_TEXT];
	struct base_image base;
	int r;

	(void)str_format(made, "images/.%s.new", s->name);
	(void)str_format(final, "images/%s@" CLEAN_LABEL, s->name);
	host_step_begin(h, "base");
	r = base_load(h, s->image, &base, e);
	if (r < 0)
		return r;
	if (!str_equal(base.disk_identity, s->base_identity))
		return error_set(e, ESTALE,
			"the base image %s was replaced or changed since %s was made on it; remove the VM "
			"and "
			"make it again",
			s->image, s->name);
	r = base_intact(&base, sha256, e);
	if (r < 0)
		return r;
	host_step_done(h, "base image %s is intact", s->image);
	host_step_begin(h, "copy");
	r = HOST_PATH(h, own, e, "vms/%s.qcow2", s->name);
	if (r == 0)
		r = HOST_PATH(h, disk, e, "%s/disk.qcow2", made);
	if (r == 0)
		r = folder_make(h, made, e);
	if (r == 0)
		r = write_layer(s, &base, own, disk, e);
	if (r < 0)
		goto failed;
	host_step_done(h, "disk copied");
	host_step_begin(h, "bind");
	r = clean_write_manifest(h, made, &base, disk, sha256, e);
	if (r == 0)
		r = folder_swap_in(h, made, final, e);
	if (r < 0)
		goto failed;
	host_step_done(h, "%s@" CLEAN_LABEL " is in place", s->name);
	return 0;
failed:
	/* Only what was being made; the clean image in use has another name until the swap. */
	(void)folder_drop(h, made, NULL);
	return r;
}
