#include "guest/begin.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define HOST_KEY RUN_DIR "/ssh_host_ed25519_key"
#define KEY_FILE_MAX 4096
#define KEY_LINE_MAX 2048
#define KEY_TYPE "ssh-ed25519"
#define BEGIN_MARK "-----BEGIN OPENSSH PRIVATE KEY-----\n"
#define END_MARK "-----END OPENSSH PRIVATE KEY-----"

static int decode(
	const char *base64, const char *ignore, void *dst, size_t size, size_t *ret, const char *what, struct error *e)
{
	if (sodium_base642bin(dst, size, base64, strlen(base64), ignore, ret, NULL, sodium_base64_VARIANT_ORIGINAL) != 0)
		return error_set(e, EINVAL, "%s is not base64, or is too long", what);
	return 0;
}

int reseed(const char *base64, struct error *e)
{
	union {
		struct rand_pool_info info;
		unsigned char room[sizeof(struct rand_pool_info) + SEED_SIZE];
	} pool = {.info = {.entropy_count = SEED_SIZE * 8, .buf_size = SEED_SIZE}};
	CLEANUP_FD int fd = -1;
	size_t len = 0;
	int r = decode(base64, NULL, pool.info.buf, SEED_SIZE, &len, "seed", e);

	if (r == 0 && len != SEED_SIZE)
		r = error_set(e, EINVAL, "the seed has %zu bytes instead of %d", len, SEED_SIZE);
	if (r < 0)
		return r;
	fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, RNDADDENTROPY, &pool.info) < 0)
		r = error_errno(e, errno, "the kernel's random pool does not take the seed");
	else if (ioctl(fd, RNDRESEEDCRNG) < 0)
		r = error_errno(e, errno, "the kernel's random generator does not take the seed at once");
	explicit_bzero(&pool, sizeof(pool));
	return r;
}

static uint32_t get_u32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/*
 * The public half stands in clear in an OpenSSH key file (PROTOCOL.key): a magic with its NUL, three strings (cipher, its key
 * derivation, options of that), the number of keys, the public blob. A string has a 32-bit big-endian length in front.
 */
static int public_half(const unsigned char *raw, size_t len, char *ret, size_t size, struct error *e)
{
	static const char magic[] = "openssh-key-v1";
	size_t at = sizeof(magic);
	char blob[192];

	if (len < at || memcmp(raw, magic, sizeof(magic)) != 0)
		return error_set(e, EINVAL, "host_key is not an OpenSSH private key");
	for (int i = 0; i < 5; i++) {
		uint32_t n = at + 4 <= len ? get_u32(raw + at) : UINT32_MAX;

		at += 4;
		if (i == 3)
			continue;
		if (at > len || n > len - at)
			return error_set(e, EINVAL, "host_key is not a whole OpenSSH private key");
		if (i < 4) {
			at += n;
			continue;
		}
		if (n < 4 + strlen(KEY_TYPE) || n > 128 || memcmp(raw + at + 4, KEY_TYPE, strlen(KEY_TYPE)) != 0)
			return error_set(e, EINVAL, "host_key is not of type " KEY_TYPE);
		(void)sodium_bin2base64(blob, sizeof(blob), raw + at, n, sodium_base64_VARIANT_ORIGINAL);
	}
	return str_format_n(ret, size, KEY_TYPE " %s", blob);
}

/* Of the file that sshd will read, not of what came in. */
static int read_back(char *ret, size_t size, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	unsigned char raw[KEY_FILE_MAX];
	char *end;
	size_t len;
	int r = read_path(HOST_KEY, &text, KEY_FILE_MAX, e);

	if (r < 0)
		return r;
	end = strstr(text, END_MARK);
	if (!str_starts(text, BEGIN_MARK) || !end)
		return error_set(e, EINVAL, "host_key is not an OpenSSH private key");
	*end = '\0';
	r = decode(text + strlen(BEGIN_MARK), "\n", raw, sizeof(raw), &len, "host_key", e);
	if (r == 0)
		r = public_half(raw, len, ret, size, e);
	explicit_bzero(raw, sizeof(raw));
	explicit_bzero(text, strlen(text));
	return r;
}

int put_host_key(const char *base64, char *ret_public, size_t size, struct error *e)
{
	unsigned char file[KEY_FILE_MAX];
	size_t len;
	int r = decode(base64, NULL, file, sizeof(file), &len, "host_key", e);

	if (r == 0)
		r = put_file(HOST_KEY, file, len, 0600, e);
	explicit_bzero(file, sizeof(file));
	return r < 0 ? r : read_back(ret_public, size, e);
}

int put_authorized_keys(const struct life *l, struct error *e)
{
	CLEANUP_BUF struct buf text = BUF_INIT(KEYS_MAX * (KEY_LINE_MAX + 1));
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->n_keys; i++) {
		char line[KEY_LINE_MAX];
		size_t len;

		r = decode(l->keys[i], NULL, line, sizeof(line), &len, "authorized_key", e);
		if (r == 0 && (buf_add(&text, line, len) < 0 || buf_add(&text, "\n", 1) < 0))
			r = error_errno(e, ENOMEM, "authorized_key");
	}
	return r < 0 ? r : put_file(RUN_DIR "/authorized_keys", text.data ? text.data : "", text.len, 0600, e);
}
