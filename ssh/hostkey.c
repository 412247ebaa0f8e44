#include "ssh/hostkey.h"

#include "base/parse.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

/* What every Ed25519 key blob begins with: the algorithm's name and the length of what follows. */
static const uint8_t blob_head[] = "\0\0\0\x0bssh-ed25519\0\0\0\x20";
#define BLOB_HEAD_LEN (sizeof(blob_head) - 1)
_Static_assert(BLOB_HEAD_LEN + 32 == HOSTKEY_BLOB_LEN, "an Ed25519 key has 32 bytes");

#define ENCODED_LEN sodium_base64_ENCODED_LEN(HOSTKEY_BLOB_LEN, sodium_base64_VARIANT_ORIGINAL)

static const char *encode(const struct hostkey *key, char ret[static ENCODED_LEN])
{
	return sodium_bin2base64(
		ret, ENCODED_LEN, key->blob, sizeof(key->blob), sodium_base64_VARIANT_ORIGINAL);
}

int hostkey_parse(const char *line, struct hostkey *ret, struct error *e)
{
	static const char prefix[] = HOSTKEY_ALGORITHM " ";
	if (!line || !str_starts(line, prefix))
		return error_set(e, EINVAL, "the pinned host key is not a line \"%sBASE64\"", prefix);
	const char *text = line + strlen(prefix);
	size_t text_len = strcspn(text, " \n"), len = 0;
	struct hostkey key;
	const char *end = NULL;
	char again[ENCODED_LEN];
	int r = sodium_base642bin(
		key.blob, sizeof(key.blob), text, text_len, NULL, &len, &end, sodium_base64_VARIANT_ORIGINAL);
	/* Encoded again and compared, because libsodium 1.0.18 decodes bytes above 127 too. */
	if (r < 0 || end != text + text_len || len != HOSTKEY_BLOB_LEN || text_len != sizeof(again) - 1 ||
		memcmp(encode(&key, again), text, text_len) != 0)
		return error_set(
			e, EINVAL, "the pinned host key is not base64 of %d bytes", HOSTKEY_BLOB_LEN);
	if (memcmp(key.blob, blob_head, BLOB_HEAD_LEN) != 0)
		return error_set(
			e, EINVAL, "the pinned host key says " HOSTKEY_ALGORITHM " but encodes another kind");
	*ret = key;
	return 0;
}

void hostkey_fingerprint(const void *blob, size_t len, char ret[static HOSTKEY_FINGERPRINT_MAX])
{
	static const char prefix[] = "SHA256:";
	uint8_t hash[crypto_hash_sha256_BYTES];
	(void)crypto_hash_sha256(hash, blob, len);
	memcpy(ret, prefix, sizeof(prefix));
	(void)sodium_bin2base64(ret + sizeof(prefix) - 1, HOSTKEY_FINGERPRINT_MAX - sizeof(prefix) + 1, hash,
		sizeof(hash), sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
}

int hostkey_known_hosts_line(const char *alias, const char *line, struct buf *ret, struct error *e)
{
	struct hostkey key;
	int r = name_check(alias, "VM name", e);
	if (r >= 0)
		r = hostkey_parse(line, &key, e);
	if (r < 0)
		return r;
	/* Encoded again from the parsed bytes, so that nothing else of the line gets into the file. */
	char text[ENCODED_LEN];
	r = buf_addf(ret, "%s " HOSTKEY_ALGORITHM " %s\n", alias, encode(&key, text));
	return r < 0 ? error_errno(e, -r, "known_hosts line of %s", alias) : 0;
}
