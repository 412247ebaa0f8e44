/* The timeline of a VM or a lease: every event with the time since the first and, for a stage, how long it took. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int history(int argc, char **argv, const char *command, bool leases_too)
{
	bool json = false;
	const struct cli_option options[] = {
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"events\":[...]}", 0, 0},
	};
	const struct cli_usage usage = {command, leases_too ? "NAME|LEASE" : "NAME",
			leases_too ? "Prints the newest events of a VM, or a lease from its beginning until its VM was ready again." :
				     "Prints the newest events of a VM.",
			options, ARRAY_SIZE(options), 1, 1};
	static const char *const titles[] = {"AT", "+SECONDS", "VM", "LIFE", "WHAT", "TOOK MS", "TEXT"};
	CLEANUP(table_freep) struct table *table = table_new(ARRAY_SIZE(titles), titles);
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *event;
	json_int_t begun = 0;
	size_t i;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_HISTORY);
	if (leases_too && strlen(argv[first]) == LEASE_ID_MAX - 1)
		(void)str_copy(r.lease, argv[first]);
	else if (cli_set_name(&r, argv[first], &e) < 0)
		return cli_fail(&e);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	if (json_array_size(json_object_get(document, "events")) == 0)
		(void)error_set(&e, ENOENT, "nothing is known of '%s'; 'boxery-host ls' lists VMs, 'boxery-host lease ls --all' leases",
				argv[first]);
	if (json || e.code) {
		code = e.code ? cli_fail(&e) : cli_print_json(document);
		json_decref(document);
		return code;
	}
	json_array_foreach(json_object_get(document, "events"), i, event)
	{
		char at[32], vm[VM_NAME_MAX], life[24], kind[48], text[ERROR_TEXT_MAX], since[32], took[32];
		json_int_t now = json_integer_value(json_object_get(event, "boot_us"));
		json_int_t took_us = json_integer_value(json_object_get(event, "took_us"));
		const char *cells[ARRAY_SIZE(titles)] = {json_text(event, "at", at, sizeof(at)), since,
				json_text(event, "vm", vm, sizeof(vm)), json_text(event, "generation", life, sizeof(life)),
				json_text(event, "kind", kind, sizeof(kind)), took, json_text(event, "text", text, sizeof(text))};

		if (i == 0)
			begun = now;
		(void)str_format(since, "%.3f", (double)(now - begun) / 1e6);
		took[0] = '\0';
		if (took_us > 0)
			(void)str_format(took, "%.1f", (double)took_us / 1e3);
		table_add(table, cells);
	}
	table_pin(table, 0);
	table_print(table);
	json_decref(document);
	return EXIT_STATUS_OK;
}

int cmd_history(int argc, char **argv)
{
	return history(argc, argv, "boxery-host history", true);
}

int cmd_pool_history(int argc, char **argv)
{
	return history(argc, argv, "boxery-host pool history", false);
}
