#ifndef BOXERY_GITHUB_CREDENTIAL_H
#define BOXERY_GITHUB_CREDENTIAL_H
/*
 * runners.env: the credential, the one API it may be sent to, how that is reached. Read again for every request, so that a
 * new one counts at once and none lies in memory between requests. No error text holds a value of a secret.
 *
 *   GITHUB_TOKEN                 fine-grained or classic token, or an installation token; or, instead of it, an App:
 *   GITHUB_APP_ID                client id (or number) of a GitHub App
 *   GITHUB_APP_INSTALLATION_ID   where it is installed: one number
 *   GITHUB_APP_KEY_FILE          its private key, PEM: a name beside runners.env, or an absolute path; owner-only
 *   BOXERY_GITHUB_HOST           github.com (default), NAME.ghe.com, or an Enterprise Server's name: base_url_of_host()
 *   BOXERY_GITHUB_URL            or the API's URL itself; https only (http only to a loopback address)
 *   BOXERY_GITHUB_CA_FILE        PEM file with the only CA to be trusted; default the system's
 *   BOXERY_GITHUB_PROXY          http://HOST:PORT; default none, whatever the environment says
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "linux/secret.h"
#include <stdbool.h>
#include <stdint.h>

#define GITHUB_URL_MAX 256
#define GITHUB_URL_DEFAULT "https://api.github.com"
#define GITHUB_TOKEN_MAX 2048 /* installation tokens have about 520 characters and are said to grow */
#define GITHUB_APP_KEY_MAX 16384
#define CREDENTIAL_ENV_NAME "runners.env"
#define CREDENTIAL_KEY_NAME "github-app.pem" /* what `runners token --app` writes */

struct credential {
	char base_url[GITHUB_URL_MAX]; /* without a '/' at its end */
	char ca_file[256];             /* "": the system's */
	char proxy[256];               /* "": none */
	const char *kind;              /* in words, by the token's prefix */
	struct secret *header;         /* "Authorization: Bearer TOKEN" with its NUL, as libcurl takes it; an App: see app.h */
	char app_id[64];               /* "": no App */
	uint64_t app_installation;
	char app_key_file[512];
	bool app_key_trusted; /* systemd has put it there: its folder is what protects it */
};

/* -EACCES when others can read the file, -ENOENT, -EBADMSG with "FILE:LINE: ". ret must be zeroed or freed before. */
int credential_load(const char *path, struct credential *ret, struct error *e);
void credential_free(struct credential *c);
/* "Authorization: Bearer TOKEN" of a checked token. */
int credential_header(const char *token, struct secret **ret, struct error *e);
/* -EINVAL when it is no token; the sentence calls it `what`. */
int credential_check_token(const char *token, const char *what, struct error *e);
/* Overwrites, in place, the token and anything that looks like one of GitHub's tokens. For text that came from outside. */
void credential_redact(const struct credential *c, char *text);

/* The base URL: https, or http to a literal loopback address; host, port and a path, nothing else. Normalised into ret. */
int base_url_check(const char *url, char *ret, size_t size, struct error *e);
/* The API's base URL of github.com, of a data-residency host (NAME.ghe.com) or of an Enterprise Server, by its name. */
int base_url_of_host(const char *host, char *ret, size_t size, struct error *e);
/* http(s)://HOST:PORT, nothing else. */
int proxy_url_check(const char *url, char *ret, size_t size, struct error *e);
#endif
