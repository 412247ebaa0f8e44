/*
 * The script that turns Debian into the image, and the files it puts in. Layers are applied one after the other, each:
 * users, files, archive, authorities, units; then the shell texts of all, in the same order. Everything that comes from a layer is quoted; its `run` texts
 * lie in files of their own and are handed to the chroot's shell as one word.
 */
#include "layers/plan.h"
#include "linux/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct stage {
	const struct plan_request *q;
	int fd;
	const char *path;
	unsigned n; /* files so far; the next one's name */
	struct buf script;
};

int plan_add_quoted(struct buf *b, const char *s)
{
	int r = buf_add(b, "'", 1);

	while (r == 0 && *s) {
		size_t plain = strcspn(s, "'");

		r = plain ? buf_add(b, s, plain) : buf_add(b, "'\\''", 4);
		s += plain ? plain : 1;
	}
	return r < 0 ? r : buf_add(b, "'", 1);
}

/* Each argument but the first is a word; the first is text of ours, in which %s of further ones is not looked for. */
static int line(struct stage *g, const char *command, const char *const *words, size_t n)
{
	int r = buf_addf(&g->script, "%s", command);

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = buf_add(&g->script, " ", 1);
		if (r == 0)
			r = plan_add_quoted(&g->script, words[i]);
	}
	return r < 0 ? r : buf_add(&g->script, "\n", 1);
}
#define LINE(g, command, ...)                                                                                         \
	line((g), (command), (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

/* A new file of the stage; its path goes to dst. */
static int put(struct stage *g, const void *data, size_t len, char *dst, size_t size, struct error *e)
{
	char name[32];
	int r = str_format(name, "file-%u", g->n++);

	if (r == 0)
		r = str_format_n(dst, size, "%s/%s", g->path, name);
	if (r < 0)
		return error_errno(e, -r, "%s", g->path);
	return file_write_atomic(g->fd, name, data, len, 0600, e);
}

static int stage_users(struct stage *g, const struct layer *l)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->n_users; i++) {
		const struct layer_user *u = &l->users[i];
		char uid[16];

		r = str_format(uid, "%u", u->uid);
		if (r == 0)
			r = LINE(g, "in_image useradd --create-home --user-group --uid", uid, "--shell", u->shell, u->name);
		for (size_t k = 0; r == 0 && k < u->groups.n; k++)
			r = LINE(g, "in_image usermod --append --groups", u->groups.items[k], u->name);
	}
	return r;
}

static int stage_file(struct stage *g, const struct layer *l, const struct layer_file *f, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	const char *text = f->content;
	char path[600] = "", mode[8];
	size_t len = text ? strlen(text) : 0;
	int r = 0;

	if (!text) {
		r = plan_read_source(l, f->source, &data, &len, e);
		text = data;
	}
	if (r == 0)
		r = put(g, text, len, path, sizeof(path), e);
	if (r < 0)
		return r;
	r = str_format(mode, "%04o", (unsigned)f->mode);
	if (r == 0)
		r = LINE(g, "put", mode, f->owner, path, f->dest);
	return r < 0 ? error_errno(e, -r, "%s:%u: %s", l->shown, f->line, f->dest) : 0;
}

static int stage_authority(struct stage *g, const char *data, size_t len, struct error *e)
{
	char path[600] = "", dest[100];
	int r = put(g, data, len, path, sizeof(path), e);

	if (r < 0)
		return r;
	r = str_format(dest, "/usr/local/share/ca-certificates/boxery-%u.crt", g->n);
	if (r == 0)
		r = LINE(g, "put 0644 root:root", path, dest);
	return r < 0 ? error_errno(e, -r, "a certificate") : 0;
}

static int stage_proxy(struct stage *g, struct error *e)
{
	char text[2048], path[600] = "";
	int r = str_format(text, "http_proxy=%s\nhttps_proxy=%s\nno_proxy=%s\n", g->q->proxy, g->q->proxy,
			g->q->no_proxy ? g->q->no_proxy : PLAN_NO_PROXY_DEFAULT);

	if (r < 0)
		return error_errno(e, -r, "the proxy");
	r = put(g, text, strlen(text), path, sizeof(path), e);
	if (r == 0 && LINE(g, "put 0644 root:root", path, PLAN_RUNNER_ENV) < 0)
		r = error_errno(e, ENOMEM, "the proxy");
	return r;
}

static int stage_run(struct stage *g, const struct layer *l, const char *text, struct error *e)
{
	char path[600] = "";
	int r = put(g, text, strlen(text), path, sizeof(path), e);

	if (r < 0)
		return r;
	r = LINE(g, "run", path, l->name);
	return r < 0 ? error_errno(e, -r, "layer %s", l->name) : 0;
}

