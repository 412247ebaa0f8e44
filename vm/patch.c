/*
 * A clean state on another base image, and the way back. A patched clean layer is empty: what there is to be had comes with
 * the base, so making it costs nothing, and a VM that shared another's clean state gets one of its own.
 *
 * The new one takes the clean image's place before anybody knows whether it is any good. Until the keeper has decided,
 * nothing of the old one is lost:
 *
 *   a VM with a clean image of its own   images/NAME@boxery-before/ has the old one's files, by hard links, so that they are
 *                                        the very files that others are bound to; made before the two are exchanged
 *   one that lives from another's        its own clean image is what counts while there is one; CLEAN_OF in its settings
 *                                        says where the old one is
 *
 * clean_settle() ends that, in either direction, as the keeper's request says (its base image, and whose clean state it
 * starts from). Each step may be repeated: what says that nothing is decided goes last.
 */
#include "base/str.h"
#include "linux/file.h"
#include "vm/disk.h"
#include "vm/folder.h"
#include "vm/image.h"
#include "vm/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define GIB (1024ull * 1024 * 1024)
#define OWN_CHANGES_MAX (1024 * 1024) /* what a clean layer without any has, and room */
#define FOLDER_MAX 96

struct folders {
	char made[FOLDER_MAX], clean[FOLDER_MAX], before[FOLDER_MAX], hidden[FOLDER_MAX];
};

static struct folders folders_of(const char *name)
{
	struct folders f = {0};

	(void)str_format(f.made, "images/.%s.new", name);
	(void)str_format(f.hidden, "images/.%s.before", name);
	(void)str_format(f.clean, "images/%s@" CLEAN_LABEL, name);
	(void)str_format(f.before, "images/%s@" BEFORE_LABEL, name);
	return f;
}

