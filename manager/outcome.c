#include "manager/outcome.h"
#include "base/cleanup.h"
#include "base/table.h"

static const char *const names[] = {
	[OUTCOME_UNKNOWN] = "unknown",
	[OUTCOME_SUCCEEDED] = "succeeded",
	[OUTCOME_FAILED] = "failed",
	[OUTCOME_CANCELLED] = "cancelled",
	[OUTCOME_NO_JOB] = "no job",
	[OUTCOME_NEVER_CONNECTED] = "never connected",
	[OUTCOME_JOB_DEADLINE] = "job deadline",
	[OUTCOME_GUEST_DIED] = "guest died",
	[OUTCOME_DELIVERY_FAILED] = "delivery failed",
	[OUTCOME_MINT_FAILED] = "mint failed",
	[OUTCOME_MINT_CONFLICT] = "mint conflict",
	[OUTCOME_NOT_DELIVERED] = "not delivered",
	[OUTCOME_START_FAILED] = "start failed",
	[OUTCOME_SESSION_CONFLICT] = "session conflict",
	[OUTCOME_VERSION_DEPRECATED] = "version deprecated",
	[OUTCOME_UPDATED_ITSELF] = "updated itself",
};
STRING_TABLE(outcome, enum outcome, names, OUTCOME_COUNT);

/* GitHub's words for how a job ended. One it may add later is a failure until this table knows it. */
static const struct {
	const char *conclusion;
	enum outcome outcome;
} conclusions[] = {
	{"success", OUTCOME_SUCCEEDED},
	{"neutral", OUTCOME_SUCCEEDED},
	{"failure", OUTCOME_FAILED},
	{"timed_out", OUTCOME_FAILED},
	{"stale", OUTCOME_FAILED},
	{"startup_failure", OUTCOME_FAILED},
	{"cancelled", OUTCOME_CANCELLED},
	{"skipped", OUTCOME_CANCELLED},
};

static const struct {
	bool had_job;
	enum reaction reaction;
} table[OUTCOME_COUNT] = {
	[OUTCOME_UNKNOWN] = {false, REACTION_GO_ON},
	[OUTCOME_SUCCEEDED] = {true, REACTION_GO_ON},
	[OUTCOME_FAILED] = {true, REACTION_GO_ON},
	[OUTCOME_CANCELLED] = {true, REACTION_GO_ON},
	[OUTCOME_JOB_DEADLINE] = {true, REACTION_GO_ON},
	[OUTCOME_NO_JOB] = {false, REACTION_BACK_OFF},
	[OUTCOME_NEVER_CONNECTED] = {false, REACTION_BACK_OFF},
	[OUTCOME_GUEST_DIED] = {false, REACTION_BACK_OFF},
	[OUTCOME_DELIVERY_FAILED] = {false, REACTION_BACK_OFF},
	[OUTCOME_NOT_DELIVERED] = {false, REACTION_BACK_OFF},
	[OUTCOME_START_FAILED] = {false, REACTION_BACK_OFF},
	[OUTCOME_SESSION_CONFLICT] = {false, REACTION_BACK_OFF},
	[OUTCOME_UPDATED_ITSELF] = {false, REACTION_BACK_OFF},
	[OUTCOME_VERSION_DEPRECATED] = {false, REACTION_STOP},
	[OUTCOME_MINT_FAILED] = {false, REACTION_NONE},
	[OUTCOME_MINT_CONFLICT] = {false, REACTION_NONE},
};

bool outcome_had_job(enum outcome v)
{
	return (unsigned)v < OUTCOME_COUNT && table[v].had_job;
}

enum reaction outcome_reaction(enum outcome v)
{
	return (unsigned)v < OUTCOME_COUNT ? table[v].reaction : REACTION_BACK_OFF;
}

/* "An error occurred: Runner version v2.1.0 is deprecated and cannot receive messages." after an optional time. */
static bool says_deprecated(const char *line, size_t len)
{
	static const char words[] = "is deprecated and cannot receive messages";
	const char *at = memmem(line, len, "Runner version v", strlen("Runner version v"));

	return at && memmem(at, len - (size_t)(at - line), words, strlen(words));
}

static enum hint hint_of_line(const char *line, size_t len)
{
	static const char prefix[] = "boxery: listener exited ";
	static const struct {
		const char *code;
		enum hint hint;
	} codes[] = {{"5", HINT_SESSION_CONFLICT}, {"7", HINT_VERSION_DEPRECATED}, {"3", HINT_UPDATED_ITSELF},
		{"4", HINT_UPDATED_ITSELF}};

	while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	if (says_deprecated(line, len))
		return HINT_VERSION_DEPRECATED;
	if (len <= strlen(prefix) || memcmp(line, prefix, strlen(prefix)) != 0)
		return HINT_NONE;
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (len == strlen(prefix) + 1 && line[len - 1] == codes[i].code[0])
			return codes[i].hint;
	return HINT_NONE;
}

enum hint hint_of_console(const char *text, size_t len)
{
	enum hint found = HINT_NONE;

	while (len > 0) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;
		enum hint h = hint_of_line(text, n);

		found = h != HINT_NONE ? h : found;
		n += end ? 1 : 0;
		text += n;
		len -= n;
	}
	return found;
}

static enum outcome of_hint(enum hint hint, enum outcome otherwise)
{
	switch (hint) {
	case HINT_SESSION_CONFLICT:
		return OUTCOME_SESSION_CONFLICT;
	case HINT_VERSION_DEPRECATED:
		return OUTCOME_VERSION_DEPRECATED;
	case HINT_UPDATED_ITSELF:
		return OUTCOME_UPDATED_ITSELF;
	case HINT_NONE:
		break;
	}
	return otherwise;
}

static enum outcome of_conclusion(const char *conclusion)
{
	for (size_t i = 0; i < ARRAY_SIZE(conclusions); i++)
		if (strcmp(conclusions[i].conclusion, conclusion) == 0)
			return conclusions[i].outcome;
	return OUTCOME_FAILED;
}

enum outcome outcome_decide(const struct outcome_facts *f)
{
	if (f->job && f->job->status == JOB_COMPLETED)
		return of_conclusion(f->job->conclusion);
	if (f->cause == HAPPENING_EXPIRED) {
		if (f->job || f->seen_busy)
			return OUTCOME_JOB_DEADLINE;
		return f->seen_online ? OUTCOME_NO_JOB : OUTCOME_NEVER_CONNECTED;
	}
	/* GitHub's lists lag behind its runners; a job that ended with the guest is listed as ended a moment later. */
	if (f->patient)
		return OUTCOME_UNKNOWN;
	if (f->job || f->seen_busy)
		return OUTCOME_GUEST_DIED;
	return f->clean_end ? of_hint(f->hint, OUTCOME_NO_JOB) : OUTCOME_GUEST_DIED;
}
