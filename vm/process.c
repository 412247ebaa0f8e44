#include "vm/process.h"
#include "base/parse.h"
#include "base/str.h"
#include "linux/file.h"
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>

#define PID_FOLDER "/run/libvirt/qemu" /* of the system's QEMU driver */
#define PID_FILE_MAX 32
#define CMDLINE_MAX (256 * 1024) /* a QEMU of ours has some 4 KiB */

/* The arguments are separated by NUL bytes; file_read() adds another one. */
static bool has_uuid(const char *cmdline, size_t len, const char *uuid)
{
	bool named = false;

	for (const char *p = cmdline; p < cmdline + len; p += strlen(p) + 1) {
		if (named)
			return str_equal(p, uuid);
		named = str_equal(p, "-uuid");
	}
	return false;
}

/* A pidfd holds on to the process, so what is read of its number after that is of this process, or of none that matters. */
static int open_qemu(const char *name, const char *uuid)
{
	CLEANUP_FREE char *pid_text = NULL, *cmdline = NULL;
	CLEANUP_FD int fd = -1;
	char path[64];
	uint64_t pid;
	size_t len;

	if (str_format(path, PID_FOLDER "/%s.pid", name) < 0 || file_read(AT_FDCWD, path, PID_FILE_MAX, &pid_text, &len, NULL) < 0)
		return -1;
	pid_text[strcspn(pid_text, "\n")] = '\0';
	if (parse_u64(pid_text, "pid", 2, INT_MAX, &pid, NULL) < 0)
		return -1;
	fd = pidfd_open((pid_t)pid, 0);
	if (fd < 0 || str_format(path, "/proc/%d/cmdline", (int)pid) < 0 ||
			file_read(AT_FDCWD, path, CMDLINE_MAX, &cmdline, &len, NULL) < 0 || !has_uuid(cmdline, len, uuid))
		return -1;
	return TAKE_FD(fd);
}

bool process_kill(const struct host *h, virDomainPtr d)
{
	CLEANUP_FD int fd = -1;
	const char *type = virConnectGetType(h->conn);
	char uuid[VIR_UUID_STRING_BUFLEN];
	struct pollfd dead = {.events = POLLIN};

	if (!type || !str_equal(type, "QEMU") || virDomainGetUUIDString(d, uuid) < 0)
		return false;
	fd = open_qemu(virDomainGetName(d), uuid);
	if (fd < 0 || pidfd_send_signal(fd, SIGKILL, NULL, 0) < 0)
		return false;
	dead.fd = fd;
	return poll(&dead, 1, PROCESS_KILL_MS) == 1;
}
