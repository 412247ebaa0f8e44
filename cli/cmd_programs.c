/* build-base, which becomes another of our programs; and the keeper's own subcommands. */
#include "boxery-config.h"
#include "base/str.h"
#include "cli/host.h"
#include "linux/clock.h"
#include "linux/program.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64
#define END_WAIT_MS 15000 /* what runs has 10 s to end */

static const char *layer_folder(void)
{
	static char folder[512];

	return str_format(folder, "%s/layers", program_data_folder()) == 0 ? folder : "layers";
}

int cmd_build_base(int argc, char **argv)
{
	const char *name = "debian-12", *mirror = NULL, *suite = NULL, *proxy = NULL, *no_proxy = NULL, *folder = layer_folder();
	bool force = false;
	struct option_list layers = {0}, certificates = {0};
	const struct cli_option options[] = {
		{"name", OPTION_TEXT, &name, "NAME", "name of the image (default debian-12)", 0, 0},
		{"layers", OPTION_LIST, &layers, "L[,L...]", "layers (default debian,github-runner)", 0, 0},
		{"layer-dir", OPTION_TEXT, &folder, "FOLDER", "where the layer files are", 0, 0},
		{"suite", OPTION_TEXT, &suite, "SUITE", "Debian release (default bookworm)", 0, 0},
		{"mirror", OPTION_TEXT, &mirror, "URL", "Debian mirror", 0, 0},
		{"ca", OPTION_LIST, &certificates, "FILE", "a CA certificate the guest shall trust", 0, 0},
		{"proxy", OPTION_TEXT, &proxy, "URL", "a proxy for the runner and its jobs: http://HOST:PORT", 0, 0},
		{"no-proxy", OPTION_TEXT, &no_proxy, "LIST", "what they reach without it (default localhost,127.0.0.1,::1)", 0, 0},
		{"force", OPTION_FLAG, &force, NULL, "build anew even when nothing has changed", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host build-base", "",
			"Builds a Debian base image with mmdebstrap from layer files; downloads are checked against the layers' SHA-256.",
			options, ARRAY_SIZE(options), 0, 0};
	const char *args[ARGUMENTS_MAX];
	size_t n = 0;
	char joined[1024] = "";
	struct hostconf conf;
	struct error e = ERROR_INIT;
	int first, status;

	if (!cli_begin(&usage, argc, argv, &first, &conf, &status))
		return status;
	if (name_check(name, "image name", &e) < 0 || cli_join(&layers, joined, sizeof(joined), &e) < 0)
		return cli_fail(&e);
	const char *const fixed[] = {"boxery-build", "base", name, "--layers", joined[0] ? joined : "debian,github-runner",
			"--layer-dir", folder, "--image-dir", conf.image_dir, "--cache-dir", conf.cache_dir};
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		args[n++] = fixed[i];
	if (suite)
		args[n++] = "--suite", args[n++] = suite;
	if (mirror)
		args[n++] = "--mirror", args[n++] = mirror;
	for (size_t i = 0; i < certificates.n; i++)
		args[n++] = "--ca", args[n++] = certificates.items[i];
	if (proxy)
		args[n++] = "--proxy", args[n++] = proxy;
	if (no_proxy)
		args[n++] = "--no-proxy", args[n++] = no_proxy;
	if (force)
		args[n++] = "--force";
	args[n] = NULL;
	(void)cli_become("boxery-build", args, &e);
	return cli_fail(&e);
}

static int keeper_status(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host keeper status", "",
			"Says whether a keeper runs, and its version. Exit status 8 when none does.", NULL, 0, 0, 0};
	CLEANUP(keeper_client_freep) struct keeper_client *client = NULL;
	struct keeper_request r;
	struct keeper_reply reply;
	struct hostconf conf;
	struct error e = ERROR_INIT;
	int first, status;

	if (!cli_begin(&usage, argc, argv, &first, &conf, &status))
		return status;
	keeper_request_init(&r, KEEPER_HELLO);
	if (keeper_connect(&conf, false, &client, &e) < 0 ||
			keeper_call(client, &r, -1, CLI_CALL_TIMEOUT_MS, NULL, NULL, &reply, NULL, &e) < 0)
		return cli_fail(&e);
	printf("keeper %s, host id %s, socket %s\n", reply.text, reply.name, conf.keeper_socket);
	return EXIT_STATUS_OK;
}

