/*
 * OpenSSH's private key file ("openssh-key-v1", unencrypted), as in PROTOCOL.key of its source: a magic,
 * cipher and KDF "none", the public blob, and a private section of two equal check numbers, the key, a
 * comment and padding 1, 2, 3... to a multiple of 8. Strings have a 32-bit big-endian length in front.
 * Written here rather than by ssh-keygen, because that one needs a file to write to.
 */
#include "vm/hostkey.h"
#include "base/str.h"
#include <errno.h>
#include <sodium.h>
#include <string.h>

#define TYPE "ssh-ed25519"
#define BLOB_MAX 512
#define FILE_MAX 1024
#define BASE64_LINE 70
#define BEGIN_MARK "-----BEGIN OPENSSH PRIVATE KEY-----\n"
#define END_MARK "-----END OPENSSH PRIVATE KEY-----\n"

struct blob {
	unsigned char data[BLOB_MAX];
	size_t len;
};

/* All of fixed, small size: the whole is under 300 bytes. */
static void put(struct blob *b, const void *data, size_t len)
{
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

static void put_u32(struct blob *b, uint32_t v)
{
	const unsigned char bytes[4] = {v >> 24 & 0xff, v >> 16 & 0xff, v >> 8 & 0xff, v & 0xff};

	put(b, bytes, sizeof(bytes));
}

static void put_string(struct blob *b, const void *data, size_t len)
{
	put_u32(b, (uint32_t)len);
	put(b, data, len);
}

static void build(struct blob *b, struct blob *public, const unsigned char *pk, const unsigned char *sk)
{
	static const char magic[] = "openssh-key-v1";
	struct blob private = {0};
	uint32_t check = randombytes_random();

	put_string(public, TYPE, strlen(TYPE));
	put_string(public, pk, crypto_sign_PUBLICKEYBYTES);
	put_u32(&private, check);
	put_u32(&private, check);
	put(&private, public->data, public->len);
	put_string(&private, sk, crypto_sign_SECRETKEYBYTES);
	put_string(&private, "", 0);
	for (unsigned char i = 1; private.len % 8; i++)
		put(&private, &i, 1);
	put(b, magic, sizeof(magic));
	put_string(b, "none", 4);
	put_string(b, "none", 4);
	put_string(b, "", 0);
	put_u32(b, 1);
	put_string(b, public->data, public->len);
	put_string(b, private.data, private.len);
	secret_wipe(&private, sizeof(private));
}

/* The armour: base64 in lines between two marks. */
static size_t armour(char dst[static FILE_MAX], const struct blob *b)
{
	char text[FILE_MAX];
	size_t n, at = 0;

	(void)sodium_bin2base64(text, sizeof(text), b->data, b->len, sodium_base64_VARIANT_ORIGINAL);
	memcpy(dst, BEGIN_MARK, strlen(BEGIN_MARK));
	at = strlen(BEGIN_MARK);
	n = strlen(text);
	for (size_t i = 0; i < n; i += BASE64_LINE) {
		size_t part = n - i < BASE64_LINE ? n - i : BASE64_LINE;

		memcpy(dst + at, text + i, part);
		at += part;
		dst[at++] = '\n';
	}
	memcpy(dst + at, END_MARK, strlen(END_MARK));
	secret_wipe(text, sizeof(text));
	return at + strlen(END_MARK);
}

int hostkey_new(struct hostkey *ret, struct error *e)
{
	unsigned char pk[crypto_sign_PUBLICKEYBYTES], sk[crypto_sign_SECRETKEYBYTES];
	struct blob public = {0}, whole = {0};
	struct hostkey k = {0};
	char file[FILE_MAX], base64[256];
	size_t len;
	int r;

	(void)crypto_sign_keypair(pk, sk);
	build(&whole, &public, pk, sk);
	len = armour(file, &whole);
	(void)sodium_bin2base64(
		base64, sizeof(base64), public.data, public.len, sodium_base64_VARIANT_ORIGINAL);
	r = str_format(k.public_line, TYPE " %s", base64);
	if (r < 0)
		r = error_errno(e, -r, "host key");
	else
		r = secret_new(file, len, &k.private_file, e);
	secret_wipe(sk, sizeof(sk));
	secret_wipe(&whole, sizeof(whole));
	secret_wipe(file, sizeof(file));
	if (r == 0)
		*ret = k;
	return r;
}

void hostkey_free(struct hostkey *k)
{
	k->private_file = secret_free(k->private_file);
}

int hostkey_line_check(const char *line, struct error *e)
{
	size_t type = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789-@.");
	size_t key;

	if (!str_starts(line, "ssh-") && !str_starts(line, "ecdsa-") && !str_starts(line, "sk-"))
		return error_set(e, EINVAL, "a public key line starts with its type, like ssh-ed25519");
	if (line[type] != ' ')
		return error_set(e, EINVAL, "a public key line is TYPE BASE64 [COMMENT]");
	key = strspn(line + type + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=");
	line += type + 1 + key;
	if (key < 16 || (*line && *line != ' '))
		return error_set(e, EINVAL, "a public key line is TYPE BASE64 [COMMENT]");
	for (; *line; line++)
		if (*line < ' ' || *line > '~')
			return error_set(e, EINVAL,
				"the comment of a public key has a character that is not printable");
	return 0;
}
