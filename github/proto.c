#include "github/proto.h"

#include "base/cleanup.h"

static const char *const fault_names[] = {
	[GITHUB_FAULT_NONE] = "none",
	[GITHUB_FAULT_CREDENTIAL] = "credential",
	[GITHUB_FAULT_PERMISSION] = "permission",
	[GITHUB_FAULT_LIMIT] = "limit",
	[GITHUB_FAULT_ABSENT] = "absent",
	[GITHUB_FAULT_CONFLICT] = "conflict",
	[GITHUB_FAULT_INVALID] = "invalid",
	[GITHUB_FAULT_BUSY] = "busy",
	[GITHUB_FAULT_SERVER] = "server",
	[GITHUB_FAULT_NETWORK] = "network",
	[GITHUB_FAULT_PUBLIC] = "public",
};
_Static_assert(ARRAY_SIZE(fault_names) == GITHUB_FAULT_COUNT, "a fault has no name");

const char *github_fault_to_string(enum github_fault v)
{
	return (unsigned)v < GITHUB_FAULT_COUNT ? fault_names[v] : NULL;
}

/* Requests and the reply in one table; boxery-github refuses a reply sent to it, its client a request. */
const size_t github_message_sizes[GITHUB_TYPE_COUNT] = {
	[GITHUB_HELLO] = sizeof(struct github_request),
	[GITHUB_REPOSITORY] = sizeof(struct github_request),
	[GITHUB_MINT] = sizeof(struct github_request),
	[GITHUB_RUNNER] = sizeof(struct github_request),
	[GITHUB_DELETE] = sizeof(struct github_request),
	[GITHUB_JOBS] = sizeof(struct github_request),
	[GITHUB_JOB_OF] = sizeof(struct github_request),
	[GITHUB_DEPRECATION] = sizeof(struct github_request),
	[GITHUB_GROUP] = sizeof(struct github_request),
	[GITHUB_RUNNERS] = sizeof(struct github_request),
	[GITHUB_REPLY] = sizeof(struct github_reply),
};
