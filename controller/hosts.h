#ifndef BOXERY_CONTROLLER_HOSTS_H
#define BOXERY_CONTROLLER_HOSTS_H
/*
 * What `boxery setup` remembers, in controller.json of the configuration folder (BOXERY_CONFIG_DIR, else
 * $XDG_CONFIG_HOME/boxery, else ~/.config/boxery): {"default": HOST, "hosts": {HOST: {"version", "arch"}}}. No secret.
 */
#include "base/error.h"
#include "controller/forward.h"
#include <jansson.h>

#define HOSTS_THIS_MACHINE "."

/* The document; an empty one when there is no file. */
int hosts_load(json_t **ret, struct error *e);
/* In one step, and it stays over a loss of power. Where the file is a symbolic link its target is written. */
int hosts_save(json_t *document, struct error *e);
/* Around a load and the save that follows: another command that does the same waits. Over when the fd is closed. */
int hosts_lock(int *ret, struct error *e);
/* --host, else BOXERY_HOST, else the remembered default, else "" (this machine, which is also what "." means). */
int hosts_choose(const char *given, char dst[static FORWARD_HOST_MAX], struct error *e);
#endif
