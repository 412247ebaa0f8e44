#include "github/credential.h"

#include "base/str.h"
#include "linux/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define HEADER "Authorization: Bearer "
#define TOKEN_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

/* GitHub's prefixes; the longer ones first where one begins another. */
static const struct {
	const char *prefix, *words;
} kinds[] = {
	{"github_pat_", "fine-grained personal token"},
	{"ghp_", "classic personal token"},
	{"ghs_", "installation token"},
	{"gho_", "OAuth token"},
	{"ghu_", "user token of an App"},
	{"ghr_", "refresh token"},
};

static int take_token(struct credential *c, const char *value, struct error *e)
{
	char text[sizeof(HEADER) + GITHUB_TOKEN_MAX];
	size_t len = strlen(value);

	if (len == 0)
		return error_set(e, EINVAL, "GITHUB_TOKEN is empty");
	if (len > GITHUB_TOKEN_MAX)
		return error_set(e, EINVAL, "GITHUB_TOKEN has more than %d characters", GITHUB_TOKEN_MAX);
	/* Anything else in a header line could be a second header line. */
	if (strspn(value, TOKEN_LETTERS) != len)
		return error_set(e, EINVAL,
			"GITHUB_TOKEN has a character that tokens do not have; no quotes, no blanks");
	c->kind = "token of an unknown kind";
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (str_starts(value, kinds[i].prefix))
			c->kind = kinds[i].words;

	memcpy(text, HEADER, sizeof(HEADER) - 1);
	memcpy(text + sizeof(HEADER) - 1, value, len + 1);
	int r = secret_new(text, sizeof(HEADER) + len, &c->header, e);
	secret_wipe(text, sizeof(text));
	return r;
}

static int take_ca_file(struct credential *c, const char *value, struct error *e)
{
	if (value[0] != '/')
		return error_set(e, EINVAL, "BOXERY_GITHUB_CA_FILE must be an absolute path");
	if (str_copy(c->ca_file, value) < 0)
		return error_set(e, EINVAL, "BOXERY_GITHUB_CA_FILE has more than %zu characters",
			sizeof(c->ca_file) - 1);
	return 0;
}

static int take_setting(void *userdata, const char *key, const char *value, struct error *e)
{
	struct credential *c = userdata;
	char shown[64];

	if (str_equal(key, "GITHUB_TOKEN"))
		return take_token(c, value, e);
	if (str_equal(key, "BOXERY_GITHUB_CA_FILE"))
		return take_ca_file(c, value, e);
	if (str_equal(key, "BOXERY_GITHUB_URL")) {
		int r = base_url_check(value, c->base_url, sizeof(c->base_url), e);
		return r < 0 ? error_wrap(e, "BOXERY_GITHUB_URL") : 0;
	}
	str_show_n(shown, sizeof(shown), key, strlen(key));
	return error_set(e, EINVAL,
		"unknown setting %s; known are GITHUB_TOKEN, BOXERY_GITHUB_URL, BOXERY_GITHUB_CA_FILE",
		shown);
}

int credential_load(const char *path, struct credential *ret, struct error *e)
{
	char *text = NULL;
	size_t len = 0;
	CLEANUP(credential_free) struct credential c = {.base_url = GITHUB_URL_DEFAULT};

	int r = file_read_private(AT_FDCWD, path, ENVFILE_MAX, &text, &len, e);
	if (r == -ENOENT)
		return error_set(e, ENOENT,
			"%s does not exist; put a line GITHUB_TOKEN=... into it and make it mode 0600", path);
	if (r < 0)
		return r;
	r = envfile_parse(path, text, len, take_setting, &c, e);
	secret_wipe(text, len);
	free(text);
	if (r < 0)
		return r;
	if (!c.header)
		return error_set(e, EBADMSG, "%s: GITHUB_TOKEN is missing", path);
	*ret = c;
	c.header = NULL;
	return 0;
}

void credential_free(struct credential *c)
{
	c->header = secret_free(c->header);
}

static void blot(char *text, size_t len)
{
	memset(text, '*', len);
}

void credential_redact(const struct credential *c, char *text)
{
	if (c && c->header) {
		const char *token = (const char *)secret_bytes(c->header) + sizeof(HEADER) - 1;
		size_t len = strlen(token);
		/* A shorter one would be found in any sentence; GitHub's have 40 characters and more. */
		for (char *p = text; len >= 8 && (p = strstr(p, token));)
			blot(p, len);
	}
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		for (char *p = text; (p = strstr(p, kinds[i].prefix));)
			blot(p, strspn(p, TOKEN_LETTERS));
}
