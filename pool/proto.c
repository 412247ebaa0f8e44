/* Words and sizes of the keeper's protocol; shared by the keeper and its clients. */
#include "pool/proto.h"
#include "base/table.h"

static const char *const registration_words[] = {
	[REGISTRATION_NONE] = "none",
	[REGISTRATION_PLANNED] = "planned",
	[REGISTRATION_MADE] = "made",
	[REGISTRATION_GONE] = "gone",
};
STRING_TABLE(registration, enum registration, registration_words, REGISTRATION_COUNT);

static const char *const pool_start_words[] = {
	[POOL_START_WARM] = "warm",
	[POOL_START_COLD] = "cold",
};
STRING_TABLE(pool_start, enum pool_start, pool_start_words, POOL_START_COUNT);

static const char *const pool_standby_words[] = {
	[POOL_STANDBY_PAUSED] = "paused",
	[POOL_STANDBY_RUNNING] = "running",
};
STRING_TABLE(pool_standby, enum pool_standby, pool_standby_words, POOL_STANDBY_COUNT);

_Static_assert(sizeof(struct keeper_request) <= MSG_MAX && sizeof(struct keeper_reply) <= MSG_MAX &&
				sizeof(struct keeper_event) <= MSG_MAX,
		"a message is larger than a packet may be");

#define REQUEST(type_) [KEEPER_##type_] = sizeof(struct keeper_request)
const size_t keeper_request_sizes[KEEPER_TYPE_COUNT] = {
	REQUEST(HELLO),
	REQUEST(NEW),
	REQUEST(LIST),
	REQUEST(START),
	REQUEST(STOP),
	REQUEST(REMOVE),
	REQUEST(POOL_ADD),
	REQUEST(POOL_REMOVE),
	REQUEST(POOL_REPAIR),
	REQUEST(LEASE),
	REQUEST(LEASES),
	REQUEST(REGISTER),
	REQUEST(DELIVER),
	REQUEST(JOB_SEEN),
	REQUEST(RELEASE),
	REQUEST(OUTCOME),
	REQUEST(HISTORY),
	REQUEST(SUBSCRIBE),
	REQUEST(CHECK),
	REQUEST(FILTER),
	REQUEST(QUIT),
	REQUEST(NOTE),
	REQUEST(POOL_SET),
	REQUEST(POOLS),
	REQUEST(POOL_KEEP),
	REQUEST(RENEW),
	REQUEST(UNINSTALL),
	REQUEST(POOL_PATCH),
};
_Static_assert(KEEPER_REQUEST_COUNT == 29, "a request is missing in keeper_request_sizes");

const size_t keeper_answer_sizes[KEEPER_TYPE_COUNT] = {
	[KEEPER_PROGRESS] = sizeof(struct keeper_progress),
	[KEEPER_REPLY] = sizeof(struct keeper_reply),
	[KEEPER_EVENT] = sizeof(struct keeper_event),
};
