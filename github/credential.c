#include "github/credential.h"

#include "base/parse.h"
#include "base/str.h"
#include "linux/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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

int credential_check_token(const char *token, const char *what, struct error *e)
{
	size_t len = strlen(token);

	if (len == 0)
		return error_set(e, EINVAL, "%s is empty", what);
	if (len > GITHUB_TOKEN_MAX)
		return error_set(e, EINVAL, "%s has more than %d characters", what, GITHUB_TOKEN_MAX);
	/* Anything else in a header line could be a second header line. */
	if (strspn(token, TOKEN_LETTERS) != len)
		return error_set(e, EINVAL, "%s has a character that tokens do not have; no quotes, no blanks",
			what);
	return 0;
}

int credential_header(const char *token, struct secret **ret, struct error *e)
{
	char text[sizeof(HEADER) + GITHUB_TOKEN_MAX];
	size_t len = strlen(token);

	if (len > GITHUB_TOKEN_MAX)
		return error_set(e, EINVAL, "the token has more than %d characters", GITHUB_TOKEN_MAX);
	memcpy(text, HEADER, sizeof(HEADER) - 1);
	memcpy(text + sizeof(HEADER) - 1, token, len + 1);
	int r = secret_new(text, sizeof(HEADER) + len, ret, e);
	secret_wipe(text, sizeof(text));
	return r;
}

static int take_token(struct credential *c, const char *value, struct error *e)
{
	int r = credential_check_token(value, "GITHUB_TOKEN", e);
	if (r < 0)
		return r;
	c->kind = "token of an unknown kind";
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (str_starts(value, kinds[i].prefix))
			c->kind = kinds[i].words;
	return credential_header(value, &c->header, e);
}

static int take_app_id(struct credential *c, const char *value, struct error *e)
{
	size_t len = strlen(value);

	if (len == 0 || strspn(value, TOKEN_LETTERS) != len || str_copy(c->app_id, value) < 0)
		return error_set(e, EINVAL, "GITHUB_APP_ID is the App's client id, such as Iv23abc..., or its number");
	return 0;
}

static int take_installation(struct credential *c, const char *value, struct error *e)
{
	return parse_u64(value, "GITHUB_APP_INSTALLATION_ID", 1, INT64_MAX, &c->app_installation, e);
}

