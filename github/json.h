#ifndef BOXERY_GITHUB_JSON_H
#define BOXERY_GITHUB_JSON_H
/* JSON from outside: bounded in depth, no key twice, and helpers that are strict about types. */
#include "base/cleanup.h"
#include "base/error.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH_LIMIT 32 /* GitHub's answers need 6 */

static inline void json_decrefv(json_t **j)
{
	json_decref(*j);
}
#define CLEANUP_JSON CLEANUP(json_decrefv)

/* -EBADMSG when it is not JSON, not an object, too deep or has a key twice; the text never quotes the input. */
int json_read_object(const char *data, size_t len, json_t **ret, struct error *e);
/* A positive integer member, 0 when it is missing or anything else. */
uint64_t json_id(const json_t *object, const char *key);
/* A string member, NULL when it is missing or anything else. */
const char *json_text(const json_t *object, const char *key);
/* Sets a member to a string member of another object, cut at a character after at most max bytes; null when there is none. */
int json_copy_text(json_t *dst, const json_t *src, const char *key, size_t max);
#endif
