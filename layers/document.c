#include "layers/document.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "layers/layer.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIST_TEXT_MAX 200
#define DEPTH_MAX 16

DEFINE_CLEANUP(struct layer_document *, doc_free);

static void parser_done(yaml_parser_t *p)
{
	yaml_parser_delete(p);
}

static int parser_error(const char *shown, const yaml_parser_t *p, struct error *e)
{
	if (p->error == YAML_MEMORY_ERROR)
		return error_errno(e, ENOMEM, "%s", shown);
	return error_set(e, EBADMSG, "%s:%zu: not YAML: %s%s%s", shown, p->problem_mark.line + 1,
			p->problem ? p->problem : "cannot be read", p->context ? ", " : "", p->context ? p->context : "");
}

static int check_event(const char *shown, const yaml_event_t *ev, unsigned *documents, unsigned *depth, struct error *e)
{
	const yaml_char_t *anchor = NULL;

	if (ev->type == YAML_DOCUMENT_START_EVENT && ++*documents > 1)
		return error_set(e, EBADMSG, "%s:%zu: a second document; one is allowed", shown, ev->start_mark.line + 1);
	if (ev->type == YAML_MAPPING_START_EVENT)
		anchor = ev->data.mapping_start.anchor;
	else if (ev->type == YAML_SEQUENCE_START_EVENT)
		anchor = ev->data.sequence_start.anchor;
	else if (ev->type == YAML_SCALAR_EVENT)
		anchor = ev->data.scalar.anchor;
	if (anchor || ev->type == YAML_ALIAS_EVENT)
		return error_set(e, EBADMSG, "%s:%zu: anchors and aliases are not allowed; write the value out", shown,
				ev->start_mark.line + 1);
	if (ev->type == YAML_MAPPING_START_EVENT || ev->type == YAML_SEQUENCE_START_EVENT)
		++*depth;
	if (ev->type == YAML_MAPPING_END_EVENT || ev->type == YAML_SEQUENCE_END_EVENT)
		--*depth;
	if (*depth > DEPTH_MAX)
		return error_set(e, EBADMSG, "%s:%zu: nested more than %d deep", shown, ev->start_mark.line + 1, DEPTH_MAX);
	return 0;
}

/* A first pass over the events: what loading a document would hide (aliases, a second document) is seen here. */
static int check_events(const char *shown, const char *data, size_t len, struct error *e)
{
	CLEANUP(parser_done) yaml_parser_t p;
	unsigned documents = 0, depth = 0;

	bool more = true;

	if (!yaml_parser_initialize(&p))
		return error_errno(e, ENOMEM, "%s", shown);
	yaml_parser_set_input_string(&p, (const unsigned char *)data, len);
	while (more) {
		yaml_event_t ev;
		int r;

		if (!yaml_parser_parse(&p, &ev))
			return parser_error(shown, &p, e);
		r = check_event(shown, &ev, &documents, &depth, e);
		more = ev.type != YAML_STREAM_END_EVENT;
		yaml_event_delete(&ev);
		if (r < 0)
			return r;
	}
	return 0;
}

int doc_read(const char *shown, const char *data, size_t len, struct layer_document **ret, struct error *e)
{
	CLEANUP(parser_done) yaml_parser_t p;
	CLEANUP(doc_freep) struct layer_document *d = NULL;
	int r = check_events(shown, data, len, e);

	if (!yaml_parser_initialize(&p))
		return error_errno(e, ENOMEM, "%s", shown);
	if (r < 0)
		return r;
	d = calloc(1, sizeof(*d));
	if (!d)
		return error_errno(e, ENOMEM, "%s", shown);
	d->shown = shown;
	yaml_parser_set_input_string(&p, (const unsigned char *)data, len);
	if (!yaml_parser_load(&p, &d->yaml))
		return parser_error(shown, &p, e);
	*ret = TAKE_PTR(d);
	return 0;
}

struct layer_document *doc_free(struct layer_document *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->n_owned; i++)
		free(d->owned[i]);
	yaml_document_delete(&d->yaml);
	free(d);
	return NULL;
}

void *doc_alloc(struct layer_document *d, size_t n, size_t size)
{
	void *p;

	if (d->n_owned == ARRAY_SIZE(d->owned))
		return NULL;
	p = calloc(n ? n : 1, size);
	if (p)
		d->owned[d->n_owned++] = p;
	return p;
}

unsigned doc_line(const yaml_node_t *node)
{
	return (unsigned)node->start_mark.line + 1;
}

