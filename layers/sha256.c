#include "layers/sha256.h"
#include <errno.h>
#include <openssl/evp.h>

#define CHUNK (256u * 1024)

/* EVP_MD_CTX under our own name, so that callers see nothing of libcrypto. */
static EVP_MD_CTX *context(struct sha256 *s)
{
	return (EVP_MD_CTX *)s;
}

struct sha256 *sha256_new(void)
{
	EVP_MD_CTX *c = EVP_MD_CTX_new();

	if (c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) != 1) {
		EVP_MD_CTX_free(c);
		c = NULL;
	}
	return (struct sha256 *)c;
}

struct sha256 *sha256_free(struct sha256 *s)
{
	EVP_MD_CTX_free(context(s));
	return NULL;
}

int sha256_add(struct sha256 *s, const void *data, size_t len)
{
	return EVP_DigestUpdate(context(s), data, len) == 1 ? 0 : -EIO;
}

int sha256_end(struct sha256 *s, char ret[static LAYER_SHA256_MAX])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char sum[EVP_MAX_MD_SIZE];
	unsigned len = 0;

	if (EVP_DigestFinal_ex(context(s), sum, &len) != 1 || len * 2 + 1 != LAYER_SHA256_MAX)
		return -EIO;
	for (unsigned i = 0; i < len; i++) {
		ret[i * 2] = digits[sum[i] >> 4];
		ret[i * 2 + 1] = digits[sum[i] & 15];
	}
	ret[len * 2] = '\0';
	return 0;
}

int sha256_text(const void *data, size_t len, char ret[static LAYER_SHA256_MAX])
{
	CLEANUP(sha256_freep) struct sha256 *s = sha256_new();

	if (!s)
		return -ENOMEM;
	return sha256_add(s, data, len) < 0 ? -EIO : sha256_end(s, ret);
}

int sha256_fd(int fd, const char *shown, char ret[static LAYER_SHA256_MAX], struct error *e)
{
	CLEANUP(sha256_freep) struct sha256 *s = sha256_new();
	CLEANUP_FREE char *chunk = malloc(CHUNK);
	ssize_t n;

	if (!s || !chunk)
		return error_errno(e, ENOMEM, "checksum of %s", shown);
	while ((n = read(fd, chunk, CHUNK)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(e, errno, "cannot read %s", shown);
		if (sha256_add(s, chunk, (size_t)n) < 0)
			return error_set(e, EIO, "checksum of %s failed", shown);
	}
	return sha256_end(s, ret) < 0 ? error_set(e, EIO, "checksum of %s failed", shown) : 0;
}
