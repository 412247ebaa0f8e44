/* Leases by hand. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define LEASE_TTL_MS_MIN 1000
#define LEASE_TTL_MS_MAX (7ull * 24 * 3600 * 1000)
#define LEASE_TTL_MS_DEFAULT (2ull * 3600 * 1000)
#define LEASE_WAIT_MS_MAX (24ull * 3600 * 1000)

int cmd_lease(int argc, char **argv)
{
	uint64_t ttl = LEASE_TTL_MS_DEFAULT, wait = 0;
	const char *pool = POOL_DEFAULT, *holder = "admin";
	bool json = false;
	const struct cli_option options[] = {
		{"pool", OPTION_TEXT, &pool, "POOL", "from this pool (default \"default\")", 0, 0},
		{"as", OPTION_TEXT, &holder, "HOLDER", "who holds it (default admin)", 0, 0},
		{"ttl", OPTION_DURATION, &ttl, "TIME", "ends by itself after this (default 2h, at most 7d)", LEASE_TTL_MS_MIN,
				LEASE_TTL_MS_MAX},
		{"wait", OPTION_DURATION, &wait, "TIME", "wait this long for a clean VM (default: not at all)", 0,
				LEASE_WAIT_MS_MAX},
		{"json", OPTION_FLAG, &json, NULL, "machine-readable", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host lease", "[NAME]",
			"Takes a clean VM, any of the pool or NAME, for exclusive use. 'release' or the end of the ttl resets it.",
			options, ARRAY_SIZE(options), 0, 1};
	struct keeper_request r;
	struct keeper_reply reply;
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_LEASE);
	if ((first < argc && cli_set_name(&r, argv[first], &e) < 0) || name_check(pool, "pool name", &e) < 0 ||
			name_check(holder, "holder", &e) < 0)
		return cli_fail(&e);
	if (str_equal(holder, HOLDER_SERVICE) || str_equal(holder, HOLDER_ONCE)) {
		(void)error_set(&e, EINVAL, "--as %s: this holder's name belongs to the runners", holder);
		return cli_fail(&e);
	}
	(void)str_copy(r.pool, pool);
	(void)str_copy(r.holder, holder);
	r.ttl_ms = ttl;
	r.wait_ms = wait;
	if (cli_call(&r, wait + CLI_CALL_TIMEOUT_MS, &reply, NULL, &e) < 0)
		return cli_fail(&e);
	if (json) {
		json_t *document = json_pack("{s:s,s:s,s:s,s:I}", "lease", reply.lease, "name", reply.name, "address",
				reply.address, "generation", (json_int_t)reply.generation);

		code = document ? cli_print_json(document) : EXIT_STATUS_FAILED;
		json_decref(document);
		return code;
	}
	printf("%s %s %s\n", reply.lease, reply.name, reply.address);
	return EXIT_STATUS_OK;
}

int cmd_release(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host release", "LEASE",
			"Ends a lease. The VM is destroyed and put back to its clean state.", NULL, 0, 1, 1};
	struct keeper_request r;
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_RELEASE);
	if (str_copy(r.lease, argv[first]) < 0) {
		(void)error_set(&e, EINVAL, "'%.64s' is not a lease id; 'boxery-host leases' lists them", argv[first]);
		return cli_fail(&e);
	}
	(void)str_copy(r.text, "released");
	return cli_do(&r, CLI_CALL_TIMEOUT_MS, NULL);
}

int cmd_leases(int argc, char **argv)
{
	bool json = false, all = false;
	const struct cli_option options[] = {
		{"all", OPTION_FLAG, &all, NULL, "every closed lease that is still kept, too", 0, 0},
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"leases\":[...]}", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host leases", "",
			"Lists open leases, and closed ones whose GitHub registration is not known to be gone yet.", options,
			ARRAY_SIZE(options), 0, 0};
	static const char *const titles[] = {"LEASE", "VM", "HOLDER", "OPEN", "RUNNER", "REGISTRATION", "JOB", "OUTCOME"};
	static const char *const keys[] = {"lease", "vm", "holder", "open", "runner_name", "registration", "job", "outcome"};
	CLEANUP(table_freep) struct table *table = table_new(ARRAY_SIZE(titles), titles);
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *lease;
	size_t i;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_LEASES);
	if (all)
		r.flags |= KEEPER_FLAG_ALL;
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	if (json) {
		code = cli_print_json(document);
	} else {
		json_array_foreach(json_object_get(document, "leases"), i, lease)
		{
			char scratch[ARRAY_SIZE(keys)][128];
			const char *cells[ARRAY_SIZE(keys)];

			for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
				cells[k] = json_text(lease, keys[k], scratch[k], sizeof(scratch[k]));
			table_add(table, cells);
		}
		table_print(table);
		code = EXIT_STATUS_OK;
	}
	json_decref(document);
	return code;
}
