/*
 * One layer file into a struct. Every mapping is a table of keys with their readers; a reader checks the value and says
 * what is wrong with it, doc_error puts FILE:LINE in front.
 */
#include "layers/layer.h"
#include "base/str.h"
#include "base/table.h"
#include "layers/check.h"
#include "layers/document.h"
#include "linux/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/utsname.h>

static const char *const arch_names[] = { "amd64", "arm64" };
STRING_TABLE(layer_arch, enum layer_arch, arch_names, LAYER_ARCH_COUNT);

typedef int (*check_fn)(const char *s, struct error *e);
#define UID_FIRST 1000
#define UID_LAST 59999

int layer_arch_host(enum layer_arch *ret, struct error *e)
{
	struct utsname u;

	if (uname(&u) < 0)
		return error_errno(e, errno, "cannot ask for this machine's architecture");
	if (str_equal(u.machine, "x86_64"))
		*ret = LAYER_AMD64;
	else if (str_equal(u.machine, "aarch64"))
		*ret = LAYER_ARM64;
	else
		return error_set(e, EOPNOTSUPP, "images are built for amd64 and arm64; this machine is %s", u.machine);
	return 0;
}

/* The value's own sentence, with the place in front. */
static int checked(struct layer_document *d, const yaml_node_t *node, const char *what, check_fn check, const char **ret,
		struct error *e)
{
	struct error why = ERROR_INIT;
	const char *s;
	int r = doc_text(d, node, what, false, &s, e);

	if (r < 0)
		return r;
	if (check && check(s, &why) < 0)
		return doc_error(d, node, e, "%s: %s", what, why.text);
	*ret = s;
	return 0;
}

#define TEXT_READER(name, what, check)                                                                                \
	static int name(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)                \
	{                                                                                                             \
		return checked(d, v, what, check, target, e);                                                         \
	}                                                                                                             \
	struct name##_needs_semicolon
static int check_layer_name(const char *s, struct error *e)
{
	return name_check(s, "layer", e) < 0 ? -EBADMSG : 0;
}
TEXT_READER(read_name, "name", check_layer_name);
TEXT_READER(read_description, "description", NULL);
TEXT_READER(read_source, "source", check_source);
TEXT_READER(read_target, "dest", check_target);
TEXT_READER(read_owner, "owner", check_owner);
TEXT_READER(read_user_name, "name", check_account);
TEXT_READER(read_shell, "shell", check_target);
TEXT_READER(read_version, "version", check_version);
TEXT_READER(read_url, "url", check_url);
TEXT_READER(read_arch_word, "arch", check_arch_word);
TEXT_READER(read_sum, "sha256", check_sha256);

static int read_content(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	return doc_text(d, v, "content", true, target, e);
}

static int read_mode(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	struct error why = ERROR_INIT;
	const char *s;
	int r = doc_text(d, v, "mode", false, &s, e);

	if (r < 0)
		return r;
	return check_mode(s, target, &why) < 0 ? doc_error(d, v, e, "mode: %s", why.text) : 0;
}

static int read_uid(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	struct error why = ERROR_INIT;
	uint64_t n;
	const char *s;
	int r = doc_text(d, v, "uid", false, &s, e);

	if (r < 0)
		return r;
	if (parse_u64(s, "uid", UID_FIRST, UID_LAST, &n, &why) < 0)
		return doc_error(d, v, e, "%s", why.text);
	*(uint32_t *)target = (uint32_t)n;
	return 0;
}

static int read_list(struct layer_document *d, const yaml_node_t *v, const char *what, check_fn check, bool multi_line,
		struct layer_list *ret, struct error *e)
{
	size_t n;
	int r = doc_list(d, v, what, &n, e);
	const char **items;

	if (r < 0)
		return r;
	items = doc_alloc(d, n, sizeof(*items));
	if (!items)
		return error_errno(e, ENOMEM, "%s", d->shown);
	for (size_t i = 0; i < n; i++) {
		const yaml_node_t *item = doc_item(d, v, i);

		r = multi_line ? doc_text(d, item, what, true, &items[i], e) :
				 checked(d, item, what, check, &items[i], e);
		if (r < 0)
			return r;
		for (size_t k = 0; k < i && !multi_line; k++)
			if (str_equal(items[k], items[i]))
				return doc_error(d, item, e, "%s: '%s' is given twice", what, items[i]);
	}
	ret->items = items;
	ret->n = n;
	return 0;
}

