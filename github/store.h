#ifndef BOXERY_GITHUB_STORE_H
#define BOXERY_GITHUB_STORE_H
/*
 * `boxery-host runners token`: reads a token, or an App's private key, from standard input and writes runners.env (and the
 * key beside it), owner-only and whole or not at all. Other settings in the file stay. What was read is in no argument, no
 * message and no other process.
 */
#include "base/error.h"

struct store_options {
	const char *app_id, *installation; /* both or none: the key of an App is read */
	const char *host, *url, *ca_file, *proxy; /* NULL: as it is; "": taken out */
};
/* Prints what it has written, without the secret. folder: the configuration's. */
int store_credential(const char *folder, const struct store_options *o, struct error *e);
/* argv as after "boxery-github": "token --app ID ...". Returns an exit status. */
int store_main(int argc, char **argv);
#endif
