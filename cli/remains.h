#ifndef BOXERY_CLI_REMAINS_H
#define BOXERY_CLI_REMAINS_H
/*
 * What boxery has in its folders, by name: nothing else in them is looked at or removed, since host.env may name a folder that
 * others use, too. Symbolic links are removed, never followed; other file systems mounted there are left alone.
 */
#include "linux/hostconf.h"
#include <stddef.h>

#define REMAINS_DEPTH_MAX 32 /* folders in folders */

/* In the order in which they can go: what a removal that was cut off is begun again with is in the last one. */
enum remains_folder { REMAINS_STATE, REMAINS_RUNTIME, REMAINS_IMAGES, REMAINS_CACHE, REMAINS_CONFIG, REMAINS_COUNT };
struct remains {
	const char *path;                   /* of conf */
	uint64_t files, bytes;              /* ours, bytes as on disk */
	uint64_t strangers;                 /* entries of the folder itself that are not ours */
	char stranger[256];                 /* the name of one of them */
};
/* A folder that is not there has nothing. */
int remains_look(const struct hostconf *conf, enum remains_folder which, struct remains *ret, struct error *e);
/* Removes what is ours, then the folder, if it is empty (a mount point stays). Repeating it after a failure goes on with it. */
int remains_remove(const struct hostconf *conf, enum remains_folder which, struct error *e);
#endif
