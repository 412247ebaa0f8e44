#ifndef BOXERY_MANAGER_GITHUB_LIST_H
#define BOXERY_MANAGER_GITHUB_LIST_H
#include "base/error.h"
#include <jansson.h>
#include <stddef.h>

/* A document of boxery-github (github/proto.h) that is one array under `key`. *ret_root is the caller's, *ret_list part of it. -EBADMSG with a
 * sentence that quotes nothing of it. */
int github_list_read(const char *data, size_t len, const char *key, json_t **ret_root, json_t **ret_list, struct error *e);
#endif
