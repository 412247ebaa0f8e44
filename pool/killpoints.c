#include "pool/killpoints.h"

#ifdef BOXERY_KILL_POINTS
#include "base/parse.h"
#include "base/str.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

void kill_point(const char *kind, const char *name)
{
	static uint64_t passages;
	const char *wanted = getenv("BOXERY_TEST_KILL"), *slash;
	char here[64];
	uint64_t nth = 1;

	if (!wanted || str_format(here, "%s%s%s", kind, name ? "-" : "", name ? name : "") < 0)
		return;
	slash = strchr(wanted, '/');
	if (slash && parse_u64(slash + 1, "BOXERY_TEST_KILL", 1, 1000000, &nth, NULL) < 0)
		return;
	if (strncmp(wanted, here, strlen(here)) != 0 || (wanted[strlen(here)] != '\0' && wanted[strlen(here)] != '/'))
		return;
	if (++passages == nth)
		(void)raise(SIGKILL);
}
#else
typedef int killpoints_are_not_built;
#endif
