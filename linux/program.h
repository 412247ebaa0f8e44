#ifndef BOXERY_LINUX_PROGRAM_H
#define BOXERY_LINUX_PROGRAM_H
/* Finding programs; see spawn.h for our own ones. */
#include "base/error.h"
#include <stddef.h>

#define PROGRAM_DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* Where our data files (layers/, guest/) are: the installed folder, or the source's when this runs from a build tree. */
const char *program_data_folder(void);
/* The build tree this runs from, for what is compiled and belongs to them (guest/begin); NULL when it is installed. */
const char *program_build_folder(void);
/* A name with '/' as it is; else one of ours by program_path(); else from the absolute entries of PATH. -ENOENT. */
int program_search(const char *name, char *dst, size_t size, struct error *e);
#endif
