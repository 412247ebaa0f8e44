#include "github/app.h"

#include "base/str.h"
#include "github/call.h"
#include "github/json.h"
#include "linux/clock.h"
#include "linux/file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JWT_ID_BYTES 16
#define BASE64 sodium_base64_VARIANT_URLSAFE_NO_PADDING
#define TOKEN_SECONDS_MAX (24 * 3600)

/* One credential, so one token. */
static struct {
	char whose[sizeof(((struct credential *)NULL)->app_id) + GITHUB_URL_MAX + 32];
	struct secret *header;
	uint64_t until_us; /* CLOCK_BOOTTIME */
	int64_t skew_s;    /* GitHub's clock less ours */
} kept;

static int add_part(char jwt[static APP_JWT_MAX], const void *data, size_t len, struct error *e)
{
	size_t used = strlen(jwt), dot = used ? 1 : 0;

	if (used + dot + sodium_base64_encoded_len(len, BASE64) > APP_JWT_MAX)
		return error_set(e, EINVAL, "the App's key is larger than expected");
	if (dot)
		jwt[used] = '.';
	(void)sodium_bin2base64(jwt + used + dot, APP_JWT_MAX - used - dot, data, len, BASE64);
	return 0;
}

static int add_json(char jwt[static APP_JWT_MAX], json_t *object, struct error *e)
{
	CLEANUP_JSON json_t *owned = object;
	CLEANUP_FREE char *text = owned ? json_dumps(owned, JSON_COMPACT) : NULL;

	return text ? add_part(jwt, text, strlen(text), e) : error_set(e, ENOMEM, "no memory for a request");
}

/* Without one, libcrypto would ask on the terminal. */
static int no_passphrase(char *buf, int size, int writing, void *userdata)
{
	return -1;
}

static void key_free(EVP_PKEY **key)
{
	EVP_PKEY_free(*key);
}

static void digest_free(EVP_MD_CTX **ctx)
{
	EVP_MD_CTX_free(*ctx);
}

static int read_key(const char *pem, size_t len, EVP_PKEY **ret, struct error *e)
{
	BIO *bio = BIO_new_mem_buf(pem, (int)len);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;

	(void)BIO_free(bio);
	if (!key || EVP_PKEY_base_id(key) != EVP_PKEY_RSA || EVP_PKEY_bits(key) > 8 * 512) {
		EVP_PKEY_free(key);
		return error_set(e, EBADMSG, "this is not an App's private key: RSA, PEM, without a passphrase");
	}
	*ret = key;
	return 0;
}

static int sign(char jwt[static APP_JWT_MAX], const char *pem, size_t len, struct error *e)
{
	CLEANUP(key_free) EVP_PKEY *key = NULL;
	CLEANUP(digest_free) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char signature[512];
	size_t n = sizeof(signature);
	int r = read_key(pem, len, &key, e);

	if (r < 0)
		return r;
	if (!ctx || EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) != 1 ||
		EVP_DigestSign(ctx, signature, &n, (const unsigned char *)jwt, strlen(jwt)) != 1)
		return error_set(e, EIO, "the App's key cannot sign");
	return add_part(jwt, signature, n, e);
}

int app_jwt(const char *app_id, const char *key, size_t key_len, uint64_t now, const char *id,
	char ret[static APP_JWT_MAX], struct error *e)
{
	json_int_t from = (json_int_t)now - APP_JWT_BEFORE_S, to = (json_int_t)now + APP_JWT_AFTER_S;
	int r;

	ret[0] = '\0';
	r = add_json(ret, json_pack("{s:s,s:s}", "alg", "RS256", "typ", "JWT"), e);
	if (r >= 0)
		r = add_json(ret,
			json_pack("{s:I,s:I,s:s,s:s}", "iat", from, "exp", to, "iss", app_id, "jti", id), e);
	return r < 0 ? r : sign(ret, key, key_len, e);
}

/* 2026-11-29T22:10:01Z */
static uint64_t epoch_of(const char *text)
{
	struct tm tm = {0};
	const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm) : NULL;
	time_t t = end && !*end ? timegm(&tm) : -1;

	return t > 0 ? (uint64_t)t : 0;
}

int app_token_parse(const char *data, size_t len, uint64_t now, struct secret **ret_header, uint64_t *ret_seconds,
	struct error *e)
{
	CLEANUP_JSON json_t *root = NULL;
	int r = json_read_object(data, len, &root, e);

	if (r < 0)
		return r;
	const char *token = json_text(root, "token");
	uint64_t until = epoch_of(json_text(root, "expires_at"));
	if (!token || credential_check_token(token, "it", NULL) < 0)
		return error_set(e, EBADMSG, "the answer has no token");
	if (until <= now || until - now > TOKEN_SECONDS_MAX)
		return error_set(e, EBADMSG, "the answer's token does not expire within a day");
	r = credential_header(token, ret_header, e);
	if (r >= 0)
		*ret_seconds = until - now;
	return r;
}

