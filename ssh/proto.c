#include "ssh/proto.h"

#include "base/cleanup.h"

static const char *const step_names[] = {
	[DELIVER_STARTING] = "starting",
	[DELIVER_HANDSHAKE] = "handshake",
	[DELIVER_HOST_KEY] = "host-key",
	[DELIVER_AUTH] = "auth",
	[DELIVER_EXEC] = "exec",
	[DELIVER_SENDING] = "sending",
	[DELIVER_WAITING] = "waiting",
	[DELIVER_DONE] = "done",
};
_Static_assert(ARRAY_SIZE(step_names) == DELIVER_STEP_COUNT, "a step has no name");

const char *deliver_step_to_string(enum deliver_step v)
{
	return (unsigned)v < DELIVER_STEP_COUNT ? step_names[v] : NULL;
}
