#ifndef BOXERY_CONTROLLER_FORWARD_H
#define BOXERY_CONTROLLER_FORWARD_H
/* How boxery-host is run: over the person's own ssh, or here when there is no host. */
#include "base/error.h"
#include "base/str.h"
#include <stdbool.h>

#define FORWARD_LINE_MAX (64 * 1024)
#define FORWARD_ARGV_MAX 24
#define FORWARD_HOST_MAX 256

const char *forward_version(void);
/* ssh would take a name that begins with '-' for an option. */
int forward_check_host(const char *host, struct error *e);
/*
 * argv for `boxery-host ARGS...` (NULL-terminated, ARGS at most FORWARD_ARGV_MAX - 2) without a terminal; line holds what argv
 * points to. Unless it is shared neither an ssh agent nor any forwarding goes with it.
 */
int forward_command(const char *host, bool shared, const char *const *args, const char *argv[static FORWARD_ARGV_MAX],
		struct buf *line, struct error *e);
/* After a start that failed: with host "" and -ENOENT, says instead how a host is chosen. */
void forward_explain(const char *host, struct error *e);
/*
 * Becomes it, with a terminal when that is asked for; without `input` and without a terminal it reads nothing of ours. Returns only
 * on failure, with what is to be the exit status.
 */
int forward_become(const char *host, bool terminal, bool input, int argc, char **argv);
#endif
