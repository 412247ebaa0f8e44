#ifndef BOXERY_LAYERS_SHA256_H
#define BOXERY_LAYERS_SHA256_H
/* SHA-256 as 64 lower-case hex digits (libcrypto). */
#include "base/error.h"
#include "layers/layer.h"
#include <stddef.h>

struct sha256; /* one running sum */
struct sha256 *sha256_new(void); /* NULL when out of memory */
int sha256_add(struct sha256 *s, const void *data, size_t len); /* 0 or -EIO */
int sha256_end(struct sha256 *s, char ret[static LAYER_SHA256_MAX]);
struct sha256 *sha256_free(struct sha256 *s);
DEFINE_CLEANUP(struct sha256 *, sha256_free);

int sha256_text(const void *data, size_t len, char ret[static LAYER_SHA256_MAX]);
/* The rest of the file from the current offset. */
int sha256_fd(int fd, const char *shown, char ret[static LAYER_SHA256_MAX], struct error *e);
#endif
