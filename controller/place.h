#ifndef BOXERY_CONTROLLER_PLACE_H
#define BOXERY_CONTROLLER_PLACE_H
/* Which repository is meant: by name, or by the git remote "origin" of the current folder. */
#include "base/parse.h"
#include "controller/gh.h"

struct place {
	char hostname[GH_HOST_MAX]; /* for GH_HOST; "": gh decides */
	char scope[SCOPE_MAX];
};
/* "OWNER/REPO" or "HOST/OWNER/REPO". */
int place_of_name(const char *name, struct place *ret, struct error *e);
/* SCHEME://[user@]HOST[:PORT]/OWNER/REPO[.git] of https, http, ssh, git+ssh, ssh+git and git; [user@]HOST:OWNER/REPO[.git] */
int place_of_url(const char *url, struct place *ret, struct error *e);
int place_of_folder(struct place *ret, struct error *e);
#endif
