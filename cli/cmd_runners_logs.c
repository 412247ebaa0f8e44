/*
 * runners logs: the console of a VM's current life, or the kept one of an ended lease. Root in the guest can write anything
 * there: control characters are made visible, and it decides nothing.
 */
#include "base/str.h"
#include "cli/host.h"
#include "manager/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 16384
#define FOLLOW_MS 500

static int find(const char *name, char *path, size_t size, struct error *e)
{
	struct hostconf conf;
	int r = hostconf_load(&conf, e);

	if (r < 0)
		return r;
	if (strlen(name) == LEASE_ID_MAX - 1 && strspn(name, "0123456789abcdef") == LEASE_ID_MAX - 1)
		r = str_format_n(path, size, "%s/" LOGS_FOLDER "/%s.log", conf.state_dir, name);
	else if (name_check(name, "VM", e) < 0)
		return -EINVAL;
	else
		r = str_format_n(path, size, "%s/console/%s.log", conf.image_dir, name);
	return r < 0 ? error_set(e, ENAMETOOLONG, "the path is too long") : 0;
}

/* Lines stay lines, tabs tabs; all else that a terminal could obey is shown as \xNN. */
static void print_visible(const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char one[8];

		if (data[i] == '\n' || data[i] == '\t') {
			(void)putchar(data[i]);
		} else if (data[i] == '\r') {
			continue;
		} else {
			str_show_n(one, sizeof(one), &data[i], 1);
			(void)fputs(one, stdout);
		}
	}
}

/* From where it was read last; a file that was cut or replaced begins anew. */
static int print_new(int fd, off_t *at, struct error *e)
{
	char data[BLOCK];
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) == 0 && st.st_size < *at)
		*at = 0;
	while ((n = pread(fd, data, sizeof(data), *at)) > 0) {
		print_visible(data, (size_t)n);
		*at += n;
	}
	return n < 0 ? error_errno(e, errno, "cannot read the console") : 0;
}

static int follow(const char *path, int fd, off_t *at, struct error *e)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	CLEANUP_FD int stop = -1;
	int r = cli_signals(signals, ARRAY_SIZE(signals), &stop, e);

	while (r == 0) {
		struct pollfd p = {.fd = stop, .events = POLLIN};
		struct stat now, ours;

		r = print_new(fd, at, e);
		if (r < 0 || fflush(stdout) != 0 || poll(&p, 1, FOLLOW_MS) > 0)
			break;
		/* The next life has a file of its own; what is shown is one life. */
		if (stat(path, &now) < 0 || fstat(fd, &ours) < 0 || now.st_ino != ours.st_ino)
			break;
	}
	return r;
}

int cmd_runners_logs(int argc, char **argv)
{
	bool follows = false;
	const struct cli_option options[] = {
		{"follow", OPTION_FLAG, &follows, NULL, "go on until the VM's life ends, or Ctrl-C", 0, 0}};
	const struct cli_usage usage = {"boxery-host runners logs", "NAME|LEASE",
			"Prints the console of a VM, or of a lease that has ended. Guests write it: it proves nothing.", options,
			ARRAY_SIZE(options), 1, 1};
	CLEANUP_FD int fd = -1;
	char path[600];
	struct stat st;
	struct error e = ERROR_INIT;
	off_t at = 0;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if (find(argv[first], path, sizeof(path), &e) < 0)
		return cli_fail(&e);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		(void)error_set(&e, ENOENT, "nothing is kept of '%s' (%s); a lease's console is kept when it ends", argv[first], path);
		return cli_fail(&e);
	}
	code = follows ? follow(path, fd, &at, &e) : print_new(fd, &at, &e);
	return code < 0 ? cli_fail(&e) : EXIT_STATUS_OK;
}
