#ifndef BOXERY_MANAGER_ASK_H
#define BOXERY_MANAGER_ASK_H
/*
 * Asks GitHub before anything is served: is the credential good, and is every repository private and visible? Blocks, with
 * a deadline per question; for a command, not for the service's loop. Prints a line per repository; returns an exit status:
 * that of the first repository that could not be served, or of the first runner that gets no jobs any more.
 */
#include "manager/config.h"

#define ASK_RUNNERS_MAX 16
struct ask_runners { /* "IMAGE=VERSION", not owned */
	const char *items[ASK_RUNNERS_MAX];
	size_t n;
};
int ask_github(const struct runners_config *c, const struct ask_runners *runners);
#endif
