#ifndef BOXERY_LAYERS_PLAN_H
#define BOXERY_LAYERS_PLAN_H
/*
 * What a build will do, worked out before anything is done: every source is read and every value is checked, so that
 * a mistake in a layer is found in milliseconds and not after the packages.
 *
 * A source path is looked for beside the layers folder it was named in, then in boxery's installed data folder or, for a
 * program that runs from its build tree, in the source tree and in that build tree.
 */
#include "base/error.h"
#include "base/str.h"
#include "layers/layer.h"
#include <stdint.h>

#define PLAN_CA_MAX 16u
#define PLAN_TEXT_MAX (4u << 20)
#define PLAN_SOURCE_MAX (16u << 20)
#define PLAN_FORMAT "1" /* part of the inputs' hash: raised when a build of the same layers would come out otherwise */

struct plan_request {
	enum layer_arch arch;
	const char *suite;
	const char *mirror, *security_mirror; /* NULL: mmdebstrap's own; security NULL with a mirror: derived from it */
	const char *ca_files[PLAN_CA_MAX];    /* further authorities the guest shall trust */
	size_t n_ca_files;
	const char *proxy, *no_proxy;         /* for what runs in the guest; NULL: none. checked */
	uint32_t disk_gib;
	const char *layer_list; /* as asked for, comma-separated; goes into the manifest */
};

/* The names of the layers in order, comma-separated. */
int plan_layer_names(const struct layer_set *s, char *dst, size_t size, struct error *e);
/* SHA-256 over everything that decides how the image comes out, except the state of the Debian archive. */
int plan_inputs(const struct plan_request *q, const struct layer_set *s, char ret[static LAYER_SHA256_MAX],
		struct error *e);
/* Packages of all layers, comma-separated, each once. */
int plan_packages(const struct plan_request *q, const struct layer_set *s, struct buf *ret, struct error *e);
/*
 * Copies every source into the folder stage (an open fd, empty) and writes `apply` there: a shell script that is run
 * as mmdebstrap's customize hook with the image's root as its argument. stage_path is the folder's name, archives[i] the
 * cached download of layer i (NULL: none).
 */
int plan_stage(const struct plan_request *q, const struct layer_set *s, int stage, const char *stage_path,
		const char *const archives[static LAYERS_MAX], struct error *e);

/* Where the guest's run-job reads them, KEY=VALUE. */
#define PLAN_RUNNER_ENV "/etc/boxery/runner.env"
#define PLAN_NO_PROXY_DEFAULT "localhost,127.0.0.1,::1"

/* Reads a source of a layer; *ret is malloc'd. */
int plan_read_source(const struct layer *l, const char *source, char **ret, size_t *ret_len, struct error *e);
/* Adds s as one word of a shell. */
int plan_add_quoted(struct buf *b, const char *s);
#endif
