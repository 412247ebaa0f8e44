#ifndef BOXERY_MANAGER_ROSTER_H
#define BOXERY_MANAGER_ROSTER_H
/*
 * GitHub's list of runners as boxery-github passes it on (github/proto.h, RUNNERS). Others' runners are in it as well; names
 * are compared and never shown.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct roster;
int roster_parse(const char *data, size_t len, struct roster **ret, struct error *e);
struct roster *roster_free(struct roster *r);
DEFINE_CLEANUP(struct roster *, roster_free);

/* Nothing was left out: who is not in it is gone. */
bool roster_is_whole(const struct roster *r);

struct roster_view {
	uint64_t id;
	bool online, busy;
};
/* The runner of this id or, where that is 0, of exactly this name; false when there is none. */
bool roster_find(const struct roster *r, uint64_t id, const char *name, struct roster_view *ret);
#endif
