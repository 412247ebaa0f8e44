#ifndef BOXERY_MANAGER_ALARM_H
#define BOXERY_MANAGER_ALARM_H
/*
 * What an admin has to know: one error line in the log, and the alarm_command of runners.yaml run as
 *   COMMAND KIND SCOPE TEXT
 * with nothing on its standard input. One runs at a time and for 30 s at most; the same kind for the same scope is not run
 * again within ten minutes. Its failure is logged and changes nothing.
 */
#include "base/error.h"

enum alarm_kind {
	ALARM_PUBLIC,	  /* not private any more */
	ALARM_REFUSED,	  /* GitHub refuses: credential, permission, absent, invalid */
	ALARM_STOPPED,	  /* an outcome that would go on for ever */
	ALARM_JOBLESS,	  /* many leases without a job */
	ALARM_CREDENTIAL, /* it ends soon */
	ALARM_BUDGET,	  /* the rate limit will be reached */
	ALARM_VERSION,	  /* GitHub gives the actions/runner of an image (the scope) no jobs any more, or soon */
	ALARM_COUNT
};
const char *alarm_kind_to_string(enum alarm_kind v);

struct service;
struct alarms;
int alarms_new(struct service *s, struct alarms **ret, struct error *e);
struct alarms *alarms_free(struct alarms *a);
void alarm_raise(struct service *s, enum alarm_kind kind, const char *scope, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
#endif
