#include "manager/github_child.h"
#include "linux/msg.h"
#include <limits.h>

int github_child_start(struct child *ret, int *ret_fd, struct error *e)
{
	static const char *const argv[] = {"boxery-github", NULL};
	CLEANUP_FD int ours = -1, theirs = -1;
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	char path[PATH_MAX];
	int pair[2], r;

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
