/* The pool: add, rm, repair, keep, history. What shows its VMs is in cmd_pool_ls.c and cmd_pool_show.c. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <stdio.h>

#define POOL_COUNT_MAX 240 /* addresses of the network */
#define KEEP_MS_DEFAULT (3600ull * 1000)

static int pool_add(int argc, char **argv)
{
	const char *pool = POOL_DEFAULT;
	uint64_t count = 1;
	bool wait = false;
	const struct cli_option options[] = {
		{"pool", OPTION_TEXT, &pool, "POOL", "the pool it joins (default \"default\")", 0, 0},
		{"count", OPTION_NUMBER, &count, "N", "so many VMs: NAME, NAME-2 ... NAME-N, of one clean state", 1,
				POOL_COUNT_MAX},
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
	r.count = (uint32_t)count;
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
			"Resets a BROKEN or KEPT VM, drops what was kept of it, and lets the pool try it again. 'pool show NAME'\n"
			"says why it is broken. A VM that starts cold only, because its warm starts failed, is started warm again.", options, ARRAY_SIZE(options), 1, 1};

	return pool_change(argc, argv, &usage, KEEPER_POOL_REPAIR, &wait, KEEPER_FLAG_WAIT);
}

static int pool_keep(int argc, char **argv)
{
	uint64_t ttl = KEEP_MS_DEFAULT;
	bool no = false;
	const struct cli_option options[] = {
		{"for", OPTION_DURATION, &ttl, "TIME", "how long (default 1h, at most 7d)", CLI_TTL_MS_MIN, KEEPER_TTL_MAX_MS},
		{"no", OPTION_FLAG, &no, NULL, "take it back: the end of the lease resets the VM as usual", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool keep", "NAME",
			"When the lease that has NAME ends, the VM is shut off and its overlay kept for inspection (state KEPT), and\n"
			"reset only when the time is over or with 'pool repair NAME'. 'pool show NAME' says where the overlay is.",
			options, ARRAY_SIZE(options), 1, 1};
	struct keeper_request r;
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_POOL_KEEP);
	if (cli_set_name(&r, argv[first], &e) < 0)
		return cli_fail(&e);
	r.ttl_ms = no ? 0 : ttl;
	return cli_do(&r, CLI_CALL_TIMEOUT_MS, NULL);
}

int cmd_pool(int argc, char **argv)
{
	static const struct command commands[] = {
		{"add", pool_add, "capture a VM's clean state and add it"},
		{"set", cmd_pool_set, "limits and reservations of a pool, or print them"},
		{"ls", cmd_pool_ls, "list the pools' VMs; --watch keeps the list on the screen"},
		{"show", cmd_pool_show, "everything about one VM: why it is broken, console, leases"},
		{"repair", pool_repair, "reset a BROKEN or KEPT VM and try it again"},
		{"patch", cmd_pool_patch, "put VMs on a newer base image, one after the other"},
		{"keep", pool_keep, "hold a leased VM for inspection when its lease ends"},
		{"rm", pool_rm, "remove a VM from its pool and from the host"},
		{"history", cmd_pool_history, "print the timeline of a VM"},
		{"bench", cmd_pool_bench, "how long a lease, a reset and a start take, by stage"},
	};

	return command_dispatch("boxery-host pool", commands, ARRAY_SIZE(commands), argc, argv);
}
