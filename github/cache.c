#include "github/cache.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

struct cache {
	struct cache_entry entries[CACHE_ENTRIES];
	size_t bytes;
	uint64_t clock;
};

struct cache *cache_new(void)
{
	return calloc(1, sizeof(struct cache));
}

static void drop(struct cache *c, struct cache_entry *entry)
{
	if (!entry->url)
		return;
	c->bytes -= entry->len;
	free(entry->url);
	free(entry->data);
	*entry = (struct cache_entry){0};
}

struct cache *cache_free(struct cache *c)
{
	for (size_t i = 0; c && i < CACHE_ENTRIES; i++)
		drop(c, &c->entries[i]);
	free(c);
	return NULL;
}

static struct cache_entry *find(struct cache *c, const char *url)
{
	for (size_t i = 0; i < CACHE_ENTRIES; i++)
		if (str_equal(c->entries[i].url, url))
			return &c->entries[i];
	return NULL;
}

/* A free slot, or the one that was used longest ago. */
static struct cache_entry *oldest(struct cache *c)
{
	struct cache_entry *best = &c->entries[0];
	for (size_t i = 1; i < CACHE_ENTRIES && best->url; i++)
		if (!c->entries[i].url || c->entries[i].used < best->used)
			best = &c->entries[i];
	return best;
}

static struct cache_entry *oldest_used(struct cache *c)
{
	struct cache_entry *best = NULL;
	for (size_t i = 0; i < CACHE_ENTRIES; i++)
		if (c->entries[i].url && (!best || c->entries[i].used < best->used))
			best = &c->entries[i];
	return best;
}

const struct cache_entry *cache_get(struct cache *c, const char *url)
{
	struct cache_entry *entry = find(c, url);
	if (entry)
		entry->used = ++c->clock;
	return entry;
}

void cache_drop(struct cache *c, const char *url)
{
	struct cache_entry *entry = find(c, url);
	if (entry)
		drop(c, entry);
}

void cache_put(struct cache *c, const char *url, const char *etag, const char *data, size_t len, bool next)
{
	struct cache_entry *entry;

	cache_drop(c, url);
	if (!etag[0] || len > CACHE_BYTES_MAX / 4)
		return;
	while (c->bytes + len > CACHE_BYTES_MAX)
		drop(c, oldest_used(c));
	entry = oldest(c);
	drop(c, entry);

	char *own_url = strdup(url), *own = malloc(len + 1);
	if (!own_url || !own || str_copy(entry->etag, etag) < 0) {
		free(own_url);
		free(own);
		return;
	}
	memcpy(own, data, len);
	own[len] = '\0';
	entry->url = own_url;
	entry->data = own;
	entry->len = len;
	entry->next = next;
	entry->used = ++c->clock;
	c->bytes += len;
}
