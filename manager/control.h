#ifndef BOXERY_MANAGER_CONTROL_H
#define BOXERY_MANAGER_CONTROL_H
/* The service's end of manager/proto.h. Who sends nothing is closed after a moment; nobody can hold the service up. */
#include "base/error.h"

struct service;
struct control;
/* runtime_dir must exist, and the lock of lock.h be held: an old socket is replaced. */
int control_new(struct service *s, const char *runtime_dir, struct control **ret, struct error *e);
struct control *control_free(struct control *c);
#endif
