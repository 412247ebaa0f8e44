/* The pool: add, ls, rm, repair. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <stdio.h>

static int pool_add(int argc, char **argv)
{
	const char *pool = POOL_DEFAULT;
	bool wait = false;
	const struct cli_option options[] = {
		{"pool", OPTION_TEXT, &pool, "POOL", "the pool it joins (default \"default\")", 0, 0},
		{"wait", OPTION_FLAG, &wait, NULL, "return when it is READY, not when it is captured", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool add", "NAME",
			"Captures a VM that is off as NAME@boxery-clean and adds it to a pool. From then on the pool starts, checks\n"
			"and resets it; its own disk is the clean state.",
			options, ARRAY_SIZE(options), 1, 1};
	struct keeper_request r;
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_POOL_ADD);
	if (cli_set_name(&r, argv[first], &e) < 0 || name_check(pool, "pool name", &e) < 0)
		return cli_fail(&e);
	(void)str_copy(r.pool, pool);
	if (wait)
		r.flags |= KEEPER_FLAG_WAIT;
	return cli_do(&r, CLI_WORK_TIMEOUT_MS, NULL);
}

static int pool_change(int argc, char **argv, const struct cli_usage *usage, enum keeper_type type, const bool *flag,
		uint32_t flag_value)
{
	struct keeper_request r;
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, type);
	if (cli_set_name(&r, argv[first], &e) < 0)
		return cli_fail(&e);
	if (*flag)
		r.flags |= flag_value;
	return cli_do(&r, CLI_WORK_TIMEOUT_MS, NULL);
}

static int pool_rm(int argc, char **argv)
{
	bool force = false;
	const struct cli_option options[] = {
		{"force", OPTION_FLAG, &force, NULL, "also when it is leased: the lease ends, a running job dies", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool rm", "NAME",
			"Takes a VM out of its pool and removes it with its clean image.", options, ARRAY_SIZE(options), 1, 1};

	return pool_change(argc, argv, &usage, KEEPER_POOL_REMOVE, &force, KEEPER_FLAG_FORCE);
}

static int pool_repair(int argc, char **argv)
{
	bool wait = false;
	const struct cli_option options[] = {
		{"wait", OPTION_FLAG, &wait, NULL, "return when it is READY again, or BROKEN again", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool repair", "NAME",
			"Resets a BROKEN VM and lets the pool try it again. 'pool ls' says why it is broken.", options,
			ARRAY_SIZE(options), 1, 1};

	return pool_change(argc, argv, &usage, KEEPER_POOL_REPAIR, &wait, KEEPER_FLAG_WAIT);
}

int cmd_pool_ls(int argc, char **argv)
{
	bool json = false;
	const char *pool = NULL;
	const struct cli_option options[] = {
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"vms\":[...]}", 0, 0},
		{"pool", OPTION_TEXT, &pool, "POOL", "only this pool", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool ls", "",
			"Lists the VMs of the pools: state, since when, attempts, and where and why the last failure was.",
			options, ARRAY_SIZE(options), 0, 0};
	static const char *const titles[] = {"NAME", "POOL", "STATE", "SINCE", "LIFE", "FAILED", "LEASE", "STEP", "REASON"};
	static const char *const keys[] = {"name", "pool", "state", "since", "generation", "attempts", "lease", "step",
			"reason"};
	CLEANUP(table_freep) struct table *table = table_new(ARRAY_SIZE(titles), titles);
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *vms, *vm;
	size_t i;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_LIST);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	vms = json_object_get(document, "vms");
	for (i = json_array_size(vms); i-- > 0;) {
		const char *in = json_string_value(json_object_get(json_array_get(vms, i), "pool"));

		if (!in || !in[0] || (pool && !str_equal(pool, in)))
			(void)json_array_remove(vms, i);
	}
	if (json) {
		code = cli_print_json(document);
	} else {
		json_array_foreach(vms, i, vm)
		{
			char scratch[ARRAY_SIZE(keys)][ERROR_TEXT_MAX];
			const char *cells[ARRAY_SIZE(keys)];

			for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
				cells[k] = json_text(vm, keys[k], scratch[k], sizeof(scratch[k]));
			table_add(table, cells);
		}
		table_print(table);
		code = EXIT_STATUS_OK;
	}
	json_decref(document);
	return code;
}

int cmd_pool(int argc, char **argv)
{
	static const struct command commands[] = {
		{"add", pool_add, "capture a VM's clean state and add it"},
		{"ls", cmd_pool_ls, "list the pools' VMs"},
		{"rm", pool_rm, "remove a VM from its pool and from the host"},
		{"repair", pool_repair, "reset a BROKEN VM and try it again"},
	};

	return command_dispatch("boxery-host pool", commands, ARRAY_SIZE(commands), argc, argv);
}
