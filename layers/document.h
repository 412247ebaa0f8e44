#ifndef BOXERY_LAYERS_DOCUMENT_H
#define BOXERY_LAYERS_DOCUMENT_H
/*
 * Strict reading of a small YAML text with libyaml: one document, mappings with known keys, lists, scalars, and an error
 * that names file, line and what is allowed. Anchors and aliases are refused: a layer has no use for them, and
 * a text without them is a tree no larger than itself. (libyaml itself owns names like yaml_free, hence the prefix.)
 */
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

struct layer_document {
	yaml_document_t yaml;
	const char *shown;
	void *owned[2048]; /* arrays made while reading; freed with the document */
	size_t n_owned;
};

int doc_read(const char *shown, const char *data, size_t len, struct layer_document **ret, struct error *e);
struct layer_document *doc_free(struct layer_document *d);
/* Zeroed memory that lives as long as the document. NULL when out of memory or past its limit. */
void *doc_alloc(struct layer_document *d, size_t n, size_t size);

/* FILE:LINE: in front; returns -EBADMSG. node NULL: the file as a whole. */
int doc_error(const struct layer_document *d, const yaml_node_t *node, struct error *e, const char *format, ...)
		__attribute__((format(printf, 4, 5)));
unsigned doc_line(const yaml_node_t *node);
const yaml_node_t *doc_root(struct layer_document *d);

/* One key of a mapping and what to do with its value. */
struct doc_key {
	const char *name;
	int (*read)(struct layer_document *d, const yaml_node_t *value, void *target, struct error *e);
	void *target;
};
/* Calls the matching `read` for every key. what: the mapping's name in messages, "" for the top of the file. */
int doc_mapping(struct layer_document *d, const yaml_node_t *node, const char *what, const struct doc_key *keys,
		size_t n_keys, struct error *e);
/* A scalar that is neither empty nor holds a NUL or, unless multi_line, a control character. */
int doc_text(struct layer_document *d, const yaml_node_t *node, const char *what, bool multi_line, const char **ret,
		struct error *e);
/* Checks that node is a list of at most LAYER_LIST_MAX and returns its size; doc_item is its i-th entry. */
int doc_list(struct layer_document *d, const yaml_node_t *node, const char *what, size_t *ret_n, struct error *e);
const yaml_node_t *doc_item(struct layer_document *d, const yaml_node_t *list, size_t i);
#endif