/* The keeper closes its connections when it has nothing open any more. */
static int await_end(struct keeper_client *client, struct error *e)
{
	const uint64_t deadline = clock_boot_us() + END_WAIT_MS * 1000;
	struct pollfd p = {.fd = keeper_client_fd(client), .events = POLLIN};
	struct keeper_answer a;
	int code;

	while ((code = keeper_receive(client, &a, e)) == 1 || code == -EAGAIN) {
		if (code == 1)
			free(a.document);
		else if (clock_boot_us() >= deadline)
			return error_set(e, ETIMEDOUT, "the keeper is ending, but has not ended within %d s", END_WAIT_MS / 1000);
		else
			(void)poll(&p, 1, cli_poll_ms(deadline));
	}
	return code;
}

/*
 * A keeper that nobody can connect to: its socket is gone, it starts, or it is ending already. It holds the lock, so SIGTERM is
 * its QUIT. The second look makes sure that the pidfd is the holder's and not a later process's of that number.
 */
static int end_holder(const struct hostconf *conf, bool *ret_ran, struct error *e)
{
	struct holder holder, same;
	CLEANUP_FD int fd = -1;
	struct pollfd p = {.events = POLLIN};
	const uint64_t deadline = clock_boot_us() + END_WAIT_MS * 1000;

	*ret_ran = keeper_holder(conf, &holder);
	if (!*ret_ran)
		return 0;
	p.fd = fd = pidfd_open(holder.pid, 0);
	if (fd < 0 || !keeper_holder(conf, &same) || same.pid != holder.pid)
		return 0; /* it has just ended */
	if (pidfd_send_signal(fd, SIGTERM, NULL, 0) < 0)
		return errno == ESRCH ? 0 : error_errno(e, errno, "a keeper (pid %d) runs that does not answer and cannot be ended",
								(int)holder.pid);
	while (poll(&p, 1, cli_poll_ms(deadline)) <= 0)
		if (clock_boot_us() >= deadline)
			return error_set(e, ETIMEDOUT, "the keeper (pid %d) was told to end, but has not ended within %d s",
					(int)holder.pid, END_WAIT_MS / 1000);
	return 0;
}

int cli_keeper_end(const struct hostconf *conf, bool *ret_ran, struct error *e)
{
	CLEANUP(keeper_client_freep) struct keeper_client *client = NULL;
	struct keeper_request r;
	struct error failed = ERROR_INIT;
	int code;

	code = keeper_connect(conf, false, &client, &failed);
	*ret_ran = code == 0;
	if (code == -ENOTCONN)
		return end_holder(conf, ret_ran, e);
	if (code < 0) {
		*e = failed;
		return code;
	}
	keeper_request_init(&r, KEEPER_QUIT);
	code = keeper_call(client, &r, -1, CLI_CALL_TIMEOUT_MS, NULL, NULL, NULL, NULL, &failed);
	if (code == 0)
		code = await_end(client, &failed);
	if (code == 0 || code == -ENOTCONN)
		return 0;
	*e = failed;
	return code;
}

static int keeper_stop(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host keeper stop", "",
			"Ends the keeper and waits until it has ended. VMs and running jobs are left alone; the next command starts a\n"
			"keeper again.", NULL, 0, 0, 0};
	struct hostconf conf;
	struct error e = ERROR_INIT;
	bool ran;
	int first, status;

	if (!cli_begin(&usage, argc, argv, &first, &conf, &status))
		return status;
	if (cli_keeper_end(&conf, &ran, &e) < 0)
		return cli_fail(&e);
	if (!ran)
		printf("no keeper runs\n");
	return EXIT_STATUS_OK;
}

int cmd_keeper(int argc, char **argv)
{
	static const struct command commands[] = {
		{"status", keeper_status, "does one run, which version"},
		{"stop", keeper_stop, "end it; VMs are left alone"},
	};

	return command_dispatch("boxery-host keeper", commands, ARRAY_SIZE(commands), argc, argv);
}
