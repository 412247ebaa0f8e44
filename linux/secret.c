#include "linux/secret.h"
#include "linux/memfd.h"
#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct secret {
	void *bytes; /* sodium_malloc: guard pages, locked, left out of dumps; read-only once filled */
	size_t len;
};

int secret_init(struct error *e)
{
	const struct rlimit none = {0, 0};

	if (sodium_init() < 0)
		return error_set(e, EIO, "libsodium cannot be initialised");
	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return error_errno(e, errno, "cannot switch core files off");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return error_errno(e, errno, "cannot mark the process as not dumpable");
	return 0;
}

static int secret_alloc(size_t len, struct secret **ret, struct error *e)
{
	struct secret *s;

	if (len == 0 || len > SECRET_MAX)
		return error_set(e, EINVAL, "a secret has %zu bytes, allowed are 1 to %d", len, SECRET_MAX);
	s = calloc(1, sizeof(*s));
	if (!s)
		return error_errno(e, ENOMEM, "no memory for a secret");
	s->bytes = sodium_malloc(len);
	if (!s->bytes) {
		free(s);
		return error_errno(e, ENOMEM, "no locked memory for a secret");
	}
	s->len = len;
	*ret = s;
	return 0;
}

static int secret_protect(struct secret *s, struct error *e)
{
	return sodium_mprotect_readonly(s->bytes) < 0 ? error_errno(e, errno, "cannot protect a secret") : 0;
}

int secret_new(const void *data, size_t len, struct secret **ret, struct error *e)
{
	CLEANUP(secret_freep) struct secret *s = NULL;
	int r = secret_alloc(len, &s, e);

	if (r < 0)
		return r;
	memcpy(s->bytes, data, len);
	r = secret_protect(s, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(s);
	return 0;
}

int secret_from_fd(int fd, struct secret **ret, struct error *e)
{
	CLEANUP(secret_freep) struct secret *s = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return error_errno(e, errno, "cannot look at the file of a secret");
	if (!S_ISREG(st.st_mode))
		return error_set(e, EINVAL, "the file of a secret is not a regular file");
	if (st.st_size <= 0 || (uint64_t)st.st_size > SECRET_MAX)
		return error_set(e, EINVAL, "a secret has %lld bytes, allowed are 1 to %d",
			(long long)st.st_size, SECRET_MAX);
	r = secret_alloc((size_t)st.st_size, &s, e);
	if (r == 0)
		r = memfd_read(fd, s->bytes, s->len, e);
	if (r == 0)
		r = secret_protect(s, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(s);
	return 0;
}

const void *secret_bytes(const struct secret *s)
{
	assert(s);
	return s->bytes;
}

size_t secret_len(const struct secret *s)
{
	assert(s);
	return s->len;
}

struct secret *secret_free(struct secret *s)
{
	if (s) {
		sodium_free(s->bytes); /* wipes, also a read-only one */
		free(s);
	}
	return NULL;
}

void secret_wipe(void *p, size_t len)
{
	sodium_memzero(p, len);
}

int secret_memfd(const char *label, const void *data, size_t len, int *ret_fd, struct error *e)
{
	if (len == 0 || len > SECRET_MAX)
		return error_set(e, EINVAL, "a secret has %zu bytes, allowed are 1 to %d", len, SECRET_MAX);
	return memfd_sealed_new(label, data, len, ret_fd, e);
}

int secret_memfd_check(int fd, size_t max, size_t *ret_len, struct error *e)
{
	return memfd_sealed_check(fd, 1, max, ret_len, e);
}
