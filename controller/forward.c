#include "controller/forward.h"
#include "base/cleanup.h"
#include "boxery-config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *forward_version(void)
{
	return BOXERY_VERSION;
}

/* Adds one word so that a POSIX shell on the other side reads it back as it is. */
static int add_quoted(struct buf *line, const char *word)
{
	int code = buf_addf(line, "%s'", line->len ? " " : "");

	for (const char *c = word; code == 0 && *c; c++)
		code = *c == '\'' ? buf_addf(line, "'\\''") : buf_add(line, c, 1);
	return code < 0 ? code : buf_addf(line, "'");
}

static int command_line(const char *const *args, size_t n, struct buf *line, struct error *e)
{
	int code = add_quoted(line, "boxery-host");

	for (size_t i = 0; code == 0 && i < n; i++)
		code = add_quoted(line, args[i]);
	return code < 0 ? error_set(e, EINVAL, "the command line is longer than %d bytes", FORWARD_LINE_MAX) : 0;
}

int forward_check_host(const char *host, struct error *e)
{
	if (!host[0] || host[0] == '-' || strlen(host) >= FORWARD_HOST_MAX)
		return error_set(e, EINVAL, "--host '%.40s' is not a host name", host);
	return 0;
}

int forward_command(const char *host, bool shared, const char *const *args, const char *argv[static FORWARD_ARGV_MAX],
		struct buf *line, struct error *e)
{
	/*
	 * An agent there could be asked for the person's keys, a GitHub login among them. And a connection of its own: one that
	 * others share ends with whichever of them began it.
	 */
	static const char *const alone[] = {"-a", "-x", "-o", "ClearAllForwardings=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none"};
	size_t n = 0, given = 0;

	while (args[given])
		given++;
	if (given > FORWARD_ARGV_MAX - 2)
		return error_set(e, E2BIG, "too many arguments");
	if (!host[0]) {
		argv[n++] = "boxery-host";
		for (size_t i = 0; i < given; i++)
			argv[n++] = args[i];
		argv[n] = NULL;
		return 0;
	}
	if (forward_check_host(host, e) < 0 || command_line(args, given, line, e) < 0)
		return -e->code;
	argv[n++] = "ssh";
	argv[n++] = "-T";
	for (size_t i = 0; !shared && i < ARRAY_SIZE(alone); i++)
		argv[n++] = alone[i];
	argv[n++] = "--";
	argv[n++] = host;
	argv[n++] = line->data;
	argv[n] = NULL;
	return 0;
}

void forward_explain(const char *host, struct error *e)
{
	if (!host[0] && e->code == ENOENT) {
		error_clear(e);
		(void)error_errno(e, ENOENT, "cannot run boxery-host on this machine; --host names another, 'boxery setup HOST' remembers it");
	}
}

static int fail(const struct error *e)
{
	fprintf(stderr, "boxery: %s\n", e->text);
	return error_exit_status(e);
}

static int become_local(int argc, char **argv)
{
	const char **args = calloc((size_t)argc + 2, sizeof(*args));
	struct error e = ERROR_INIT;

	if (!args)
		return EXIT_STATUS_FAILED;
	args[0] = "boxery-host";
	for (int i = 0; i < argc; i++)
		args[i + 1] = argv[i];
	(void)execvp("boxery-host", (char *const *)args);
	(void)error_errno(&e, errno, "cannot run boxery-host");
	forward_explain("", &e);
	free(args);
	return fail(&e);
}

int forward_become(const char *host, bool terminal, bool input, int argc, char **argv)
{
	CLEANUP_BUF struct buf line = BUF_INIT(FORWARD_LINE_MAX);
	struct error e = ERROR_INIT;

	if (!host[0])
		return become_local(argc, argv);
	if (forward_check_host(host, &e) < 0 || command_line((const char *const *)argv, (size_t)argc, &line, &e) < 0)
		return fail(&e);
	const char *args[] = {"ssh", terminal ? "-t" : input ? "-T" : "-nT", "--", host, line.data, NULL};
	(void)execvp("ssh", (char *const *)args);
	(void)error_errno(&e, errno, "cannot run ssh");
	return fail(&e);
}
