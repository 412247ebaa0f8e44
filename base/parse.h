#ifndef BOXERY_BASE_PARSE_H
#define BOXERY_BASE_PARSE_H
/* Text to values: whole string or error, with a sentence that says what is allowed. `what` names the thing in it. */
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int parse_u64(const char *s, const char *what, uint64_t min, uint64_t max, uint64_t *ret, struct error *e);
int parse_bool(const char *s, const char *what, bool *ret, struct error *e); /* true false yes no on off 1 0 */
/* "90s" "10m" "2h" "1d", a bare number is seconds; result in milliseconds. */
int parse_duration_ms(const char *s, const char *what, uint64_t min_ms, uint64_t max_ms, uint64_t *ret, struct error *e);
/* "2048M" "2G" (binary units), a bare number is MiB; result in MiB. */
int parse_size_mib(const char *s, const char *what, uint64_t min, uint64_t max, uint64_t *ret, struct error *e);

/*
 * True when brackets outside of strings are nested deeper than max. Asked before a JSON parser gets text from outside: jansson
 * recurses, and its own limit of 2048 is far above what a small stack takes.
 */
bool parse_json_deep(const char *text, size_t len, unsigned max);

/* Names that become file names, domain names and host names: [a-z0-9] then up to 39 of [a-z0-9-], no '-' at the end. */
#define VM_NAME_MAX 41 /* with the NUL */
bool name_valid(const char *s);
int name_check(const char *s, const char *what, struct error *e);
/* OWNER/REPO as GitHub spells it: [A-Za-z0-9-]{1,39} / [A-Za-z0-9._-]{1,100}, repo neither "." nor "..". */
#define SCOPE_MAX 141
int scope_check(const char *s, struct error *e);
/* The name of an organization: what stands before the '/' of its repositories. */
int org_check(const char *s, struct error *e);
/* What runners are registered for: a repository, or a whole organization (no '/'). */
bool scope_is_org(const char *s);
int scope_any_check(const char *s, struct error *e);
#endif
