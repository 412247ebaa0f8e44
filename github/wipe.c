#include "github/wipe.h"

#include "linux/secret.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

static void wiping_free(void *p)
{
	if (!p)
		return;
	secret_wipe(p, malloc_usable_size(p));
	free(p);
}

static void *wiping_realloc(void *p, size_t size)
{
	if (!p)
		return malloc(size);
	size_t had = malloc_usable_size(p);
	void *fresh = malloc(size ? size : 1);
	if (!fresh)
		return NULL;
	memcpy(fresh, p, had < size ? had : size);
	wiping_free(p);
	return fresh;
}

static void *crypto_malloc(size_t size, const char *file, int line)
{
	return malloc(size);
}

static void *crypto_realloc(void *p, size_t size, const char *file, int line)
{
	if (p && size == 0) {
		wiping_free(p);
		return NULL;
	}
	return wiping_realloc(p, size);
}

static void crypto_free(void *p, const char *file, int line)
{
	wiping_free(p);
}

int wipe_install(struct error *e)
{
	if (CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free) != 1)
		return error_set(e, EIO, "libcrypto has been used before its memory could be looked after");
	CURLcode r = curl_global_init_mem(
		CURL_GLOBAL_DEFAULT, malloc, wiping_free, wiping_realloc, strdup, calloc);
	if (r != CURLE_OK)
		return error_set(e, EIO, "libcurl cannot be initialised: %s", curl_easy_strerror(r));
	json_set_alloc_funcs(malloc, wiping_free);
	return 0;
}
