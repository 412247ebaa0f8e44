#include "manager/alarm.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/table.h"
#include "linux/log.h"
#include "linux/loop.h"
#include "manager/service.h"
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

#define COMMAND_TIMEOUT_MS 30000
#define QUEUE_MAX 16
#define AGAIN_MS (10 * 60 * 1000)
#define RECENT_MAX 64

static const char *const names[] = {
	[ALARM_PUBLIC] = "public",
	[ALARM_REFUSED] = "refused",
	[ALARM_STOPPED] = "stopped",
	[ALARM_JOBLESS] = "jobless",
	[ALARM_CREDENTIAL] = "credential",
	[ALARM_BUDGET] = "budget",
	[ALARM_VERSION] = "version",
};
_Static_assert(ARRAY_SIZE(names) == ALARM_COUNT, "table and enum differ");

const char *alarm_kind_to_string(enum alarm_kind v)
{
	return (unsigned)v < ALARM_COUNT ? names[v] : NULL;
}

struct alarm {
	enum alarm_kind kind;
	char scope[SCOPE_MAX], text[ERROR_TEXT_MAX];
};

struct alarms {
	struct service *service;
	struct alarm queue[QUEUE_MAX];
	unsigned n;
	struct loop_child *running;
	struct {
		enum alarm_kind kind;
		char scope[SCOPE_MAX];
		uint64_t at_ms;
	} recent[RECENT_MAX];
	unsigned next_recent;
};

int alarms_new(struct service *s, struct alarms **ret, struct error *e)
{
	struct alarms *a = calloc(1, sizeof(*a));

	if (!a)
		return error_errno(e, ENOMEM, "cannot start");
	a->service = s;
	*ret = a;
	return 0;
}

struct alarms *alarms_free(struct alarms *a)
{
	if (!a)
		return NULL;
	loop_child_kill(a->running);
	free(a);
	return NULL;
}

static void run_next(struct alarms *a);

static void on_ended(void *userdata, int status, bool timed_out)
{
	struct alarms *a = userdata;

	a->running = NULL;
	if (timed_out)
		log_warning("the alarm command did not end within %d s and was ended", COMMAND_TIMEOUT_MS / 1000);
	else if (status != 0)
		log_warning("the alarm command failed (%s %d)", WIFSIGNALED(status) ? "signal" : "exit status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	run_next(a);
}

static void run_next(struct alarms *a)
{
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	struct error e = ERROR_INIT;
	struct alarm alarm;

	const char *command = a->service->config->alarm_command;

	if (a->running || a->n == 0)
		return;
	if (!command[0]) { /* a reload has taken it away */
		a->n = 0;
		return;
	}
	alarm = a->queue[0];
	memmove(&a->queue[0], &a->queue[1], --a->n * sizeof(a->queue[0]));
	const char *const argv[] = {command, names[alarm.kind], alarm.scope, alarm.text, NULL};
	o.program = command;
	o.argv = argv;
	if (spawn(&o, &c, &e) < 0 ||
		loop_child_add(a->service->ev, &c, COMMAND_TIMEOUT_MS, on_ended, a, &a->running, &e) < 0)
		log_warning("the alarm command cannot be run: %s", e.text);
}

/* True: it was raised not long ago. Remembers it otherwise. */
static bool is_recent(struct alarms *a, enum alarm_kind kind, const char *scope, uint64_t now)
{
	for (unsigned i = 0; i < RECENT_MAX; i++)
		if (a->recent[i].at_ms && now - a->recent[i].at_ms < AGAIN_MS && a->recent[i].kind == kind &&
			str_equal(a->recent[i].scope, scope))
			return true;
	a->recent[a->next_recent].kind = kind;
	a->recent[a->next_recent].at_ms = now;
	(void)str_copy(a->recent[a->next_recent].scope, scope);
	a->next_recent = (a->next_recent + 1) % RECENT_MAX;
	return false;
}

void alarm_raise(struct service *s, enum alarm_kind kind, const char *scope, const char *format, ...)
{
	struct alarms *a = s->alarms;
	char text[ERROR_TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	log_error("%s: %s", scope, text);
	if (!a || !s->config->alarm_command[0] || is_recent(a, kind, scope, service_now_ms()))
		return;
	if (a->n == QUEUE_MAX) {
		log_warning("more alarms than the alarm command can be run for");
		return;
	}
	a->queue[a->n] = (struct alarm){.kind = kind};
	(void)str_copy(a->queue[a->n].scope, scope);
	(void)str_copy(a->queue[a->n].text, text);
	a->n++;
	run_next(a);
}
