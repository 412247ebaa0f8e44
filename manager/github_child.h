#ifndef BOXERY_MANAGER_GITHUB_CHILD_H
#define BOXERY_MANAGER_GITHUB_CHILD_H
/*
 * The program with GitHub's token, started as a child. It answers github/proto.h on the socket and ends when that is
 * closed; it is killed when the thread that started it ends. With BOXERY_GITHUB_SOCKET set, no child is started: the socket
 * of that name is another user's boxery-github, one per connection.
 */
#include "linux/spawn.h"

/* *ret_fd is this side's end of the socket. On failure nothing runs and both outputs are untouched. */
int github_child_start(struct child *ret, int *ret_fd, struct error *e);
#endif
