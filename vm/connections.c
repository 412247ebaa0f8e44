#include "vm/connections.h"
#include "linux/spawn.h"
#include <errno.h>
#include <string.h>

#define CHILD_TIMEOUT_MS 10000
#define LISTING_MAX (4u * 1024 * 1024)	  /* a line for each connection, of which the guard allows 2048 */
#define NOTHING_DELETED " 0 flow entries" /* conntrack's exit status does not tell this from a failure */

int connections_forget(const struct slot *s, struct error *e)
{
	const char *argv[] = {"conntrack", "-D", "-f", "ipv4", "-s", s->address, NULL};
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	CLEANUP_FREE char *listing = NULL;
	struct error failed = ERROR_INIT;
	int r;

	o.program = "conntrack";
	o.argv = argv;
	o.search_path = true;
	r = spawn_capture(&o, CHILD_TIMEOUT_MS, LISTING_MAX, &listing, &failed);
	if (r == 0 || strstr(failed.text, NOTHING_DELETED))
		return 0;
	if (e)
		*e = failed;
	return error_wrap(e, "cannot make the host forget the connections of %s", s->address);
}
