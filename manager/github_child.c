#include "manager/github_child.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/msg.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_VARIABLE "BOXERY_GITHUB_SOCKET"

/* A system install gives the token to another user: systemd starts one boxery-github per connection. */
static int child_connect(const char *path, int *ret_fd, struct error *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (str_copy(a.sun_path, path) < 0)
		return error_set(e, ENAMETOOLONG, SOCKET_VARIABLE ": the path is too long");
	if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return error_errno(e, errno, "cannot reach boxery-github at %s", path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int github_child_start(struct child *ret, int *ret_fd, struct error *e)
{
	static const char *const argv[] = {"boxery-github", NULL};
	CLEANUP_FD int ours = -1, theirs = -1;
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	const char *socket_path = getenv(SOCKET_VARIABLE);
	char path[PATH_MAX];
	int pair[2], r;

	if (socket_path && socket_path[0])
		return child_connect(socket_path, ret_fd, e);
	r = program_path("boxery-github", path, sizeof(path), e);
	if (r < 0)
		return r;
	r = msg_pair(pair, e);
	if (r < 0)
		return r;
	ours = pair[0];
	theirs = pair[1];
	o.program = path;
	o.argv = argv;
	o.fds = &theirs;
	o.n_fds = 1;
	r = spawn(&o, ret, e);
	if (r == 0)
		*ret_fd = TAKE_FD(ours);
	return r;
}