static int make_jwt(const struct credential *c, struct secret **ret, struct error *e)
{
	unsigned char random[JWT_ID_BYTES];
	char id[2 * JWT_ID_BYTES + 1], jwt[APP_JWT_MAX];
	char *pem = NULL;
	size_t len = 0;
	int r = c->app_key_trusted ? file_read(AT_FDCWD, c->app_key_file, GITHUB_APP_KEY_MAX, &pem, &len, e)
				   : file_read_private(AT_FDCWD, c->app_key_file, GITHUB_APP_KEY_MAX, &pem, &len, e);

	if (r < 0)
		return error_wrap(e, "GITHUB_APP_KEY_FILE");
	randombytes_buf(random, sizeof(random));
	(void)sodium_bin2hex(id, sizeof(id), random, sizeof(random));
	r = app_jwt(c->app_id, pem, len, (uint64_t)(time(NULL) + kept.skew_s), id, jwt, e);
	secret_wipe(pem, len);
	free(pem);
	if (r >= 0)
		r = credential_header(jwt, ret, e);
	else
		(void)error_wrap(e, "%s", c->app_key_file);
	secret_wipe(jwt, sizeof(jwt));
	return r;
}

/* Does GitHub's clock differ from what the statement was made with? */
static bool learn_clock(const struct http_answer *a)
{
	int64_t skew = a->date ? (int64_t)a->date - (int64_t)time(NULL) : kept.skew_s;
	int64_t change = skew > kept.skew_s ? skew - kept.skew_s : kept.skew_s - skew;

	if (change < APP_SKEW_MIN_S)
		return false;
	kept.skew_s = skew;
	return true;
}

static int exchange(struct call *c, struct http_answer *ret, struct error *e)
{
	CLEANUP(secret_freep) struct secret *jwt = NULL;
	char path[HTTP_PATH_MAX];
	int r = make_jwt(c->credential, &jwt, e);

	if (r < 0) {
		c->out->fault = GITHUB_FAULT_CREDENTIAL;
		return r;
	}
	(void)str_format(path, "/app/installations/%llu/access_tokens",
		(unsigned long long)c->credential->app_installation);
	const struct http_request q = {.method = "POST", .path = path, .body = "{}", .max = HTTP_OBJECT_MAX,
		.secret = true, .authorization = jwt};
	return call_exchange(c, &q, 201, ret, e);
}

static int fetch(struct call *c, struct error *e)
{
	CLEANUP(http_answer_free) struct http_answer first = {0}, second = {0};
	struct http_answer *a = &first;
	const char *asked = c->what;
	uint64_t seconds = 0;
	char what[96];

	(void)str_format(what, "installation %llu of the App", (unsigned long long)c->credential->app_installation);
	c->what = what;
	int r = exchange(c, a, e);
	if (r < 0 && a->status == 401 && learn_clock(a)) {
		error_clear(e);
		c->out->fault = GITHUB_FAULT_NONE;
		a = &second;
		r = exchange(c, a, e);
	}
	c->what = asked;
	if (r < 0)
		return c->out->fault == GITHUB_FAULT_CREDENTIAL || c->out->fault == GITHUB_FAULT_ABSENT
			       ? error_wrap(e, "the App's token")
			       : r;
	r = app_token_parse(a->data ? a->data : "", a->len, a->date ? a->date : (uint64_t)time(NULL), &kept.header,
		&seconds, e);
	if (r < 0)
		return call_not_understood(c, r, e);
	kept.until_us = clock_boot_us() +
			(seconds > 2 * APP_RENEW_MARGIN_S ? seconds - APP_RENEW_MARGIN_S : seconds / 2) * 1000000;
	return 0;
}

int app_authorise(struct call *c, struct error *e)
{
	struct credential *credential = c->credential;
	char whose[sizeof(kept.whose)];

	(void)str_format(whose, "%s %llu %s", credential->app_id, (unsigned long long)credential->app_installation,
		credential->base_url);
	if (kept.header && (!str_equal(whose, kept.whose) || clock_boot_us() >= kept.until_us))
		kept.header = secret_free(kept.header);
	c->token_was_kept = kept.header != NULL;
	if (!kept.header) {
		int r = fetch(c, e);
		if (r < 0)
			return r;
		(void)str_copy(kept.whose, whose);
	}
	credential->header = secret_free(credential->header);
	return secret_new(secret_bytes(kept.header), secret_len(kept.header), &credential->header, e);
}

bool app_forget(struct call *c)
{
	if (!c->credential->app_id[0])
		return false;
	kept.header = secret_free(kept.header);
	c->credential->header = secret_free(c->credential->header);
	return c->token_was_kept;
}

void app_end(void)
{
	kept.header = secret_free(kept.header);
}