static bool folder_is_there(const struct host *h, const char *folder)
{
	return faccessat(h->image_fd, folder, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int sync_images(const struct host *h, struct error *e)
{
	CLEANUP_FD int images = -1;
	int r = dir_open(h->image_fd, "images", &images, e);

	return r < 0 ? r : dir_sync(images, e);
}

/* Gone in one step, whatever is killed while its files go. */
static int folder_end(const struct host *h, const char *folder, const char *hidden, struct error *e)
{
	int r = folder_drop(h, hidden, e);

	if (r < 0)
		return r;
	if (renameat(h->image_fd, folder, h->image_fd, hidden) < 0)
		return errno == ENOENT ? 0 : error_errno(e, errno, "cannot drop %s/%s", h->conf.image_dir, folder);
	r = sync_images(h, e);
	return r < 0 ? r : folder_drop(h, hidden, e);
}

/* The same files under another folder's name: their identities stay. */
static int folder_link(const struct host *h, const char *from, const char *to, struct error *e)
{
	static const char *const files[] = {"disk.qcow2", "manifest.env"};
	CLEANUP_FD int folder = -1;
	char a[128], b[128];
	int r = folder_make(h, to, e);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
		(void)str_format(a, "%s/%s", from, files[i]);
		(void)str_format(b, "%s/%s", to, files[i]);
		if (linkat(h->image_fd, a, h->image_fd, b, 0) < 0)
			r = error_errno(e, errno, "cannot keep %s/%s as %s", h->conf.image_dir, a, b);
	}
	if (r == 0)
		r = dir_open(h->image_fd, to, &folder, e);
	return r < 0 ? r : dir_sync(folder, e);
}

int clean_sweep(const struct host *h, const char *vm, struct error *e)
{
	const struct folders f = folders_of(vm);
	int r = folder_drop(h, f.made, e);

	return r < 0 ? r : folder_drop(h, f.hidden, e);
}

/* Somebody has worked in it before it was captured: that is on its disk only, and would be lost. */
static int check_no_changes(const struct settings *s, const struct clean_image *clean, struct error *e)
{
	struct stat st;

	if (stat(clean->disk, &st) < 0)
		return error_errno(e, errno, "%s", clean->disk);
	if ((uint64_t)st.st_blocks * 512 > OWN_CHANGES_MAX)
		return error_set(e, ENOTEMPTY,
			"%s was changed by hand before it joined its pool (%llu MiB), and that would be lost; put it into a layer "
			"of the image, then remove the VM and make it anew",
			s->name, (unsigned long long)st.st_blocks * 512 / (1024 * 1024));
	return 0;
}

int clean_patch_check(struct host *h, const struct settings *s, const char *image, struct base_image *ret, struct error *e)
{
	struct clean_image clean;
	char sha256[SHA256_TEXT];
	uint64_t size = 0;
	int r;

	host_step_begin(h, "base");
	r = base_load(h, image, ret, e);
	if (r == 0)
		r = base_intact(ret, sha256, e);
	if (r == 0)
		r = disk_virtual_size(ret->disk, &size, e);
	if (r < 0)
		return r;
	if (s->disk_gib * GIB < size)
		return error_set(e, EINVAL, "the disk of %s, %u GiB, is smaller than the base image %s, which has %llu GiB", s->name,
			s->disk_gib, image, (unsigned long long)((size + GIB - 1) / GIB));
	host_step_done(h, "base image %s is intact", image);
	/* One that is being repeated has the old one aside. */
	if (s->clean_of[0] || folder_is_there(h, folders_of(s->name).before))
		return 0;
	r = clean_load(h, s->name, &clean, e);
	return r < 0 ? r : check_no_changes(s, &clean, e);
}

static int make_layer(struct host *h, const struct settings *s, const struct base_image *base, const char *made, struct error *e)
{
	char disk[VM_PATH_MAX];
	int r = HOST_PATH(h, disk, e, "%s/disk.qcow2", made);

	if (r == 0)
		r = folder_make(h, made, e);
	if (r == 0)
		r = disk_create(disk, base->disk, s->disk_gib, e);
	if (r == 0)
		r = folder_seal_file(disk, 0444, e);
	return r < 0 ? r : clean_write_manifest(h, made, base, disk, base->sha256, e);
}

static int keep_before(const struct host *h, const struct folders *f, struct error *e)
{
	int r;

	if (folder_is_there(h, f->before))
		return 0;
	r = folder_link(h, f->clean, f->hidden, e);
	if (r < 0)
		return r;
	if (renameat2(h->image_fd, f->hidden, h->image_fd, f->before, RENAME_NOREPLACE) < 0)
		return error_errno(e, errno, "cannot put %s/%s aside", h->conf.image_dir, f->clean);
	return sync_images(h, e);
}

int clean_patch(struct host *h, const struct settings *s, const struct base_image *base, struct error *e)
{
	const struct folders f = folders_of(s->name);
	int r;

	host_step_begin(h, "layer");
	r = s->clean_of[0] ? 0 : keep_before(h, &f, e);
	if (r == 0)
		r = make_layer(h, s, base, f.made, e);
	if (r == 0)
		r = folder_swap_in(h, f.made, f.clean, e);
	if (r < 0)
		return r;
	host_step_done(h, "%s@" CLEAN_LABEL " is on %s", s->name, base->name);
	/* It is bound to the clean image before. */
	return warm_drop(h, s->name, e);
}

/* From now on it is a VM that was made on that base. */
static int accept(struct host *h, const struct settings *s, const struct clean_image *clean, struct error *e)
{
	const struct folders f = folders_of(s->name);
	struct settings now = *s;
	struct base_image base;
	int r = base_load(h, clean->image, &base, e);

	if (r < 0)
		return r;
	if (s->clean_of[0] || !str_equal(s->image, clean->image) || !str_equal(s->base_identity, base.disk_identity)) {
		/* Its own disk, which nothing has been started from since it joined the pool, would hold the old base. */
		r = overlay_create(h, "vms", s->name, base.disk, s->disk_gib, e);
		(void)str_copy(now.image, clean->image);
		(void)str_copy(now.base_identity, base.disk_identity);
		now.clean_of[0] = '\0';
		if (r == 0)
			r = settings_save(h, &now, e);
	}
	if (r == 0)
		r = folder_end(h, f.before, f.hidden, e);
	if (r == 0)
		host_step_done(h, "the clean state on %s stays", clean->image);
	return r;
}

static int go_back(struct host *h, const struct settings *s, struct error *e)
{
	const struct folders f = folders_of(s->name);
	int r = warm_drop(h, s->name, e);

	if (r == 0 && s->clean_of[0]) {
		r = folder_end(h, f.clean, f.hidden, e);
	} else if (r == 0) {
		r = folder_link(h, f.before, f.made, e);
		if (r == 0)
			r = folder_swap_in(h, f.made, f.clean, e);
		if (r == 0)
			r = folder_end(h, f.before, f.hidden, e);
	}
	if (r == 0)
		host_step_done(h, "back to the clean state before the patch");
	return r;
}

int clean_settle(struct host *h, const struct settings *s, const char *image, const char *clean_of, struct error *e)
{
	const struct folders f = folders_of(s->name);
	struct clean_image clean, before;
	bool found;

	if (s->clean_of[0] ? !clean_exists(h, s->name) : !folder_is_there(h, f.before))
		return 0;
	host_step_begin(h, "settle");
	found = clean_load(h, s->name, &clean, NULL) == 0;
	if (s->clean_of[0])
		return found && !clean_of[0] ? accept(h, s, &clean, e) : go_back(h, s, e);
	if (found && str_equal(clean.image, image))
		return accept(h, s, &clean, e);
	if (clean_load_from(h, f.before, s->name, &before, e) < 0)
		return error_wrap(e, "%s/%s", h->conf.image_dir, f.before);
	if (str_equal(before.image, image))
		return go_back(h, s, e);
	return error_set(e, ESTALE, "%s has clean states on %s and on %s, and should be on %s; remove the VM and make it anew", s->name,
		found ? clean.image : "nothing", before.image, image);
}
