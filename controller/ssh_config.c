/*
 * boxery ssh-config: a piece of ssh_config(5) for the VMs of a host, so that ssh, scp, rsync and editors get to them. No key of a
 * VM is ever taken on first use: ssh asks the host for the one that was made for the VM's current life.
 */
#include "controller/setup.h"
#include "base/parse.h"
#include "base/str.h"
#include "cli/options.h"
#include "controller/hosts.h"
#include "controller/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LIST_MS 60000
#define LIST_MAX (512 * 1024)

static int fail(const struct error *e)
{
	(void)fprintf(stderr, "%s%s\n", str_starts(e->text, "boxery ") ? "" : "boxery: ", e->text);
	return error_exit_status(e);
}

static bool is_address(const char *s)
{
	return s[0] && strspn(s, "0123456789.") == strlen(s);
}

static void print(const char *host, const char *name, const char *address)
{
	(void)printf("Host %s.boxery\n\tHostName %s\n\tHostKeyAlias %s\n\tUser root\n", name, address, name);
	if (host[0])
		(void)printf("\tProxyJump %s\n\tKnownHostsCommand /usr/bin/env ssh -T -- %s boxery-host known-hosts %%H\n", host, host);
	else
		(void)printf("\tKnownHostsCommand /usr/bin/env boxery-host known-hosts %%H\n");
	(void)printf("\tStrictHostKeyChecking yes\n\tUserKnownHostsFile /dev/null\n\tGlobalKnownHostsFile /dev/null\n"
		     "\tForwardAgent no\n\n");
}

static int ask(const char *host, json_t **ret, struct error *e)
{
	static const char *const args[] = {"ls", "--json", NULL};
	CLEANUP_BUF struct buf line = BUF_INIT(FORWARD_LINE_MAX);
	CLEANUP_FREE char *text = malloc(LIST_MAX);
	const char *argv[FORWARD_ARGV_MAX];
	int r = text ? forward_command(host, false, args, argv, &line, e) : error_set(e, ENOMEM, "no memory for a list");

	if (r == 0)
		r = process_capture(argv, PROCESS_NO_TOKENS, LIST_MS, text, LIST_MAX, e);
	if (r < 0) {
		forward_explain(host, e);
		return r;
	}
	if (r > 0)
		return error_set(e, r == 255 ? ENOTCONN : EIO, "'boxery-host ls' on %s ends with exit status %d", host[0] ? host :
				"this machine", r);
	*ret = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	return *ret ? 0 : error_set(e, EBADMSG, "the host's list is not JSON");
}

int ssh_config(const char *given, int argc, char **argv)
{
	const struct cli_option options[] = {
		{"host", OPTION_TEXT, &given, "HOST", "what ssh calls the host; . is this machine", 0, 0},
	};
	const struct cli_usage usage = {"boxery ssh-config", "",
			"Prints ssh_config(5) for the VMs of the host: 'boxery ssh-config > ~/.ssh/boxery', 'Include boxery' in ~/.ssh/config,\n"
			"then 'ssh NAME.boxery'. Whoever has a key in a VM (lease --ssh-key) gets in.",
			options, ARRAY_SIZE(options), 0, 0};
	char host[FORWARD_HOST_MAX];
	json_t *document = NULL, *vm;
	struct error e = ERROR_INIT;
	size_t i;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : fail(&e);
	process_end_with_us();
	if (hosts_choose(given, host, &e) < 0 || ask(host, &document, &e) < 0)
		return fail(&e);
	/* Into a file that ssh obeys: nothing but names and addresses gets through. */
	if (strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@:[]") != strlen(host)) {
		(void)error_set(&e, EINVAL, "'%.60s' does not go into ssh_config", host);
		json_decref(document);
		return fail(&e);
	}
	json_array_foreach(json_object_get(document, "vms"), i, vm)
	{
		const char *name = json_string_value(json_object_get(vm, "name"));
		const char *address = json_string_value(json_object_get(vm, "address"));

		if (name && address && name_valid(name) && is_address(address))
			print(host, name, address);
	}
	json_decref(document);
	return EXIT_STATUS_OK;
}