#define LIST_READER(name, what, check, multi_line)                                                                    \
	static int name(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)                \
	{                                                                                                             \
		return read_list(d, v, what, check, multi_line, target, e);                                           \
	}                                                                                                             \
	struct name##_needs_semicolon
LIST_READER(read_requires, "requires", check_layer_name, false);
LIST_READER(read_packages, "packages", check_package, false);
LIST_READER(read_groups, "groups", check_account, false);
LIST_READER(read_enable, "enable", check_unit, false);
LIST_READER(read_disable, "disable", check_unit, false);
LIST_READER(read_mask, "mask", check_unit, false);
LIST_READER(read_certificates, "ca_certificates", check_source, false);
LIST_READER(read_run, "run", NULL, true);

static int read_file(struct layer_document *d, const yaml_node_t *node, struct layer_file *f, struct error *e)
{
	const struct doc_key keys[] = {
		{ "source", read_source, &f->source }, { "content", read_content, &f->content },
		{ "dest", read_target, &f->dest }, { "mode", read_mode, &f->mode }, { "owner", read_owner, &f->owner },
	};
	int r;

	*f = (struct layer_file){ .mode = 0644, .owner = "root:root" };
	r = doc_mapping(d, node, "files", keys, ARRAY_SIZE(keys), e);
	if (r < 0)
		return r;
	f->line = doc_line(node);
	if (!f->dest)
		return doc_error(d, node, e, "a file without dest");
	if (!f->source == !f->content)
		return doc_error(d, node, e, "%s needs source or content, and not both", f->dest);
	return 0;
}

static int read_files(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	struct layer *l = target;
	size_t n;
	int r = doc_list(d, v, "files", &n, e);

	if (r < 0)
		return r;
	l->files = doc_alloc(d, n, sizeof(*l->files));
	if (!l->files)
		return error_errno(e, ENOMEM, "%s", d->shown);
	for (size_t i = 0; i < n; i++) {
		r = read_file(d, doc_item(d, v, i), &l->files[i], e);
		if (r < 0)
			return r;
	}
	l->n_files = n;
	return 0;
}

static int read_users(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	struct layer *l = target;
	size_t n;
	int r = doc_list(d, v, "users", &n, e);

	if (r < 0)
		return r;
	l->users = doc_alloc(d, n, sizeof(*l->users));
	if (!l->users)
		return error_errno(e, ENOMEM, "%s", d->shown);
	for (size_t i = 0; i < n; i++) {
		struct layer_user *u = &l->users[i];
		const yaml_node_t *item = doc_item(d, v, i);
		const struct doc_key keys[] = {
			{ "name", read_user_name, &u->name }, { "uid", read_uid, &u->uid },
			{ "shell", read_shell, &u->shell }, { "groups", read_groups, &u->groups },
		};

		u->shell = "/bin/bash";
		r = doc_mapping(d, item, "users", keys, ARRAY_SIZE(keys), e);
		if (r < 0)
			return r;
		if (!u->name || !u->uid)
			return doc_error(d, item, e, "a user needs name and uid");
	}
	l->n_users = n;
	return 0;
}

static int read_units(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	struct layer *l = target;
	const struct doc_key keys[] = {
		{ "enable", read_enable, &l->enable }, { "disable", read_disable, &l->disable },
		{ "mask", read_mask, &l->mask },
	};

	return doc_mapping(d, v, "units", keys, ARRAY_SIZE(keys), e);
}

static int read_arch_table(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	const char **words = target;
	const struct doc_key keys[] = {
		{ "amd64", read_arch_word, &words[LAYER_AMD64] }, { "arm64", read_arch_word, &words[LAYER_ARM64] },
	};

	return doc_mapping(d, v, "arch", keys, ARRAY_SIZE(keys), e);
}

static int read_sum_table(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	const char **sums = target;
	const struct doc_key keys[] = {
		{ "amd64", read_sum, &sums[LAYER_AMD64] }, { "arm64", read_sum, &sums[LAYER_ARM64] },
	};

	return doc_mapping(d, v, "sha256", keys, ARRAY_SIZE(keys), e);
}

