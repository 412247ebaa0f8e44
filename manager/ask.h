#ifndef BOXERY_MANAGER_ASK_H
#define BOXERY_MANAGER_ASK_H
/*
 * Asks GitHub before anything is served: is the credential good, and is every repository private and visible? Blocks, with
 * a deadline per question; for a command, not for the service's loop. Prints a line per repository; returns an exit status:
 * that of the first repository that could not be served.
 */
#include "manager/config.h"

int ask_repositories(const struct runners_config *c);
#endif
