#ifndef BOXERY_VM_WARM_FILE_H
#define BOXERY_VM_WARM_FILE_H
/* Between warm.c, which reads memory images, and warm_capture.c, which makes them. */
#include "base/str.h"
#include "vm/warm.h"

#define WARM_FORMAT_NOW "1"
#define WARM_FOLDER_MAX 96

static inline void warm_folder(const char *vm, char ret[static WARM_FOLDER_MAX])
{
	(void)str_format_n(ret, WARM_FOLDER_MAX, "images/%s@" WARM_LABEL, vm);
}

static inline void warm_folder_new(const char *vm, char ret[static WARM_FOLDER_MAX])
{
	(void)str_format_n(ret, WARM_FOLDER_MAX, "images/.%s.warm.new", vm);
}

int warm_paths(const struct host *h, const char *folder, struct warm_image *w, struct error *e);
int warm_manifest_save(const struct host *h, const char *folder, const struct warm_image *w, struct error *e);
#endif
