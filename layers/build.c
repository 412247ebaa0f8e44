/* The stages of a build, and what it leaves: a whole image or nothing. */
#include "layers/build.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "linux/spawn.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define GIB (1024ull * 1024 * 1024)
#define REMOVE_TIMEOUT_MS (5ull * 60 * 1000)

void build_say(struct build *b, const char *stage, const char *format, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	(void)printf("[%6.1f s] %-8s %s\n", (double)(clock_boot_us() - b->began_us) / 1e6, stage, text);
	(void)fflush(stdout);
}

/* rm knows how to take away a tree; it stays on this file system, whatever is mounted in there. */
static int remove_tree(const char *path, struct error *e)
{
	const char *const argv[] = { "rm", "-rf", "--one-file-system", "--", path, NULL };
	struct spawn_options o = SPAWN_OPTIONS_INIT;

	o.program = argv[0];
	o.argv = argv;
	o.search_path = true;
	return spawn_capture(&o, REMOVE_TIMEOUT_MS, 4096, NULL, e);
}

static int open_base(struct build *b, int *ret_lock, struct error *e)
{
	CLEANUP_FD int lock = -1;
	char name[64];
	int r;

	if (str_format(b->base_dir, "%s/base", b->q->image_dir) < 0 ||
			str_format(b->work, "%s/.%s.tmp", b->base_dir, b->q->name) < 0 ||
			str_format(b->root, "%s/root", b->work) < 0 || str_format(name, ".%s.lock", b->q->name) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->q->image_dir);
	r = dir_make(b->base_dir, 0755, e);
	if (r == 0)
		r = dir_open(AT_FDCWD, b->base_dir, &b->base_fd, e);
	if (r < 0)
		return r;
	lock = openat(b->base_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return error_errno(e, errno, "cannot make %s/%s", b->base_dir, name);
	if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		return error_set(e, EBUSY, "image %s is being built already", b->q->name);
	*ret_lock = TAKE_FD(lock);
	return 0;
}

/* 1: there is a whole image of the same inputs. */
static int is_current(struct build *b, struct manifest *ret)
{
	CLEANUP_FD int fd = -1;
	struct stat st;

	if (dir_open(b->base_fd, b->q->name, &fd, NULL) < 0 || manifest_read(fd, MANIFEST_FILE, ret, NULL) < 0)
		return 0;
	return str_equal(ret->inputs, b->manifest.inputs) && fstatat(fd, MANIFEST_DISK, &st, 0) == 0 &&
			(uint64_t)st.st_size == ret->disk_file_size && fstatat(fd, ret->kernel, &st, 0) == 0 &&
			fstatat(fd, ret->initrd, &st, 0) == 0;
}

struct users {
	const char *image;
	char names[300], last[64];
	bool uses;
};

static int on_vm_setting(void *userdata, const char *key, const char *value, struct error *e)
{
	struct users *u = userdata;

	(void)e;
	if (str_equal(key, "IMAGE") && str_equal(value, u->image))
		u->uses = true;
	return 0;
}

/* The name's first `len` letters; once, of several files of one VM. */
static void add_user(struct users *u, const char *name, size_t len)
{
	const size_t used = strlen(u->names);
	char one[64];

	if (str_format(one, "%.*s", (int)len, name) < 0 || str_equal(one, u->last))
		return;
	(void)str_copy(u->last, one);
	(void)str_format_n(u->names + used, sizeof(u->names) - used, "%s%s", used ? ", " : "", one);
}

/* Whoever has IMAGE in FOLDER/ENTRY, or in FOLDER/ENTRY/manifest.env, where ENTRY is NAME and what follows `mark`. */
static int add_users(struct build *b, const char *part, char mark, const char *file, struct users *u, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	struct dirent *entry;
	char folder[300], path[600];

	if (str_format(folder, "%s/%s", b->q->image_dir, part) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->q->image_dir);
	d = opendir(folder);
	while (d && (entry = readdir(d)) != NULL) {
		CLEANUP_FREE char *data = NULL;
		const char *end = strrchr(entry->d_name, mark);
		size_t n;

		u->uses = false;
		if (!end || entry->d_name[0] == '.' || str_format(path, "%s%s", entry->d_name, file) < 0 ||
				file_read(dirfd(d), path, ENVFILE_MAX, &data, &n, NULL) < 0)
			continue;
		(void)envfile_parse(path, data, n, on_vm_setting, u, NULL);
		if (u->uses)
			add_user(u, entry->d_name, (size_t)(end - entry->d_name));
	}
	return 0;
}

/*
 * A VM's disk is an overlay on its image: with another image under it, it is garbage. vms/NAME.env says which, and while a VM is being
 * patched images/NAME@LABEL/manifest.env.
 */
static int check_unused(struct build *b, struct error *e)
{
	struct users u = { .image = b->q->name };
	int r = add_users(b, "vms", '.', "", &u, e);

	if (r == 0)
		r = add_users(b, "images", '@', "/manifest.env", &u, e);
	if (r == 0 && u.names[0])
		return error_set(e, EBUSY, "image %s would change, and it is the disk under %s; build under another name and put them on it "
				"(boxery-host pool patch), or remove them first", b->q->name, u.names);
	return r;
}

static int check_host(struct build *b, struct error *e)
{
	struct statvfs v;

	if (geteuid() != 0)
		return error_set(e, EPERM, "building an image needs root: packages are installed into a chroot");
	if (fstatvfs(b->base_fd, &v) < 0)
		return error_errno(e, errno, "cannot ask for the free space of %s", b->base_dir);
	if ((uint64_t)v.f_bavail * v.f_frsize / (1024 * 1024) < BUILD_FREE_MIB)
		return error_set(e, ENOSPC, "%s has %llu MiB free; a build needs %d", b->base_dir,
				(unsigned long long)v.f_bavail * v.f_frsize / (1024 * 1024), BUILD_FREE_MIB);
	return 0;
}

static int make_work(struct build *b, int *ret_stage, char *stage, size_t size, struct error *e)
{
	int r = remove_tree(b->work, e); /* what a killed build left */

	if (r == 0 && str_format_n(stage, size, "%s/stage", b->work) < 0)
		r = error_errno(e, ENAMETOOLONG, "%s", b->work);
	if (r == 0)
		r = dir_make(b->work, 0700, e); /* setuid programs of the image must not be reachable from here */
	if (r == 0)
		r = dir_open(AT_FDCWD, b->work, &b->work_fd, e);
	if (r == 0)
		r = dir_make(stage, 0700, e);
	return r < 0 ? r : dir_open(AT_FDCWD, stage, ret_stage, e);
}

struct packages_args {
	const char *argv[40];
	size_t n;
	char include[8192], architectures[40], hook[600], mirrors[3][400];
};

static int mirror_lines(struct build *b, struct packages_args *a, struct error *e)
{
	const struct plan_request *p = &b->q->plan;
	int r;

	if (!p->mirror)
		return 0; /* mmdebstrap adds the updates and security suites by itself */
	r = str_format(a->mirrors[0], "deb %s %s main", p->mirror, p->suite);
	if (r == 0)
		r = str_format(a->mirrors[1], "deb %s %s-updates main", p->mirror, p->suite);
	if (r == 0 && p->security_mirror)
		r = str_format(a->mirrors[2], "deb %s %s-security main", p->security_mirror, p->suite);
	else if (r == 0)
		r = str_format(a->mirrors[2], "deb %s-security %s-security main", p->mirror, p->suite);
	for (size_t i = 0; i < 3; i++)
		a->argv[a->n++] = a->mirrors[i];
	return r < 0 ? error_errno(e, -r, "--mirror") : 0;
}

static int install_packages(struct build *b, const char *stage, struct error *e)
{
	static const char *const fixed[] = { "unshare", "--mount", "--propagation", "private", "--pid", "--fork",
		"--kill-child", "--mount-proc", "--", "mmdebstrap", "--mode=root", "--format=directory",
		"--variant=minbase", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", "--aptopt=Acquire::Languages { none; }" };
	CLEANUP_BUF struct buf packages = BUF_INIT(sizeof(((struct packages_args *)0)->include) - 16);
	CLEANUP_BUF struct buf hook = BUF_INIT(580);
	struct packages_args a = { .n = 0 };
	int r = plan_packages(&b->q->plan, b->q->layers, &packages, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		a.argv[a.n++] = fixed[i];
	r = str_format(a.include, "--include=%s", packages.len ? packages.data : "");
	if (r == 0)
		r = str_format(a.architectures, "--architectures=%s", layer_arch_to_string(b->q->plan.arch));
	/* The hook is text for a shell, which sees the image's root as $1. */
	if (r == 0)
		r = buf_addf(&hook, "/bin/sh ");
	if (r == 0)
		r = plan_add_quoted(&hook, stage);
	if (r == 0)
		r = str_format(a.hook, "--customize-hook=%s/apply \"$1\"", hook.data);
	if (r < 0)
		return error_errno(e, -r, "the call of mmdebstrap");
	if (packages.len)
		a.argv[a.n++] = a.include;
	a.argv[a.n++] = a.architectures;
	a.argv[a.n++] = a.hook;
	a.argv[a.n++] = b->q->plan.suite;
	a.argv[a.n++] = b->root;
	r = mirror_lines(b, &a, e);
	a.argv[a.n] = NULL;
	return r < 0 ? r : build_run(b, "mmdebstrap", a.argv, BUILD_MMDEBSTRAP_TIMEOUT_MS, e);
}

static int download_all(struct build *b, char (*paths)[512], const char **archives, struct error *e)
{
	for (size_t i = 0; i < b->q->layers->n; i++) {
		const struct layer *l = b->q->layers->items[i];
		int r;

		archives[i] = NULL;
		if (!l->download.url)
			continue;
		r = build_fetch(b, l, paths[i], sizeof(paths[i]), e);
		if (r < 0)
			return r;
		archives[i] = paths[i];
		build_say(b, "download", "%s %s, SHA-256 verified", l->name, l->download.version);
	}
	return 0;
}

static int fill_manifest(struct build *b, struct error *e)
{
	const struct plan_request *p = &b->q->plan;
	struct manifest *m = &b->manifest;
	int r = plan_layer_names(b->q->layers, m->all_layers, sizeof(m->all_layers), e);

	if (r < 0)
		return r;
	m->disk_size = p->disk_gib * GIB;
	r = str_copy(m->arch, layer_arch_to_string(p->arch));
	if (r == 0)
		r = str_copy(m->suite, p->suite);
	if (r == 0)
		r = str_copy(m->layers, p->layer_list);
	if (r == 0)
		r = str_copy(m->kernel, "vmlinuz");
	if (r == 0)
		r = str_copy(m->initrd, "initrd");
	/* A guest that panics restarts at once, and a restart ends the life: nobody waits for a deadline. */
	if (r == 0)
		r = str_format(m->cmdline, "root=/dev/vda rw console=%s quiet panic=1",
				p->arch == LAYER_ARM64 ? "ttyAMA0" : "ttyS0");
	for (size_t i = 0; r == 0 && i < b->q->layers->n; i++)
		if (b->q->layers->items[i]->download.url)
			r = str_copy(m->runner_version, b->q->layers->items[i]->download.version);
	return r < 0 ? error_errno(e, -r, MANIFEST_FILE) : 0;
}

/* The finished folder takes its name; an image that was there leaves in the same step. */
static int put_in_place(struct build *b, struct error *e)
{
	char temporary[64], old[430];
	int r;

	if (str_format(temporary, ".%s.tmp", b->q->name) < 0 || str_format(old, "%s/root", b->work) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", b->q->name);
	r = remove_tree(old, e);
	if (r == 0 && str_format(old, "%s/stage", b->work) == 0)
		r = remove_tree(old, e);
	if (r == 0)
		r = file_remove(b->work_fd, "log", true, e);
	clock_wall_text(clock_wall_us(), b->manifest.built_at, sizeof(b->manifest.built_at));
	if (r == 0)
		r = manifest_write(b->work_fd, &b->manifest, e);
	if (r == 0 && (fchmod(b->work_fd, 0755) < 0 || syncfs(b->work_fd) < 0))
		r = error_errno(e, errno, "%s", b->work);
	if (r < 0)
		return r;
	if (renameat2(b->base_fd, temporary, b->base_fd, b->q->name, RENAME_NOREPLACE) < 0 &&
			(errno != EEXIST ||
					renameat2(b->base_fd, temporary, b->base_fd, b->q->name, RENAME_EXCHANGE) < 0))
		return error_errno(e, errno, "cannot put image %s in its place", b->q->name);
	return dir_sync(b->base_fd, e);
}

static int build_stages(struct build *b, struct error *e)
{
	char paths[LAYERS_MAX][512], stage[420];
	const char *archives[LAYERS_MAX] = { NULL };
	CLEANUP_FD int stage_fd = -1;
	int r = download_all(b, paths, archives, e);

	if (r == 0)
		r = make_work(b, &stage_fd, stage, sizeof(stage), e);
	if (r == 0)
		r = plan_stage(&b->q->plan, b->q->layers, stage_fd, stage, archives, e);
	if (r < 0)
		return r;
	build_say(b, "packages", "installing Debian %s (a minute or more)", b->q->plan.suite);
	r = install_packages(b, stage, e);
	if (r == 0)
		r = build_check(b, e);
	if (r == 0)
		r = build_record(b, e);
	if (r < 0)
		return r;
	build_say(b, "packages", "done");
	r = build_kernel(b, e);
	if (r == 0)
		r = build_disk(b, e);
	if (r < 0)
		return r;
	build_say(b, "disk", "%u GiB, %llu MiB used", b->q->plan.disk_gib,
			(unsigned long long)b->manifest.disk_file_size / (1024 * 1024));
	return put_in_place(b, e);
}

static int say_plan(struct build *b, struct error *e)
{
	CLEANUP_BUF struct buf packages = BUF_INIT(8192);
	int r = plan_packages(&b->q->plan, b->q->layers, &packages, e);

	if (r < 0)
		return r;
	(void)printf("layers   %s\npackages %s\n", b->manifest.all_layers, packages.data ? packages.data : "");
	for (size_t i = 0; i < b->q->layers->n; i++) {
		const struct layer *l = b->q->layers->items[i];
		char url[1024];

		if (l->download.url && layer_download_url(l, b->q->plan.arch, url, sizeof(url), e) == 0)
			(void)printf("download %s\n         sha256 %s\n", url, l->download.sha256[b->q->plan.arch]);
	}
	(void)printf("inputs   %s\n", b->manifest.inputs);
	return 0;
}

static void build_done(struct build *b)
{
	b->base_fd = fd_close(b->base_fd);
	b->work_fd = fd_close(b->work_fd);
}

int build_base(const struct build_request *q, struct error *e)
{
	CLEANUP(build_done) struct build b = { .q = q, .base_fd = -1, .work_fd = -1 };
	CLEANUP_FD int lock = -1;
	struct manifest old;
	int r;

	b.began_us = clock_boot_us();
	r = fill_manifest(&b, e);
	if (r == 0)
		r = plan_inputs(&q->plan, q->layers, b.manifest.inputs, e);
	if (r == 0 && q->dry_run)
		return say_plan(&b, e);
	if (r == 0)
		r = open_base(&b, &lock, e);
	if (r < 0)
		return r;
	if (!q->force && is_current(&b, &old)) {
		build_say(&b, "image", "%s reused, built %s from the same layers", q->name, old.built_at);
		return 0;
	}
	r = check_unused(&b, e);
	if (r == 0)
		r = check_host(&b, e);
	if (r < 0)
		return r;
	build_say(&b, "plan", "image %s from %s", q->name, b.manifest.all_layers);
	r = build_stages(&b, e);
	/* On failure the half image; on success the one that was replaced. */
	if (remove_tree(b.work, r < 0 ? NULL : e) < 0 && r == 0)
		return -e->code;
	if (r == 0)
		build_say(&b, "image", "%s/%s", b.base_dir, q->name);
	return r;
}
