/*
 * Theory of operation. To this project a JIT config is opaque: what is checked is that it is one line of
 * padded base64 of a plausible size that holds a JSON object. This refuses what cannot be a JIT config (an
 * error page, a token pasted in its place, a cut-off answer) before a clean VM is spent on it, and nothing
 * more. The decoding is libsodium's, into guarded memory that is wiped on release; no text made here holds a
 * byte of the content, only sizes and positions.
 */
#include "jit/jit.h"
#include "linux/secret.h"

#include <errno.h>
#include <stdbool.h>
#include <sodium.h>

static int position_error(size_t position, size_t len, struct error *e)
{
	/* A position says where to look in a file; which byte stands there is not told. */
	return error_set(e, EINVAL,
		"the JIT config is not one line of padded base64: byte %zu of %zu does not belong in it",
		position + 1, len);
}

int jit_check(const char *data, size_t len, struct error *e)
{
	if (len < JIT_MIN)
		return error_set(
			e, EINVAL, "the JIT config has %zu bytes; at least %d are expected", len, JIT_MIN);
	if (len > JIT_MAX)
		return error_set(
			e, EINVAL, "the JIT config has %zu bytes; at most %d are taken", len, JIT_MAX);

	/* libsodium 1.0.18 decodes bytes above 127 as if they were letters. */
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)data[i] > 127)
			return position_error(i, len, e);

	size_t max = len / 4 * 3 + 3, got = 0;
	unsigned char *plain = sodium_malloc(max);
	if (!plain)
		return error_set(e, ENOMEM, "no locked memory to check the JIT config in");
	const char *end = data;
	int r = sodium_base642bin(plain, max, data, len, NULL, &got, &end, sodium_base64_VARIANT_ORIGINAL);
	bool object = r == 0 && got > 0 && plain[0] == '{';
	sodium_free(plain); /* wipes */

	size_t position = (size_t)(end - data);
	if (position < len)
		return position_error(position, len, e);
	if (r < 0)
		return error_set(e, EINVAL,
			"the JIT config is not padded base64: its end, after byte %zu, is missing", len);
	if (!object)
		return error_set(
			e, EINVAL, "the JIT config is base64, but what it encodes is not a JSON object");
	return 0;
}

int jit_seal(char *data, size_t len, int *ret_fd, struct error *e)
{
	int fd = -1;
	int r = jit_check(data, len, e);
	if (r >= 0)
		r = secret_memfd("boxery-jit", data, len, &fd, e);
	secret_wipe(data, len);
	if (r < 0)
		return r;
	*ret_fd = fd;
	return 0;
}

int jit_fd_check(int fd, struct error *e)
{
	size_t len = 0;
	int r = secret_memfd_check(fd, JIT_MAX, &len, e);
	if (r < 0)
		return error_wrap(e, "JIT config");
	if (len < JIT_MIN)
		return error_set(
			e, EINVAL, "the JIT config has %zu bytes; at least %d are expected", len, JIT_MIN);
	return 0;
}
