/*
 * boxery: the controller's command. Most of it becomes `ssh HOST boxery-host ...`, or `boxery-host ...` when the host is this
 * machine, so the same options, exit statuses and JSON hold on both sides; `runners once`, `setup` and `ssh-config` are its own.
 * Portable: libc and jansson, no Linux headers.
 */
#include "boxery-config.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "controller/forward.h"
#include "controller/hosts.h"
#include "controller/once.h"
#include "controller/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * What a controller may ask for. Host-only commands (init, build-base, keeper) stay on the host. Some want a terminal of
 * their own on the other side: a screen, and a Ctrl-C or a lost connection that ends the program there. Where only one side is a
 * terminal here there is none there: it would make CR LF of every line end in somebody's file, and mix the errors in.
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
	{"runners", "once; check, token, status, history, show, logs, explain, drain, pause, resume, reload", {NULL}},
};
/* Words of `runners` that are passed on. Serving without one is the host's own business, and so is its end of a link. */
static const char *const runners[] = {"token", "check", "status", "history", "show", "logs", "explain", "drain", "pause", "resume", "reload"};

static bool wants_terminal(size_t k, int argc, char **argv)
{
	for (size_t w = 0; w < ARRAY_SIZE(forwarded[k].terminal); w++) {
		const char *word = forwarded[k].terminal[w];

		bool wanted = word && !word[0];

		for (int i = 1; word && i < argc; i++)
			wanted = wanted || str_equal(argv[i], word);
		if (wanted)
			return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	}
	return false;
}

/* What reads nothing must not take what the caller's other commands are to read: a loop `while read` around us would end early. */
static bool reads_input(int argc, char **argv)
{
	if (str_equal(argv[0], "runners"))
		return argc > 1 && str_equal(argv[1], "token");
	if (str_equal(argv[0], "ssh"))
		return true;
	for (int i = 1; i < argc; i++)
		if (str_equal(argv[i], "--exec") || str_starts(argv[i], "--exec="))
			return true;
	return false;
}

static void usage(FILE *to)
{
	fprintf(to, "Usage: boxery [--host HOST] COMMAND [OPTIONS] [ARGUMENTS]\n\n"
		    "Runs a command on a boxery host through your own ssh (HOST is what ssh calls it, or . for this machine;\n"
		    "default: BOXERY_HOST, what 'boxery setup' remembers, or this machine).\n\nCommands:\n");
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		fprintf(to, "  %-14s %s\n", forwarded[i].name, forwarded[i].summary);
	fprintf(to, "  %-14s %s\n", "setup", "look at a host and remember it");
	fprintf(to, "  %-14s %s\n", "ssh-config", "ssh_config(5) for the VMs of a host");
}

static int run_forwarded(const char *given, size_t k, int argc, char **argv)
{
	char host[FORWARD_HOST_MAX];
	struct error e = ERROR_INIT;

	if (hosts_choose(given, host, &e) < 0) {
		fprintf(stderr, "boxery: %s\n", e.text);
		return error_exit_status(&e);
	}
	return forward_become(host, wants_terminal(k, argc, argv), reads_input(argc, argv), argc, argv);
}

static int run_runners(const char *given, size_t k, int argc, char **argv)
{
	if (argc > 1 && str_equal(argv[1], "once"))
		return once(given, argc - 1, argv + 1);
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(runners); i++)
		if (str_equal(argv[1], runners[i]))
			return run_forwarded(given, k, argc, argv);
	fprintf(stderr, "Usage: boxery runners once [OPTIONS]\n       boxery runners");
	for (size_t i = 0; i < ARRAY_SIZE(runners); i++)
		fprintf(stderr, "%s%s", i ? "|" : " ", runners[i]);
	fprintf(stderr, " ...\n");
	return EXIT_STATUS_USAGE;
}

/* Else a pipe to a child becomes its standard error, or what is printed goes into one. */
static int fill_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	return fd < 0 ? -errno : close(fd);
}

static int command(int argc, char **argv)
{
	const char *host = NULL;
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
	argc -= i;
	argv += i;
	if (str_equal(argv[0], "setup") && host) {
		fprintf(stderr, "boxery setup: the host is its argument: 'boxery setup HOST', not --host\n");
		return EXIT_STATUS_USAGE;
	}
	if (str_equal(argv[0], "setup"))
		return setup(argc, argv);
	if (str_equal(argv[0], "ssh-config"))
		return ssh_config(host, argc, argv);
	for (size_t k = 0; k < ARRAY_SIZE(forwarded); k++)
		if (str_equal(argv[0], forwarded[k].name))
			return str_equal(argv[0], "runners") ? run_runners(host, k, argc, argv) : run_forwarded(host, k, argc, argv);
	fprintf(stderr, "boxery: no command '%s'; see 'boxery --help'\n", argv[0]);
	return EXIT_STATUS_USAGE;
}

int main(int argc, char **argv)
{
	int status, code;

	if (fill_standard_fds() < 0)
		return EXIT_STATUS_FAILED;
	status = command(argc, argv);
	/* What is printed may wait in memory until now, or for the close: a full disk, a quota. */
	code = ferror(stdout) ? EIO : 0;
	if (fclose(stdout) != 0)
		code = errno;
	if (!code)
		return status;
	fprintf(stderr, "boxery: cannot write to standard output: %s\n", strerror(code));
	return status ? status : EXIT_STATUS_FAILED;
}
