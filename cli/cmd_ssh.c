/*
 * ssh to a VM that is not in a pool, or to one that a person has leased with an ssh key of their own. The host key was made on this
 * host at the VM's start; ssh asks `boxery-host known-hosts` for it at each connection and believes nothing else, so no key is ever
 * taken on first use, and one of an earlier life counts for nothing.
 */
#include "base/str.h"
#include "cli/host.h"
#include "linux/file.h"
#include "linux/spawn.h"
#include "pool/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SSH_ARGUMENTS_MAX 64
#define HOST_KEY_FILE_MAX 4096

/* A pool VM takes nobody's key but its lease holder's, which ssh finds where it always does. */
static int check_pool(const json_t *vm, bool *ret_leased, struct error *e)
{
	char name[VM_NAME_MAX], pool[VM_NAME_MAX], state[32], holder[HOLDER_MAX];

	(void)json_text(vm, "name", name, sizeof(name));
	(void)json_text(vm, "pool", pool, sizeof(pool));
	(void)json_text(vm, "state", state, sizeof(state));
	(void)json_text(vm, "holder", holder, sizeof(holder));
	*ret_leased = false;
	if (!pool[0])
		return 0;
	if (str_equal(holder, HOLDER_SERVICE) || str_equal(holder, HOLDER_ONCE))
		return error_set(e, EPERM, "%s runs a job for %s, and nobody logs in to it", name, holder);
	if (!str_equal(state, state_to_string(STATE_DELIVERED)))
		return error_set(e, EBUSY, "%s is in pool %s (%s): it lets in nobody but who has leased it with a key; 'boxery-host lease %s "
				"--ssh-key FILE' does that", name, pool, state, name);
	*ret_leased = true;
	return 0;
}

/* What there is to know of the VM; its address is "" when it is off. */
static int find(const char *name, char *address, size_t size, bool *ret_leased, struct error *e)
{
	struct keeper_request r;
	json_t *document = NULL, *vm;
	bool found = false;
	size_t i;
	int code;

	keeper_request_init(&r, KEEPER_LIST);
	code = cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, e);
	if (code < 0)
		return code;
	json_array_foreach(json_object_get(document, "vms"), i, vm)
	{
		const char *other = json_string_value(json_object_get(vm, "name"));

		if (!other || !str_equal(other, name))
			continue;
		found = true;
		(void)json_text(vm, "address", address, size);
		code = check_pool(vm, ret_leased, e);
	}
	json_decref(document);
	if (!found)
		return error_set(e, ENOENT, "no VM '%s'; 'boxery-host ls' lists them", name);
	if (code == 0 && !address[0])
		return error_set(e, EBUSY, "%s has not been started; 'boxery-host start %s' does it", name, name);
	return code;
}

static int become_ssh(const struct hostconf *conf, const char *name, const char *address, bool leased, char **command,
		struct error *e)
{
	char key[300], program[512], known[600], alias[64], target[64];
	const char *args[SSH_ARGUMENTS_MAX] = {"ssh"};
	size_t n = 1;

	if (program_path("boxery-host", program, sizeof(program), e) < 0)
		return -e->code;
	if (str_format(key, "%s/admin-key", conf->state_dir) < 0 ||
			str_format(known, "KnownHostsCommand=\"%s\" known-hosts %%H", program) < 0 ||
			str_format(alias, "HostKeyAlias=%s", name) < 0 || str_format(target, "root@%s", address) < 0)
		return error_set(e, ENAMETOOLONG, "the configuration folder's path is too long");
	const char *const fixed[] = {"-o", known, "-o", alias, "-o", "StrictHostKeyChecking=yes", "-o",
			"UserKnownHostsFile=/dev/null", "-o", "GlobalKnownHostsFile=/dev/null", "-o", "PasswordAuthentication=no", "-o", "ForwardAgent=no", "-o",
			"ForwardX11=no", "-o", "LogLevel=ERROR", "-F", "/dev/null"};
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		args[n++] = fixed[i];
	if (!leased)
		args[n++] = "-i", args[n++] = key, args[n++] = "-o", args[n++] = "IdentitiesOnly=yes";
	args[n++] = target;
	if (*command)
		args[n++] = "--";
	while (*command)
		args[n++] = *command++;
	args[n] = NULL;
	(void)fflush(NULL);
	(void)execvp("ssh", (char *const *)args);
	return error_errno(e, errno, "cannot run ssh");
}

int cmd_ssh(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host ssh", "NAME [[--] COMMAND...]",
			"Logs in as root, or runs a command. The VM must have been started with 'boxery-host start', or leased with\n"
			"'boxery-host lease --ssh-key' (then ssh uses your own keys).", NULL, 0, 1, SSH_ARGUMENTS_MAX / 2};
	char address[64] = "", **command;
	struct hostconf conf;
	struct error e = ERROR_INIT;
	bool leased = false;
	int first, code;

	code = cli_parse(&usage, argc, argv, true, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	command = argv + first + 1;
	if (*command && str_equal(*command, "--"))
		command++;
	if (name_check(argv[first], "VM name", &e) == 0 && hostconf_load(&conf, &e) == 0 &&
			find(argv[first], address, sizeof(address), &leased, &e) == 0)
		(void)become_ssh(&conf, argv[first], address, leased, command, &e);
	return cli_fail(&e);
}

/*
 * Before ssh asks for the name (HostKeyAlias) that a key counts for, it asks for the address it connects to, only to learn which types
 * of key to ask for first; a failure would be its end. A key belongs to a name: an address may be another VM's by now.
 */
static bool is_address(const char *s)
{
	struct in6_addr a;

	return inet_pton(AF_INET, s, &a) == 1 || inet_pton(AF_INET6, s, &a) == 1;
}

int cmd_known_hosts(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host known-hosts", "NAME",
			"Prints the host key pinned for a VM's current life in known_hosts form, for ssh's KnownHostsCommand.\n"
			"Of an address nothing is known.", NULL,
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
	if (is_address(argv[first]))
		return EXIT_STATUS_OK;
	if (name_check(argv[first], "VM name", &e) < 0 || hostconf_load(&conf, &e) < 0)
		return cli_fail(&e);
	if (str_format(path, "%s/host-keys", conf.config_dir) < 0 || dir_open(AT_FDCWD, path, &folder, &e) < 0 ||
			file_read(folder, argv[first], HOST_KEY_FILE_MAX, &line, &len, &e) < 0) {
		(void)error_set(&e, ENOENT, "no host key is pinned for '%s'; it has not been started", argv[first]);
		return cli_fail(&e);
	}
	return fwrite(line, 1, len, stdout) == len ? EXIT_STATUS_OK : EXIT_STATUS_FAILED;
}
