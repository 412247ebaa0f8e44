#ifndef BOXERY_SSH_MEMORY_H
#define BOXERY_SSH_MEMORY_H
/*
 * libssh2 and libcrypto keep the delivery key and the JIT config in buffers of their own while they work with them. Blocks
 * given back through these are wiped first.
 */
#include "base/error.h"
#include <stddef.h>

void memory_free(void *p);
void *memory_realloc(void *p, size_t size);
/* Makes libcrypto use them; before anything else touches it. */
int memory_install(struct error *e);
#endif
