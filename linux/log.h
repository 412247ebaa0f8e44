#ifndef BOXERY_LINUX_LOG_H
#define BOXERY_LINUX_LOG_H
/*
 * One log line per transition. Under systemd (JOURNAL_STREAM names our stderr) a record goes to the journal with
 * VM= and LEASE= fields; otherwise a plain line "TIME LEVEL program: text vm=.. lease=.." goes to stderr.
 * Control characters become blanks, text is cut at 2 KB, errno is kept.
 * Libraries do not log; programs do. Text from a remote must have gone through str_show_n.
 */
#include "base/error.h"
#include <syslog.h>

void log_open(const char *program, int max_level); /* LOG_ERR .. LOG_DEBUG; call once at the start */
void log_set_level(int max_level);
struct log_fields {
	const char *vm, *lease; /* either may be NULL or "" */
};
void log_full(int level, const struct log_fields *f, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define log_error(...) log_full(LOG_ERR, NULL, __VA_ARGS__)
#define log_warning(...) log_full(LOG_WARNING, NULL, __VA_ARGS__)
#define log_info(...) log_full(LOG_INFO, NULL, __VA_ARGS__)
#define log_debug(...) log_full(LOG_DEBUG, NULL, __VA_ARGS__)
#define log_vm(level, vm_name, lease_id, ...)                                                                          \
	log_full((level), &(struct log_fields){.vm = (vm_name), .lease = (lease_id)}, __VA_ARGS__)
#endif
