/* The inputs of a build: sources, packages, and the hash that says whether anything has changed. */
#include "boxery-config.h"
#include "base/cleanup.h"
#include "layers/plan.h"
#include "layers/sha256.h"
#include "linux/file.h"
#include "linux/program.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The folder that holds the layers folder: guest/ lies beside layers/ in the source tree and when installed. */
static int beside(const struct layer *l, const char *source, char *dst, size_t size)
{
	return str_format_n(dst, size, "%s/../%s", l->folder[0] ? l->folder : ".", source);
}

int plan_read_source(const struct layer *l, const char *source, char **ret, size_t *ret_len, struct error *e)
{
	/* The last for what is compiled. */
	const char *const folders[] = {NULL, program_data_folder(), program_build_folder()};
	char path[1024];

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		struct error why = ERROR_INIT;
		int r;

		if (i > 0 && !folders[i])
			continue;
		r = i == 0 ? beside(l, source, path, sizeof(path)) : str_format(path, "%s/%s", folders[i], source);

		if (r == 0)
			r = file_read(AT_FDCWD, path, PLAN_SOURCE_MAX, ret, ret_len, &why);
		if (r == 0)
			return 0;
		if (r != -ENOENT)
			return error_set(e, why.code ? why.code : -r, "%s: source %s: %s", l->shown, source, why.text);
	}
	return error_set(e, ENOENT, "%s: source %s is neither beside the folder %s nor in %s", l->shown, source, l->folder,
			program_data_folder());
}

int plan_layer_names(const struct layer_set *s, char *dst, size_t size, struct error *e)
{
	size_t len = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (str_format_n(dst + len, size - len, "%s%s", i ? "," : "", s->items[i]->name) < 0)
			return error_set(e, ENAMETOOLONG, "the names of the layers are longer than %zu bytes", size);
		len += strlen(dst + len);
	}
	return 0;
}

/* One input as LABEL SHA256: a label never holds a newline, so no two sets of inputs give the same text. */
static int add_input(struct buf *b, const char *label, const void *data, size_t len)
{
	char sum[LAYER_SHA256_MAX];
	int r = sha256_text(data, len, sum);

	return r < 0 ? r : buf_addf(b, "%s %s\n", label, sum);
}

static int add_source(struct buf *b, const struct layer *l, const char *source, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	size_t len;
	int r = plan_read_source(l, source, &data, &len, e);

	if (r < 0)
		return r;
	r = add_input(b, source, data, len);
	return r < 0 ? error_errno(e, -r, "inputs of layer %s", l->name) : 0;
}

static int add_layer(struct buf *b, const struct plan_request *q, const struct layer *l, struct error *e)
{
	int r = add_input(b, l->name, l->text, l->text_len);

	if (r < 0)
		return error_errno(e, -r, "inputs of layer %s", l->name);
	if (l->download.url && !l->download.sha256[q->arch]) {
		char url[1024];

		return layer_download_url(l, q->arch, url, sizeof(url), e);
	}
	for (size_t i = 0; r == 0 && i < l->n_files; i++)
		if (l->files[i].source)
			r = add_source(b, l, l->files[i].source, e);
	for (size_t i = 0; r == 0 && i < l->ca_certificates.n; i++)
		r = add_source(b, l, l->ca_certificates.items[i], e);
	return r;
}

int plan_inputs(const struct plan_request *q, const struct layer_set *s, char ret[static LAYER_SHA256_MAX],
		struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(PLAN_TEXT_MAX);
	int r = buf_addf(&b, "format %s\narch %s\nsuite %s\nmirror %s\nsecurity %s\ndisk %u\n", PLAN_FORMAT,
			layer_arch_to_string(q->arch), q->suite, q->mirror ? q->mirror : "",
			q->security_mirror ? q->security_mirror : "", q->disk_gib);

	if (r < 0)
		return error_errno(e, -r, "inputs of the build");
	if (q->proxy && buf_addf(&b, "proxy %s\nno_proxy %s\n", q->proxy, q->no_proxy ? q->no_proxy : "") < 0)
		return error_errno(e, ENOMEM, "inputs of the build");
	for (size_t i = 0; i < s->n; i++) {
		r = add_layer(&b, q, s->items[i], e);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < q->n_ca_files; i++) {
		CLEANUP_FREE char *data = NULL;
		size_t len;

		r = file_read(AT_FDCWD, q->ca_files[i], PLAN_SOURCE_MAX, &data, &len, e);
		if (r < 0)
			return error_wrap(e, "--ca");
		if (!strstr(data, "-----BEGIN CERTIFICATE-----"))
			return error_set(e, EINVAL, "--ca: %s holds no certificate in PEM form", q->ca_files[i]);
		r = add_input(&b, "ca", data, len);
		if (r < 0)
			return error_errno(e, -r, "inputs of the build");
	}
	r = sha256_text(b.data, b.len, ret);
	return r < 0 ? error_errno(e, -r, "inputs of the build") : 0;
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p && *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] ? 1 : 0))
		if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0'))
			return true;
	return false;
}

static int add_package(struct buf *b, const char *name, enum layer_arch arch)
{
	const char *hole = strstr(name, "{arch}");
	char full[160];
	int r;

	if (hole)
		r = str_format(full, "%.*s%s%s", (int)(hole - name), name, layer_arch_to_string(arch),
				hole + strlen("{arch}"));
	else
		r = str_copy(full, name);
	if (r < 0)
		return r;
	if (b->len && has_word(b->data, full))
		return 0;
	return buf_addf(b, "%s%s", b->len ? "," : "", full);
}

int plan_packages(const struct plan_request *q, const struct layer_set *s, struct buf *ret, struct error *e)
{
	bool authorities = q->n_ca_files > 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->n; i++) {
		const struct layer *l = s->items[i];

		authorities = authorities || l->ca_certificates.n > 0;
		for (size_t k = 0; r == 0 && k < l->packages.n; k++)
			r = add_package(ret, l->packages.items[k], q->arch);
	}
	if (r == 0 && authorities)
		r = add_package(ret, "ca-certificates", q->arch);
	return r < 0 ? error_errno(e, -r, "the list of packages") : 0;
}
