#ifndef BOXERY_GITHUB_CREDENTIAL_H
#define BOXERY_GITHUB_CREDENTIAL_H
/*
 * runners.env: the token, the one API it may be sent to, the CA to trust. Read again for every request, so that a new token
 * counts at once and none lies in memory between requests. No error text holds a value of GITHUB_TOKEN.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "linux/secret.h"

#define GITHUB_URL_MAX 256
#define GITHUB_URL_DEFAULT "https://api.github.com"
#define GITHUB_TOKEN_MAX 2048 /* installation tokens have about 520 characters and are said to grow */

struct credential {
	char base_url[GITHUB_URL_MAX]; /* without a '/' at its end */
	char ca_file[256];             /* "": the system's */
	const char *kind;              /* in words, by the token's prefix */
	struct secret *header;         /* "Authorization: Bearer TOKEN" with its NUL, as libcurl takes it */
};

/* -EACCES when others can read the file, -ENOENT, -EBADMSG with "FILE:LINE: ". ret must be zeroed or freed before. */
int credential_load(const char *path, struct credential *ret, struct error *e);
void credential_free(struct credential *c);
/* Overwrites, in place, the token and anything that looks like one of GitHub's tokens. For text that came from outside. */
void credential_redact(const struct credential *c, char *text);

/* The base URL: https, or http to a literal loopback address; host, port and a path, nothing else. Normalised into ret. */
int base_url_check(const char *url, char *ret, size_t size, struct error *e);
#endif