static int take_key_file(struct credential *c, const char *value, struct error *e)
{
	if (!value[0] || (value[0] != '/' && strchr(value, '/')) || str_copy(c->app_key_file, value) < 0)
		return error_set(e, EINVAL,
			"GITHUB_APP_KEY_FILE is the name of a file beside " CREDENTIAL_ENV_NAME " or an absolute path");
	return 0;
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

static int take_host(struct credential *c, const char *value, struct error *e)
{
	if (c->base_url[0])
		return error_set(e, EINVAL, "BOXERY_GITHUB_HOST and BOXERY_GITHUB_URL say the same thing; leave one");
	int r = base_url_of_host(value, c->base_url, sizeof(c->base_url), e);
	return r < 0 ? error_wrap(e, "BOXERY_GITHUB_HOST") : 0;
}

static int take_url(struct credential *c, const char *value, struct error *e)
{
	if (c->base_url[0])
		return error_set(e, EINVAL, "BOXERY_GITHUB_HOST and BOXERY_GITHUB_URL say the same thing; leave one");
	int r = base_url_check(value, c->base_url, sizeof(c->base_url), e);
	return r < 0 ? error_wrap(e, "BOXERY_GITHUB_URL") : 0;
}

static int take_proxy(struct credential *c, const char *value, struct error *e)
{
	int r = proxy_url_check(value, c->proxy, sizeof(c->proxy), e);
	return r < 0 ? error_wrap(e, "BOXERY_GITHUB_PROXY") : 0;
}

static const struct {
	const char *key;
	int (*take)(struct credential *c, const char *value, struct error *e);
} settings[] = {
	{"GITHUB_TOKEN", take_token},
	{"GITHUB_APP_ID", take_app_id},
	{"GITHUB_APP_INSTALLATION_ID", take_installation},
	{"GITHUB_APP_KEY_FILE", take_key_file},
	{"BOXERY_GITHUB_HOST", take_host},
	{"BOXERY_GITHUB_URL", take_url},
	{"BOXERY_GITHUB_CA_FILE", take_ca_file},
	{"BOXERY_GITHUB_PROXY", take_proxy},
};

static int take_setting(void *userdata, const char *key, const char *value, struct error *e)
{
	char shown[64];

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (str_equal(key, settings[i].key))
			return settings[i].take(userdata, value, e);
	str_show_n(shown, sizeof(shown), key, strlen(key));
	return error_set(e, EINVAL,
		"unknown setting %s; known are GITHUB_TOKEN, GITHUB_APP_ID, GITHUB_APP_INSTALLATION_ID, "
		"GITHUB_APP_KEY_FILE, BOXERY_GITHUB_HOST, BOXERY_GITHUB_URL, BOXERY_GITHUB_CA_FILE, "
		"BOXERY_GITHUB_PROXY",
		shown);
}

/* A whole credential, and only one. */
static int check_whole(struct credential *c, const char *path, struct error *e)
{
	bool app = c->app_id[0] || c->app_installation || c->app_key_file[0];

	if (!c->header && !app)
		return error_set(e, EBADMSG, "%s: GITHUB_TOKEN is missing (or the three of GITHUB_APP_...)", path);
	if (c->header && app)
		return error_set(e, EBADMSG, "%s: there is a GITHUB_TOKEN and an App; leave one", path);
	if (app && (!c->app_id[0] || !c->app_installation || !c->app_key_file[0]))
		return error_set(e, EBADMSG,
			"%s: an App needs GITHUB_APP_ID, GITHUB_APP_INSTALLATION_ID and GITHUB_APP_KEY_FILE", path);
	if (app)
		c->kind = "GitHub App";
	if (!c->base_url[0])
		(void)str_copy(c->base_url, GITHUB_URL_DEFAULT);
	return 0;
}

/* A bare name is one beside runners.env. */
static int place_key(struct credential *c, const char *path, bool trusted, struct error *e)
{
	char name[sizeof(c->app_key_file)];
	const char *slash = strrchr(path, '/');

	if (!c->app_key_file[0] || c->app_key_file[0] == '/')
		return 0;
	(void)str_copy(name, c->app_key_file);
	c->app_key_trusted = trusted;
	if (str_format(c->app_key_file, "%.*s/%s", slash ? (int)(slash - path) : 1, slash ? path : ".", name) < 0)
		return error_set(e, EBADMSG, "%s: the path of GITHUB_APP_KEY_FILE is too long", path);
	return 0;
}

int credential_load(const char *path, struct credential *ret, struct error *e)
{
	char *text = NULL, given[512];
	size_t len = 0;
	CLEANUP(credential_free) struct credential c = {0};
	const char *folder = getenv("CREDENTIALS_DIRECTORY");
	bool trusted = false;
	int r = -ENOENT;

	/* systemd's LoadCredential= puts it into a folder that only the service can enter; the files' owner is root. */
	if (folder && str_format(given, "%s/" CREDENTIAL_ENV_NAME, folder) == 0) {
		r = file_read(AT_FDCWD, given, ENVFILE_MAX, &text, &len, NULL);
		trusted = r != -ENOENT;
		path = trusted ? given : path;
	}
	if (!trusted)
		r = file_read_private(AT_FDCWD, path, ENVFILE_MAX, &text, &len, e);
	if (r == -ENOENT)
		return error_set(e, ENOENT,
			"%s does not exist; write it with: boxery-host runners token < FILE (a line GITHUB_TOKEN=..., mode 0600)",
			path);
	if (r < 0)
		return trusted ? error_errno(e, -r, "cannot read %s", path) : r;
	r = envfile_parse(path, text, len, take_setting, &c, e);
	secret_wipe(text, len);
	free(text);
	if (r < 0)
		return r;
	r = check_whole(&c, path, e);
	if (r >= 0)
		r = place_key(&c, path, trusted, e);
	if (r < 0)
		return r;
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
