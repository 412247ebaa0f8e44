#include "ssh/memory.h"

#include "linux/secret.h"

#include <errno.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

void memory_free(void *p)
{
	if (!p)
		return;
	secret_wipe(p, malloc_usable_size(p));
	free(p);
}

void *memory_realloc(void *p, size_t size)
{
	size_t had = p ? malloc_usable_size(p) : 0;
	void *fresh = malloc(size ? size : 1);
	if (!fresh)
		return NULL;
	if (p)
		memcpy(fresh, p, had < size ? had : size);
	memory_free(p);
	return fresh;
}

static void *crypto_malloc(size_t size, const char *file, int line)
{
	return malloc(size);
}

static void *crypto_realloc(void *p, size_t size, const char *file, int line)
{
	return memory_realloc(p, size);
}

static void crypto_free(void *p, const char *file, int line)
{
	memory_free(p);
}

int memory_install(struct error *e)
{
	if (CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free) != 1)
		return error_set(e, EIO, "libcrypto has been used before its memory could be looked after");
	return 0;
}
