#ifndef BOXERY_MANAGER_CONFIG_YAML_H
#define BOXERY_MANAGER_CONFIG_YAML_H
/*
 * Strict YAML by libyaml's events, not its document tree: anchors, aliases and tags are seen and refused, and
 * nothing is built that the grammar of config.c does not ask for. A mapping is a table of keys; the position
 * in the table is the key's bit, so that a repeated key is found whatever it holds. Every function works on
 * the current event, and every failure is "FILE:LINE: sentence" with -EBADMSG in the reader's error.
 */
#include "base/cleanup.h"
#include "base/parse.h"
#include <stdbool.h>
#include <yaml.h>

#define CONFIG_SCALAR_MAX 256
#define CONFIG_SHOWN_MAX 80
#define CONFIG_KEYS_MAX 32

struct config_reader {
	yaml_parser_t parser;
	yaml_event_t event; /* the current one */
	bool have_event;
	const char *shown_name;
	void *userdata;
	struct error *e; /* never NULL */
};

struct config_key {
	const char *name;
	int (*read)(struct config_reader *r, void *target); /* the current event is the value's first */
};

/* data must outlive the reader. */
int config_reader_init(
	struct config_reader *r, const char *shown_name, const char *data, size_t len, struct error *e);
void config_reader_done(struct config_reader *r);
/* Reads a file that is one document, which is one mapping. */
int config_document(struct config_reader *r, const struct config_key *keys, size_t n_keys, void *target);

unsigned config_line(const struct config_reader *r); /* of the current event */
int config_fail(struct config_reader *r, unsigned line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
const char *config_shown(const char *s, char buf[static CONFIG_SHOWN_MAX]);

int config_scalar(struct config_reader *r, const char *what, char dst[static CONFIG_SCALAR_MAX]);
int config_mapping(struct config_reader *r, const char *what, const struct config_key *keys, size_t n_keys,
	void *target);
/* Calls read for every element; what: "labels must be a list, like ...". */
int config_sequence(struct config_reader *r, const char *what,
	int (*read)(struct config_reader *r, void *target), void *target);
int config_duration_ms(struct config_reader *r, const char *what, uint64_t min, uint64_t max, uint64_t *ret);
int config_number(struct config_reader *r, const char *what, uint64_t min, uint64_t max, uint32_t *ret);
/* For a value refused by a base/ parser: its sentence, our place and code. */
int config_fail_value(struct config_reader *r, const struct error *why);
#endif
