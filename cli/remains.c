#include "cli/remains.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the programs write, each in its folder. */
static const char *const config_names[] = {
	"host.env", "runners.yaml", "runners.env", "github-app.pem", "host-keys", NULL};
static const char *const state_names[] = {
	"boxery.db*", "delivery-key*", "admin-key*", "keeper.log*", "runners-paused", "logs", NULL};
/* Alone it keeps a keeper from starting, and one is needed to go on after this was cut off. */
#define BEFORE_OTHERS "boxery.db.last-good"
static const char *const runtime_names[] = {
	"keeper.sock", "keeper.lock", "runners.sock", "runners.lock", "known-hosts-*", NULL};
static const char *const image_names[] = {
	"base", "images", "vms", "run", "console", "broken", "*.lock", NULL};
static const char *const cache_names[] = {"sha256", NULL};

static const char *const *names_of(
	const struct hostconf *conf, enum remains_folder which, const char **ret_path)
{
	const struct {
		const char *path;
		const char *const *names;
	} folders[REMAINS_COUNT] = {
		[REMAINS_CONFIG] = {conf->config_dir, config_names},
		[REMAINS_STATE] = {conf->state_dir, state_names},
		[REMAINS_RUNTIME] = {conf->runtime_dir, runtime_names},
		[REMAINS_IMAGES] = {conf->image_dir, image_names},
		[REMAINS_CACHE] = {conf->cache_dir, cache_names},
	};

	*ret_path = folders[which].path;
	return folders[which].names;
}

static bool is_ours(const char *const *names, const char *name)
{
	/* ".NAME.SUFFIX": begun and never renamed. */
	const char *begun = name[0] == '.' ? name + 1 : name;
	char pattern[64];

	for (; *names; names++)
		if (fnmatch(*names, name, FNM_PERIOD) == 0 ||
			(begun != name && str_format(pattern, "%s.*", *names) == 0 &&
				fnmatch(pattern, begun, 0) == 0))
			return true;
	return false;
}

static bool is_dots(const char *name)
{
	return str_equal(name, ".") || str_equal(name, "..");
}

/* A system install has its state inside the image folder. */
static bool is_another(const struct hostconf *conf, const char *path, const char *name)
{
	const char *others;
	char whole[600];

	if (str_format(whole, "%s/%s", path, name) < 0)
		return false;
	for (int i = 0; i < REMAINS_COUNT; i++) {
		(void)names_of(conf, (enum remains_folder)i, &others);
		if (str_equal(whole, others))
			return true;
	}
	return false;
}

struct walk {
	dev_t device;
	bool remove;
	struct remains *seen;
	const char *path; /* for errors */
};

static int walk_entry(const struct walk *w, int dir, const char *name, unsigned depth, struct error *e);

static int walk_folder(const struct walk *w, int dir, const char *name, unsigned depth, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	CLEANUP_FD int fd = -1;
	struct dirent *entry;
	int r;

	if (depth == REMAINS_DEPTH_MAX)
		return error_set(e, ELOOP, "%s: folders more than %d deep under it, at %s", w->path,
			REMAINS_DEPTH_MAX, name);
	r = dir_open(dir, name, &fd, e);
	if (r < 0)
		return error_wrap(e, "%s", w->path);
	d = fdopendir(fd);
	if (!d)
		return error_errno(e, errno, "cannot list %s in %s", name, w->path);
	(void)TAKE_FD(fd);
	while (r == 0 && (entry = readdir(d)))
		if (!is_dots(entry->d_name))
			r = walk_entry(w, dirfd(d), entry->d_name, depth + 1, e);
	if (r == 0 && w->remove && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = error_errno(e, errno, "cannot remove the folder %s in %s", name, w->path);
	return r;
}

static int walk_entry(const struct walk *w, int dir, const char *name, unsigned depth, struct error *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_errno(e, errno, "cannot look at %s in %s", name, w->path);
	if (st.st_dev != w->device)
		return w->remove ? error_set(e, EBUSY, "%s in %s is another file system: unmount it first",
					   name, w->path)
				 : 0;
	if (S_ISDIR(st.st_mode))
		return walk_folder(w, dir, name, depth, e);
	if (!w->remove) {
		w->seen->files++;
		/* Images are linked, too: each link counts its part. */
		w->seen->bytes += (uint64_t)st.st_blocks * 512 / (st.st_nlink ? st.st_nlink : 1);
		return 0;
	}
	return unlinkat(dir, name, 0) < 0 && errno != ENOENT
		       ? error_errno(e, errno, "cannot remove %s in %s", name, w->path)
		       : 0;
}

static void see_stranger(struct remains *seen, const char *name)
{
	if (seen->strangers++ == 0)
		str_show_n(seen->stranger, sizeof(seen->stranger), name, strlen(name));
}

/* 1: there is such a folder. */
static int walk_ours(const struct hostconf *conf, enum remains_folder which, bool remove,
	struct remains *seen, struct error *e)
{
	struct walk w = {.remove = remove, .seen = seen};
	const char *const *names = names_of(conf, which, &w.path);
	CLEANUP_DIR DIR *d = NULL;
	CLEANUP_FD int fd = -1;
	struct dirent *entry;
	struct stat st;
	int r;

	*seen = (struct remains){.path = w.path};
	if (access(w.path, F_OK) < 0 && errno == ENOENT)
		return 0;
	r = dir_open(AT_FDCWD, w.path, &fd, e);
	if (r < 0)
		return r;
	d = fstat(fd, &st) == 0 ? fdopendir(fd) : NULL;
	if (!d)
		return error_errno(e, errno, "cannot list %s", w.path);
	(void)TAKE_FD(fd);
	w.device = st.st_dev;
	if (remove && which == REMAINS_STATE)
		r = walk_entry(&w, dirfd(d), BEFORE_OTHERS, 0, e);
	while (r == 0 && (entry = readdir(d))) {
		if (is_dots(entry->d_name))
			continue;
		if (is_ours(names, entry->d_name))
			r = walk_entry(&w, dirfd(d), entry->d_name, 0, e);
		else if (!is_another(conf, w.path, entry->d_name))
			see_stranger(seen, entry->d_name);
	}
	return r < 0 ? r : 1;
}

int remains_look(const struct hostconf *conf, enum remains_folder which, struct remains *ret, struct error *e)
{
	int r = walk_ours(conf, which, false, ret, e);

	return r < 0 ? r : 0;
}

int remains_remove(const struct hostconf *conf, enum remains_folder which, struct error *e)
{
	struct remains seen;
	int r = walk_ours(conf, which, true, &seen, e);

	if (r <= 0)
		return r;
	if (rmdir(seen.path) < 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST &&
		errno != EBUSY)
		return error_errno(e, errno, "cannot remove the folder %s", seen.path);
	return 0;
}
