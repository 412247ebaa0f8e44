/*
 * boxery: the controller's command. It becomes `ssh HOST boxery-host ...`, or `boxery-host ...` when the host is this
 * machine, so the same options, exit statuses and JSON hold on both sides. Portable: libc only, no Linux headers.
 */
#include "boxery-config.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_LINE_MAX (64 * 1024)
#define HOST_MAX 256

/*
 * What a controller may ask for. Host-only commands (init, build-base, keeper) stay on the host. Some want a terminal of
 * their own on the other side: a screen, and a Ctrl-C or a lost connection that ends the program there.
 */
static const struct {
	const char *name, *summary;
	const char *terminal[2]; /* with one of these words; "": always */
} forwarded[] = {
	{"ls", "list VMs", {NULL}},
	{"new", "make a VM from a base image", {NULL}},
	{"start", "start a VM", {NULL}},
	{"stop", "stop a VM", {NULL}},
	{"rm", "remove a VM", {NULL}},
	{"ssh", "log in to a VM", {""}},
	{"pool", "add, set, ls, show, repair, keep, rm, history", {"--watch"}},
	{"lease", "take a clean VM; renew, ls", {"--exec", "--"}},
	{"release", "give it back", {NULL}},
	{"leases", "list leases", {NULL}},
	{"history", "timeline of a VM or lease", {NULL}},
	{"doctor", "what the host can do", {NULL}},
};

static bool wants_terminal(size_t k, int argc, char **argv)
{
	for (size_t w = 0; w < ARRAY_SIZE(forwarded[k].terminal); w++) {
		const char *word = forwarded[k].terminal[w];

		if (word && !word[0])
			return isatty(STDIN_FILENO);
		for (int i = 1; word && i < argc; i++)
			if (str_equal(argv[i], word))
				return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	}
	return false;
}

static void usage(FILE *to)
{
	fprintf(to, "Usage: boxery [--host HOST] COMMAND [OPTIONS] [ARGUMENTS]\n\n"
		    "Runs a command on a boxery host through your own ssh (HOST is what ssh calls it; default: BOXERY_HOST,\n"
		    "or this machine).\n\nCommands:\n");
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		fprintf(to, "  %-14s %s\n", forwarded[i].name, forwarded[i].summary);
}

/* Adds one word so that a POSIX shell on the other side reads it back as it is. */
static int add_quoted(struct buf *line, const char *word)
{
	int code = buf_addf(line, "%s'", line->len ? " " : "");

	for (const char *c = word; code == 0 && *c; c++)
		code = *c == '\'' ? buf_addf(line, "'\\''") : buf_add(line, c, 1);
	return code < 0 ? code : buf_addf(line, "'");
}

static int fail(const struct error *e)
{
	fprintf(stderr, "boxery: %s\n", e->text);
	return error_exit_status(e);
}

static int become_ssh(const char *host, bool terminal, int argc, char **argv)
{
	CLEANUP_BUF struct buf line = BUF_INIT(COMMAND_LINE_MAX);
	struct error e = ERROR_INIT;

	/* ssh would take a name that begins with '-' for an option. */
	if (host[0] == '-' || strlen(host) >= HOST_MAX) {
		(void)error_set(&e, EINVAL, "--host '%.40s' is not a host name", host);
		return fail(&e);
	}
	if (add_quoted(&line, "boxery-host") < 0)
		return EXIT_STATUS_FAILED;
	for (int i = 0; i < argc; i++)
		if (add_quoted(&line, argv[i]) < 0) {
			(void)error_set(&e, EINVAL, "the command line is longer than %d bytes", COMMAND_LINE_MAX);
			return fail(&e);
		}
	const char *args[] = {"ssh", terminal ? "-t" : "-T", "--", host, line.data, NULL};
	(void)execvp("ssh", (char *const *)args);
	(void)error_errno(&e, errno, "cannot run ssh");
	return fail(&e);
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
	(void)error_errno(&e, errno, "cannot run boxery-host on this machine; --host names another");
	free(args);
	return fail(&e);
}

int main(int argc, char **argv)
{
	const char *host = getenv("BOXERY_HOST");
	int i = 1;

	if (i < argc && (str_equal(argv[i], "--help") || str_equal(argv[i], "-h"))) {
		usage(stdout);
		return EXIT_STATUS_OK;
	}
	if (i < argc && str_equal(argv[i], "--version")) {
		printf("boxery %s\n", BOXERY_VERSION);
		return EXIT_STATUS_OK;
	}
	if (i < argc && str_starts(argv[i], "--host=")) {
		host = argv[i++] + strlen("--host=");
	} else if (i + 1 < argc && str_equal(argv[i], "--host")) {
		host = argv[i + 1];
		i += 2;
	}
	if (i >= argc) {
		usage(stderr);
		return EXIT_STATUS_USAGE;
	}
	for (size_t k = 0; k < ARRAY_SIZE(forwarded); k++)
		if (str_equal(argv[i], forwarded[k].name))
			return host && host[0] ? become_ssh(host, wants_terminal(k, argc - i, argv + i), argc - i, argv + i)
					       : become_local(argc - i, argv + i);
	fprintf(stderr, "boxery: no command '%s'; see 'boxery --help'\n", argv[i]);
	return EXIT_STATUS_USAGE;
}