static int stage_units(struct stage *g, const struct layer *l)
{
	const struct {
		const char *verb;
		const struct layer_list *list;
	} verbs[] = { { "in_image systemctl --quiet enable --", &l->enable },
		{ "in_image systemctl --quiet disable --", &l->disable }, { "in_image systemctl --quiet mask --", &l->mask } };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(verbs); i++)
		if (verbs[i].list->n)
			r = line(g, verbs[i].verb, verbs[i].list->items, verbs[i].list->n);
	return r;
}

static int stage_layer(struct stage *g, const struct layer *l, const char *archive, struct error *e)
{
	int r = LINE(g, "echo", l->name);

	if (r == 0)
		r = stage_users(g, l);
	if (r < 0)
		return error_errno(e, -r, "layer %s", l->name);
	for (size_t i = 0; r == 0 && i < l->n_files; i++)
		r = stage_file(g, l, &l->files[i], e);
	if (r == 0 && archive && LINE(g, "unpack", archive, l->download.dest) < 0)
		r = error_errno(e, ENOMEM, "layer %s", l->name);
	for (size_t i = 0; r == 0 && i < l->ca_certificates.n; i++) {
		CLEANUP_FREE char *data = NULL;
		size_t len;

		r = plan_read_source(l, l->ca_certificates.items[i], &data, &len, e);
		if (r == 0)
			r = stage_authority(g, data, len, e);
	}
	if (r == 0 && stage_units(g, l) < 0)
		r = error_errno(e, ENOMEM, "layer %s", l->name);
	return r;
}

static int stage_all(struct stage *g, const struct layer_set *s, const char *const *archives, struct error *e)
{
	bool authorities = g->q->n_ca_files > 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->n; i++) {
		authorities = authorities || s->items[i]->ca_certificates.n > 0;
		r = stage_layer(g, s->items[i], archives[i], e);
	}
	for (size_t i = 0; r == 0 && i < g->q->n_ca_files; i++) {
		CLEANUP_FREE char *data = NULL;
		size_t len;

		r = file_read(AT_FDCWD, g->q->ca_files[i], PLAN_SOURCE_MAX, &data, &len, e);
		if (r == 0)
			r = stage_authority(g, data, len, e);
	}
	if (r == 0 && g->q->proxy)
		r = stage_proxy(g, e);
	if (r == 0 && authorities && buf_addf(&g->script, "in_image update-ca-certificates\n") < 0)
		r = error_errno(e, ENOMEM, "certificates");
	/* After everything is in place, so that a layer's text sees the whole image. */
	for (size_t i = 0; r == 0 && i < s->n; i++)
		for (size_t k = 0; r == 0 && k < s->items[i]->run.n; k++)
			r = stage_run(g, s->items[i], s->items[i]->run.items[k], e);
	return r;
}

static const char preamble[] =
	"#!/bin/sh\n"
	"# What boxery-build does to a fresh Debian to make it the image. $1: the image's root.\n"
	"set -eu\n"
	"export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8\n"
	"root=$(realpath -- \"$1\")\n"
	"in_image() { chroot \"$root\" \"$@\" </dev/null; }\n"
	"inside() { # DEST; an absolute link on the way would lead out of the image, onto the host\n"
	"\tcase $(realpath -m -- \"$root$1\") in\n"
	"\t\"$root\"/*) ;;\n"
	"\t*) echo \"$1 leads out of the image through a link\" >&2; exit 1 ;;\n"
	"\tesac\n"
	"}\n"
	"put() { # MODE OWNER FILE DEST\n"
	"\tinside \"$4\"\n"
	"\tinstall -D -m \"$1\" -- \"$3\" \"$root$4\"\n"
	"\t[ \"$2\" = root:root ] || in_image chown --no-dereference -- \"$2\" \"$4\"\n"
	"\tchmod \"$1\" -- \"$root$4\"\n"
	"}\n"
	"unpack() { # ARCHIVE DEST\n"
	"\tinside \"$2\"\n"
	"\tmkdir -p -- \"$root$2\"\n"
	"\ttar --extract --no-same-owner --no-acls --no-xattrs --directory \"$root$2\" --file \"$1\"\n"
	"}\n"
	"run() { # FILE LAYER\n"
	"\techo \"$2: run\"\n"
	"\tin_image /bin/sh -eu -c \"$(cat -- \"$1\")\"\n"
	"}\n";

int plan_stage(const struct plan_request *q, const struct layer_set *s, int stage, const char *stage_path,
		const char *const archives[static LAYERS_MAX], struct error *e)
{
	struct stage g = { .q = q, .fd = stage, .path = stage_path, .script = BUF_INIT(PLAN_TEXT_MAX) };
	int r = buf_addf(&g.script, "%s", preamble);

	r = r < 0 ? error_errno(e, -r, "the build script") : stage_all(&g, s, archives, e);
	if (r == 0)
		r = file_write_atomic(stage, "apply", g.script.data, g.script.len, 0700, e);
	buf_free(&g.script);
	return r;
}
