#ifndef BOXERY_POOL_CLIENT_START_H
#define BOXERY_POOL_CLIENT_START_H
/* Between client.c and client_start.c only. */
#include "pool/client.h"

/* One attempt to connect; -ENOTCONN when nobody listens. */
int keeper_client_try(const struct hostconf *conf, int *ret_fd, struct error *e);
/* Starts a keeper that outlives us and waits until it answers; its log goes to state_dir/keeper.log. */
int keeper_client_start(const struct hostconf *conf, int *ret_fd, struct error *e);
#endif