static int read_download(struct layer_document *d, const yaml_node_t *v, void *target, struct error *e)
{
	struct layer_download *w = target;
	const struct doc_key keys[] = {
		{ "version", read_version, &w->version }, { "url", read_url, &w->url }, { "dest", read_target, &w->dest },
		{ "arch", read_arch_table, w->arch }, { "sha256", read_sum_table, w->sha256 },
	};
	int r = doc_mapping(d, v, "download", keys, ARRAY_SIZE(keys), e);

	if (r < 0)
		return r;
	w->line = doc_line(v);
	if (!w->version || !w->url || !w->dest)
		return doc_error(d, v, e, "a download needs version, url and dest");
	if (!w->sha256[LAYER_AMD64] && !w->sha256[LAYER_ARM64])
		return doc_error(d, v, e, "a download without sha256; what is not pinned is not downloaded");
	for (size_t i = 0; i < LAYER_ARCH_COUNT; i++)
		if (!w->arch[i])
			w->arch[i] = layer_arch_to_string((enum layer_arch)i);
	return 0;
}

static int read_layer(struct layer *l, const char *expected_name, struct error *e)
{
	const struct doc_key keys[] = {
		{ "name", read_name, &l->name }, { "description", read_description, &l->description },
		{ "requires", read_requires, &l->requires }, { "packages", read_packages, &l->packages },
		{ "files", read_files, l }, { "users", read_users, l }, { "units", read_units, l },
		{ "download", read_download, &l->download },
		{ "ca_certificates", read_certificates, &l->ca_certificates }, { "run", read_run, &l->run },
	};
	const yaml_node_t *root = doc_root(l->document);
	int r;

	if (!root)
		return doc_error(l->document, NULL, e, "the file is empty");
	r = doc_mapping(l->document, root, "", keys, ARRAY_SIZE(keys), e);
	if (r < 0)
		return r;
	if (!l->name)
		return doc_error(l->document, NULL, e, "the layer has no name");
	if (expected_name && !str_equal(l->name, expected_name))
		return doc_error(l->document, root, e, "name is '%s', but the file is %s.yaml", l->name, expected_name);
	if (l->requires.n > LAYERS_MAX)
		return doc_error(l->document, root, e, "requires more than %u layers", LAYERS_MAX);
	return 0;
}

int layer_parse(const char *shown, const char *expected_name, const char *data, size_t len, struct layer **ret,
		struct error *e)
{
	CLEANUP(layer_freep) struct layer *l = calloc(1, sizeof(*l));
	int r;

	if (!l || str_copy(l->shown, shown) < 0)
		return error_errno(e, l ? ENAMETOOLONG : ENOMEM, "%s", shown);
	if (len > LAYER_FILE_MAX)
		return error_set(e, EBADMSG, "%s: larger than %u bytes", shown, LAYER_FILE_MAX);
	r = doc_read(l->shown, data, len, &l->document, e);
	if (r == 0)
		r = read_layer(l, expected_name, e);
	if (r < 0)
		return r;
	l->text = malloc(len + 1);
	if (!l->text)
		return error_errno(e, ENOMEM, "%s", shown);
	memcpy(l->text, data, len);
	l->text[len] = '\0';
	l->text_len = len;
	*ret = TAKE_PTR(l);
	return 0;
}

int layer_load(const char *folder, const char *name, struct layer **ret, struct error *e)
{
	CLEANUP(layer_freep) struct layer *l = NULL;
	CLEANUP_FREE char *data = NULL;
	char path[512];
	size_t len;
	int r = check_layer_name(name, e);

	if (r < 0)
		return r;
	if (str_format(path, "%s/%s.yaml", folder, name) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", folder);
	r = file_read(AT_FDCWD, path, LAYER_FILE_MAX, &data, &len, e);
	if (r == 0)
		r = layer_parse(path, name, data, len, &l, e);
	if (r < 0)
		return r;
	if (str_copy(l->folder, folder) < 0)
		return error_errno(e, ENAMETOOLONG, "%s", folder);
	*ret = TAKE_PTR(l);
	return 0;
}

struct layer *layer_free(struct layer *l)
{
	if (!l)
		return NULL;
	(void)doc_free(l->document);
	free(l->text);
	free(l);
	return NULL;
}
