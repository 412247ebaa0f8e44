/* Which layers, in which order; and what a download's URL is. */
#include "base/str.h"
#include "layers/layer.h"
#include <errno.h>
#include <string.h>

struct walk {
	const char *const *folders;
	size_t n_folders;
	struct layer_set *set;
	const char *path[LAYERS_MAX + 1]; /* names from the one asked for to the one being read */
	size_t depth;
};

static int missing(const struct walk *w, const char *name, struct error *e)
{
	char folders[300] = "";
	size_t len = 0;

	for (size_t i = 0; i < w->n_folders; i++) {
		if (str_format_n(folders + len, sizeof(folders) - len, "%s%s", i ? ", " : "", w->folders[i]) < 0)
			break;
		len = strlen(folders);
	}
	if (w->depth > 1)
		return error_set(e, ENOENT, "layer %s, which %s requires, is not in %s", name, w->path[w->depth - 2], folders);
	return error_set(e, ENOENT, "there is no layer %s in %s", name, folders);
}

static int find(const struct walk *w, const char *name, struct layer **ret, struct error *e)
{
	for (size_t i = 0; i < w->n_folders; i++) {
		struct error why = ERROR_INIT;
		int r = layer_load(w->folders[i], name, ret, &why);

		if (r != -ENOENT) {
			if (r < 0 && e)
				*e = why;
			return r;
		}
	}
	return missing(w, name, e);
}

static bool has(const struct layer_set *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (str_equal(s->items[i]->name, name))
			return true;
	return false;
}

static int circle(const struct walk *w, const char *name, struct error *e)
{
	char text[400] = "";
	size_t len = 0;

	for (size_t i = 0; i < w->depth; i++) {
		if (str_format_n(text + len, sizeof(text) - len, "%s requires ", w->path[i]) < 0)
			break;
		len = strlen(text);
	}
	return error_set(e, ELOOP, "layers require each other: %s%s", text, name);
}

/* NOLINTNEXTLINE(misc-no-recursion): the depth is bounded by LAYERS_MAX */
static int add(struct walk *w, const char *name, struct error *e)
{
	CLEANUP(layer_freep) struct layer *l = NULL;
	int r;

	for (size_t i = 0; i < w->depth; i++)
		if (str_equal(w->path[i], name))
			return circle(w, name, e);
	if (has(w->set, name))
		return 0;
	if (w->depth == LAYERS_MAX)
		return error_set(e, E2BIG, "layers require each other more than %u deep", LAYERS_MAX);
	w->path[w->depth++] = name;
	r = find(w, name, &l, e);
	for (size_t i = 0; r == 0 && i < l->requires.n; i++)
		r = add(w, l->requires.items[i], e);
	w->depth--;
	if (r < 0)
		return r;
	if (w->set->n == LAYERS_MAX)
		return error_set(e, E2BIG, "more than %u layers", LAYERS_MAX);
	w->set->items[w->set->n++] = TAKE_PTR(l);
	return 0;
}

int layer_set_load(const char *const *folders, size_t n_folders, const char *const *names, size_t n,
		struct layer_set *ret, struct error *e)
{
	CLEANUP_LAYER_SET struct layer_set set = { .n = 0 };
	struct walk w = { .folders = folders, .n_folders = n_folders, .set = &set };

	for (size_t i = 0; i < n; i++) {
		int r = name_check(names[i], "layer", e);

		if (r == 0)
			r = add(&w, names[i], e);
		if (r < 0)
			return r;
	}
	*ret = set;
	set.n = 0;
	return 0;
}

void layer_set_free(struct layer_set *s)
{
	for (size_t i = 0; i < s->n; i++)
		s->items[i] = layer_free(s->items[i]);
	s->n = 0;
}

int layer_download_url(const struct layer *l, enum layer_arch arch, char *dst, size_t size, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(size - 1);
	const struct layer_download *w = &l->download;
	const char *s = w->url;
	int r = 0;

	if (!w->sha256[arch])
		return error_set(e, EOPNOTSUPP, "%s:%u: no sha256 for %s, so layer %s cannot be built for it", l->shown,
				w->line, layer_arch_to_string(arch), l->name);
	while (r == 0 && *s) {
		size_t plain = strcspn(s, "{");

		if (plain)
			r = buf_add(&b, s, plain);
		else if (str_starts(s, "{version}"))
			r = buf_addf(&b, "%s", w->version);
		else
			r = buf_addf(&b, "%s", w->arch[arch]);
		s += plain ? plain : strcspn(s, "}") + 1;
	}
	if (r < 0)
		return error_errno(e, -r, "%s:%u: the URL of layer %s", l->shown, w->line, l->name);
	return str_copy_n(dst, size, b.data);
}
