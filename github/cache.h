#ifndef BOXERY_GITHUB_CACHE_H
#define BOXERY_GITHUB_CACHE_H
/*
 * Answers to lists, by URL, with their ETag: asked again with If-None-Match, GitHub answers 304 when nothing has changed,
 * which costs nothing of the primary rate limit. Bounded in number and bytes, least recently used goes first. Never holds
 * an answer with a secret.
 */
#include "base/cleanup.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_ENTRIES 512 /* a few for each repository, one for each running runner */
#define CACHE_BYTES_MAX (16 * 1024 * 1024)

struct cache_entry {
	char *url, *data; /* data is NUL-terminated */
	char etag[128];
	size_t len;
	bool next;
	uint64_t used;
};

struct cache;
struct cache *cache_new(void); /* NULL: no memory */
struct cache *cache_free(struct cache *c);
DEFINE_CLEANUP(struct cache *, cache_free);
/* NULL when there is none. Valid until the next cache_put. */
const struct cache_entry *cache_get(struct cache *c, const char *url);
void cache_drop(struct cache *c, const char *url);
/* Copies; without an ETag or memory it does nothing. */
void cache_put(struct cache *c, const char *url, const char *etag, const char *data, size_t len, bool next);
#endif