int doc_error(const struct layer_document *d, const yaml_node_t *node, struct error *e, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)error_setv(e, EBADMSG, format, ap);
	va_end(ap);
	if (node)
		(void)error_wrap(e, "%s:%u", d->shown, doc_line(node));
	else
		(void)error_wrap(e, "%s", d->shown);
	return -EBADMSG;
}

const yaml_node_t *doc_root(struct layer_document *d)
{
	return yaml_document_get_root_node(&d->yaml);
}

static void allowed_keys(const struct doc_key *keys, size_t n, char *dst, size_t size)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		const char *name = keys[i].name;
		size_t need = strlen(name) + (len ? 1 : 0);

		assert(len + need < size); /* the tables are ours */
		if (len)
			dst[len++] = ' ';
		memcpy(dst + len, name, strlen(name) + 1);
		len += strlen(name);
	}
}

static int read_pair(struct layer_document *d, const yaml_node_pair_t *pair, const char *what,
		const struct doc_key *keys, size_t n_keys, bool *seen, struct error *e)
{
	const yaml_node_t *key = yaml_document_get_node(&d->yaml, pair->key);
	const yaml_node_t *value = yaml_document_get_node(&d->yaml, pair->value);
	char allowed[LIST_TEXT_MAX], shown[64];
	const char *name;

	if (key->type != YAML_SCALAR_NODE)
		return doc_error(d, key, e, "a key%s%s is not a word", what[0] ? " of " : "", what);
	name = (const char *)key->data.scalar.value;
	for (size_t i = 0; i < n_keys; i++) {
		if (!str_equal(keys[i].name, name))
			continue;
		if (seen[i])
			return doc_error(d, key, e, "'%s' is given twice", name);
		seen[i] = true;
		return keys[i].read(d, value, keys[i].target, e);
	}
	allowed_keys(keys, n_keys, allowed, sizeof(allowed));
	str_show_n(shown, sizeof(shown), name, key->data.scalar.length);
	return doc_error(d, key, e, "unknown key '%s'%s%s; allowed: %s", shown, what[0] ? " in " : "", what, allowed);
}

int doc_mapping(struct layer_document *d, const yaml_node_t *node, const char *what, const struct doc_key *keys,
		size_t n_keys, struct error *e)
{
	bool seen[24] = { false };

	assert(n_keys <= ARRAY_SIZE(seen));
	if (!node || node->type != YAML_MAPPING_NODE)
		return doc_error(d, node, e, "%s must be 'key: value' lines", what[0] ? what : "a layer");
	for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		int r = read_pair(d, p, what, keys, n_keys, seen, e);

		if (r < 0)
			return r;
	}
	return 0;
}

static bool is_control(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] < ' ' || s[i] == 0x7f)
			return true;
	return false;
}

int doc_text(struct layer_document *d, const yaml_node_t *node, const char *what, bool multi_line, const char **ret,
		struct error *e)
{
	const char *s;
	size_t len;

	if (node->type != YAML_SCALAR_NODE)
		return doc_error(d, node, e, "%s must be one text, not a %s", what,
				node->type == YAML_SEQUENCE_NODE ? "list" : "mapping");
	s = (const char *)node->data.scalar.value;
	len = node->data.scalar.length;
	if (len == 0)
		return doc_error(d, node, e, "%s has no value", what);
	if (len > LAYER_TEXT_MAX)
		return doc_error(d, node, e, "%s is longer than %u bytes", what, LAYER_TEXT_MAX);
	if (memchr(s, 0, len) || (!multi_line && is_control(s, len)))
		return doc_error(d, node, e, "%s holds a control character", what);
	*ret = s;
	return 0;
}

int doc_list(struct layer_document *d, const yaml_node_t *node, const char *what, size_t *ret_n, struct error *e)
{
	size_t n;

	if (node->type != YAML_SEQUENCE_NODE)
		return doc_error(d, node, e, "%s must be a list: [a, b], or lines that begin with '- '", what);
	n = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
	if (n > LAYER_LIST_MAX)
		return doc_error(d, node, e, "%s has %zu entries; at most %u are allowed", what, n, LAYER_LIST_MAX);
	*ret_n = n;
	return 0;
}

const yaml_node_t *doc_item(struct layer_document *d, const yaml_node_t *list, size_t i)
{
	return yaml_document_get_node(&d->yaml, list->data.sequence.items.start[i]);
}
