#ifndef BOXERY_GITHUB_APP_H
#define BOXERY_GITHUB_APP_H
/*
 * A GitHub App's way to a token: a signed statement (JWT, RS256, ten minutes at most) is exchanged for an installation token
 * (an hour). The key is read for the signature and wiped; the token is kept in locked memory of this process until shortly
 * before its end. GitHub's clock counts for both: what its answers say about the time is used where ours differs.
 */
#include "base/error.h"
#include "github/credential.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define APP_JWT_MAX 1024
#define APP_JWT_BEFORE_S 60        /* issued that long ago: a clock of ours that is ahead does no harm */
#define APP_JWT_AFTER_S 540        /* GitHub takes ten minutes at most */
#define APP_RENEW_MARGIN_S 300     /* a token is renewed that long before its end */
#define APP_SKEW_MIN_S 30          /* a smaller difference of the clocks is none */

/* The statement for the App's key (PEM). id: of this one, unlike any other. ret holds APP_JWT_MAX bytes. */
int app_jwt(const char *app_id, const char *key, size_t key_len, uint64_t now, const char *id,
		char ret[static APP_JWT_MAX], struct error *e);
/* The token in GitHub's answer and for how many seconds by GitHub's own clock (`now`) it is good. */
int app_token_parse(const char *data, size_t len, uint64_t now, struct secret **ret_header, uint64_t *ret_seconds,
		struct error *e);

struct call;
/* Gives the call's credential its header, from memory or from GitHub. Fills the reply's fault on failure. */
int app_authorise(struct call *c, struct error *e);
/* The token was refused. True: it came from memory, and a new one is worth a try. */
bool app_forget(struct call *c);
void app_end(void);
#endif
