/*
 * ssh to a VM that is not in a pool. The host key was made on this host at the VM's start and written to
 * host-keys/NAME; ssh is told to believe exactly that file and nothing else, so no key is ever taken on first use.
 */
#include "base/str.h"
#include "cli/host.h"
#include "linux/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SSH_ARGUMENTS_MAX 64
#define HOST_KEY_FILE_MAX 4096

int cmd_ssh(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host ssh", "NAME [COMMAND...]",
			"Logs in as root, or runs a command. The VM must have been started with 'boxery-host start'.", NULL, 0, 1,
			SSH_ARGUMENTS_MAX / 2};
	char key[300], known[320], alias[64], target[64], address[64];
	const char *args[SSH_ARGUMENTS_MAX] = {"ssh"};
	size_t n = 1;
	struct keeper_request r;
	struct hostconf conf;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *vm;
	const char *found = NULL;
	size_t i;
	int first, code;

	code = cli_parse(&usage, argc, argv, true, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_LIST);
	if (name_check(argv[first], "VM name", &e) < 0 || hostconf_load(&conf, &e) < 0 ||
			cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	json_array_foreach(json_object_get(document, "vms"), i, vm)
	{
		const char *name = json_string_value(json_object_get(vm, "name"));

		if (name && str_equal(name, argv[first]))
			found = json_text(vm, "address", address, sizeof(address));
	}
	json_decref(document);
	if (!found)
		(void)error_set(&e, ENOENT, "no VM '%s'; 'boxery-host ls' lists them", argv[first]);
	else if (!found[0])
		(void)error_set(&e, EBUSY, "%s has not been started; 'boxery-host start %s' does it", argv[first], argv[first]);
	if (e.code)
		return cli_fail(&e);
	if (str_format(key, "%s/admin-key", conf.state_dir) < 0 ||
			str_format(known, "UserKnownHostsFile=%s/host-keys/%s", conf.config_dir, argv[first]) < 0 ||
			str_format(alias, "HostKeyAlias=%s", argv[first]) < 0 || str_format(target, "root@%s", address) < 0) {
		(void)error_set(&e, ENAMETOOLONG, "the configuration folder's path is too long");
		return cli_fail(&e);
	}
	const char *const fixed[] = {"-i", key, "-o", known, "-o", alias, "-o", "StrictHostKeyChecking=yes", "-o",
			"GlobalKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-o", "PasswordAuthentication=no", "-o",
			"ForwardAgent=no", "-o", "ForwardX11=no", "-o", "LogLevel=ERROR", "-F", "/dev/null", target, "--"};
	for (i = 0; i < ARRAY_SIZE(fixed) - (first + 1 < argc ? 0 : 1); i++)
		args[n++] = fixed[i];
	for (int a = first + 1; a < argc; a++)
		args[n++] = argv[a];
	args[n] = NULL;
	(void)fflush(NULL);
	(void)execvp("ssh", (char *const *)args);
	(void)error_errno(&e, errno, "cannot run ssh");
	return cli_fail(&e);
}

int cmd_known_hosts(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host known-hosts", "NAME",
			"Prints the host key pinned for a VM's current life in known_hosts form, for ssh's KnownHostsCommand.", NULL,
			0, 1, 1};
	CLEANUP_FREE char *line = NULL;
	CLEANUP_FD int folder = -1;
	char path[300];
	struct hostconf conf;
	struct error e = ERROR_INIT;
	size_t len;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if (name_check(argv[first], "VM name", &e) < 0 || hostconf_load(&conf, &e) < 0)
		return cli_fail(&e);
	if (str_format(path, "%s/host-keys", conf.config_dir) < 0 || dir_open(AT_FDCWD, path, &folder, &e) < 0 ||
			file_read(folder, argv[first], HOST_KEY_FILE_MAX, &line, &len, &e) < 0) {
		(void)error_set(&e, ENOENT, "no host key is pinned for '%s'; it has not been started", argv[first]);
		return cli_fail(&e);
	}
	return fwrite(line, 1, len, stdout) == len ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
