/* boxery-host: the host's commands. It holds nothing but a connection to the keeper. */
#include "boxery-config.h"
#include "base/str.h"
#include "cli/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int cmd_version(int argc, char **argv)
{
	(void)argc, (void)argv;
	printf("boxery-host %s\n", BOXERY_VERSION);
	return EXIT_STATUS_OK;
}

static const struct command commands[] = {
	{"init", cmd_init, "prepare this machine's folders and check it"},
	{"doctor", cmd_doctor, "say what this host can and cannot do, and why"},
	{"paths", cmd_paths, "where things are on this machine"},
	{"build-base", cmd_build_base, "build a Debian base image from layers"},
	{"new", cmd_new, "make a VM from a base image"},
	{"ls", cmd_ls, "list VMs"},
	{"start", cmd_start, "start a VM that is not in a pool"},
	{"stop", cmd_stop, "stop a VM that is not in a pool"},
	{"rm", cmd_rm, "remove a VM that is not in a pool"},
	{"ssh", cmd_ssh, "log in to a VM that is not in a pool"},
	{"known-hosts", cmd_known_hosts, "print a VM's pinned host key for ssh"},
	{"pool", cmd_pool, "add, set, ls, show, repair, patch, keep, rm, history, bench: the pool of clean VMs"},
	{"lease", cmd_lease, "take a clean VM out of a pool; 'lease renew', 'lease ls'"},
	{"release", cmd_release, "give a leased VM back; it is reset"},
	{"leases", cmd_leases, "list leases (as 'lease ls')"},
	{"history", cmd_history, "print the timeline of a VM or a lease"},
	{"runners", cmd_runners, "serve GitHub Actions jobs; 'runners check' checks the configuration"},
	{"keeper", cmd_keeper, "status or stop of the keeper process"},
	{"uninstall", cmd_uninstall, "remove everything that boxery has made on this machine"},
	{"version", cmd_version, "print the version"},
};

/*
 * A standard descriptor that is closed would be given to the next file that is opened, and what is printed would go there: into
 * the connection to the keeper. Opened the wrong way round, each use of it fails as if it were closed.
 */
static void fill_standard_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
			_exit(EXIT_STATUS_FAILED);
}

int main(int argc, char **argv)
{
	fill_standard_fds();
	if (argc == 2 && str_equal(argv[1], "--version"))
		return cmd_version(argc, argv);
	return command_dispatch("boxery-host", commands, ARRAY_SIZE(commands), argc, argv);
}
