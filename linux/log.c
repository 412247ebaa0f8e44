#include "linux/log.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/clock.h"
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>

#define TEXT_MAX 2048
#define FIELD_MAX 128

static struct {
	char program[32];
	int level;
	bool journal;
} log_state = {.program = "boxery", .level = LOG_INFO};

/* JOURNAL_STREAM is "DEVICE:INODE" of the stream systemd gave us; stderr may be another one by now. */
static bool stderr_is_journal(void)
{
	const char *s = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	char ours[64];
	struct stat st;

	if (!s || fstat(STDERR_FILENO, &st) < 0)
		return false;
	device = st.st_dev;
	inode = st.st_ino;
	return str_format(ours, "%llu:%llu", device, inode) == 0 && str_equal(s, ours);
}

void log_open(const char *program, int max_level)
{
	(void)snprintf(log_state.program, sizeof(log_state.program), "%s", program);
	log_state.level = max_level;
	log_state.journal = stderr_is_journal();
}

void log_set_level(int max_level)
{
	log_state.level = max_level;
}

static const char *level_name(int level)
{
	static const char *const names[] = {
		"emerg", "alert", "crit", "error", "warning", "notice", "info", "debug"};

	return level >= 0 && (size_t)level < ARRAY_SIZE(names) ? names[level] : "?";
}

/* One record is one line, whatever came in with a %s. */
static void one_line(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = ' ';
}

static void to_journal(int level, const char *vm, const char *lease, const char *text)
{
	char message[TEXT_MAX + 16], priority[16], identifier[64], vm_field[FIELD_MAX],
		lease_field[FIELD_MAX];
	const char *fields[] = {message, priority, identifier, vm_field, lease_field};
	struct iovec iov[ARRAY_SIZE(fields)];
	int n = 0;

	(void)snprintf(message, sizeof(message), "MESSAGE=%s", text);
	(void)snprintf(priority, sizeof(priority), "PRIORITY=%d", level);
	(void)snprintf(identifier, sizeof(identifier), "SYSLOG_IDENTIFIER=%s", log_state.program);
	(void)snprintf(vm_field, sizeof(vm_field), "%s%s", vm ? "VM=" : "", vm ? vm : "");
	(void)snprintf(lease_field, sizeof(lease_field), "%s%s", lease ? "LEASE=" : "", lease ? lease : "");
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (fields[i][0])
			iov[n++] = (struct iovec){(void *)(uintptr_t)fields[i], strlen(fields[i])};
	/* There is nobody to tell when even the log fails. */
	(void)sd_journal_sendv(iov, n);
}

static void to_stderr(int level, const char *vm, const char *lease, const char *text)
{
	char line[TEXT_MAX + 3 * FIELD_MAX], time[32];
	int n;

	clock_wall_text(clock_wall_us(), time, sizeof(time));
	n = snprintf(line, sizeof(line), "%s %s %s: %s%s%.64s%s%.64s\n", time, level_name(level),
		log_state.program, text, vm ? " vm=" : "", vm ? vm : "", lease ? " lease=" : "",
		lease ? lease : "");
	/* In one write, so that lines of several processes on one stderr do not mix. */
	if (n > 0)
		(void)!write(STDERR_FILENO, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

void log_full(int level, const struct log_fields *f, const char *format, ...)
{
	const char *vm = f && f->vm && f->vm[0] ? f->vm : NULL;
	const char *lease = f && f->lease && f->lease[0] ? f->lease : NULL;
	char text[TEXT_MAX];
	int saved = errno;
	va_list ap;

	if (level > log_state.level)
		return;
	va_start(ap, format);
	if (vsnprintf(text, sizeof(text), format, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	one_line(text);
	if (log_state.journal)
		to_journal(level, vm, lease, text);
	else
		to_stderr(level, vm, lease, text);
	errno = saved;
}
