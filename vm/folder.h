#ifndef BOXERY_VM_FOLDER_H
#define BOXERY_VM_FOLDER_H
/* Folders of images, below the image folder: made aside, put in place in one step. */
#include "vm/host.h"

/* Removes a folder of ours and the files in it, one half written by a process that was killed included. None: a success. */
int folder_drop(const struct host *h, const char *folder, struct error *e);
/* An empty one, instead of whatever lies there. */
int folder_make(const struct host *h, const char *folder, struct error *e);
/* `made` takes the place of `final`, if there is one, and that is dropped. Both below images/. */
int folder_swap_in(const struct host *h, const char *made, const char *final, struct error *e);
/* The bytes of a file made by another program are on the disk, and nobody writes to it any more. */
int folder_seal_file(const char *path, mode_t mode, struct error *e);
#endif
