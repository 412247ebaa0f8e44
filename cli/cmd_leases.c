/* Leases that are there: release, renew, list. */
#include "base/str.h"
#include "cli/lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RENEW_SLACK_MS 2000

int lease_set_id(struct keeper_request *r, const char *id, struct error *e)
{
	char shown[2 * LEASE_ID_MAX];

	if (strlen(id) == LEASE_ID_MAX - 1 && strspn(id, "0123456789abcdef") == LEASE_ID_MAX - 1)
		return str_copy(r->lease, id);
	str_show_n(shown, sizeof(shown), id, strlen(id));
	return error_set(e, EINVAL, "'%s' is not a lease id (32 hex digits); 'boxery-host lease ls' lists them", shown);
}

/* Sends it; what the keeper says to an id that it does not know gets the way out. */
static int about_lease(struct keeper_request *r)
{
	struct error e = ERROR_INIT;

	if (cli_call(r, CLI_CALL_TIMEOUT_MS, NULL, NULL, &e) == 0)
		return EXIT_STATUS_OK;
	if (e.code == ENOENT && !strstr(e.text, "lease ls"))
		(void)error_set(&e, ENOENT, "%s; 'boxery-host lease ls' lists those there are", e.text);
	return cli_fail(&e);
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
	if (lease_set_id(&r, argv[first], &e) < 0)
		return cli_fail(&e);
	(void)str_copy(r.text, "released");
	return about_lease(&r);
}

/* When it ends now: without --force a renewal never takes time away, and the person shall see which it was. */
static int print_end(const char *id, uint64_t ttl_ms)
{
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *lease;
	char left[CLI_DURATION_MAX];
	size_t i;

	keeper_request_init(&r, KEEPER_LEASES);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	json_array_foreach(json_object_get(document, "leases"), i, lease)
	{
		const char *other = json_string_value(json_object_get(lease, "lease"));
		uint64_t ms = (uint64_t)json_integer_value(json_object_get(lease, "expires_in_ms"));

		if (other && str_equal(other, id))
			printf("ends in %s%s\n", cli_duration_text(ms, left),
					ms > ttl_ms + RENEW_SLACK_MS ? " as before; --force makes it less" : "");
	}
	json_decref(document);
	return EXIT_STATUS_OK;
}

int cmd_lease_renew(int argc, char **argv)
{
	uint64_t ttl = 0;
	bool force = false;
	const struct cli_option options[] = {
		{"ttl", OPTION_DURATION, &ttl, "TIME", "the lease ends so long from now (at most 7d)", CLI_TTL_MS_MIN,
				KEEPER_TTL_MAX_MS},
		{"force", OPTION_FLAG, &force, NULL, "also when that is less than what is left", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host lease renew", "LEASE",
			"Gives a lease more time, and prints when it ends. One that has ended cannot be renewed.", options, ARRAY_SIZE(options), 1, 1};
	struct keeper_request r;
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_RENEW);
	if (ttl == 0)
		(void)error_set(&e, EINVAL, "boxery-host lease renew: needs --ttl, for example --ttl 2h");
	if (e.code || lease_set_id(&r, argv[first], &e) < 0)
		return cli_fail(&e);
	r.ttl_ms = ttl;
	r.flags = force ? KEEPER_FLAG_FORCE : 0;
	code = about_lease(&r);
	return code == EXIT_STATUS_OK ? print_end(r.lease, ttl) : code;
}

static void print_leases(const json_t *leases)
{
	static const char *const titles[] = {"LEASE", "VM", "HOLDER", "STATE", "LEFT", "REGISTRATION", "JOB", "OUTCOME"};
	CLEANUP(table_freep) struct table *table = table_new(ARRAY_SIZE(titles), titles);
	json_t *lease;
	size_t i;

	table_pin(table, 0);
	table_pin(table, 1);
	json_array_foreach(leases, i, lease)
	{
		char id[LEASE_ID_MAX + 8], vm[VM_NAME_MAX], holder[64], state[32], left[CLI_DURATION_MAX] = "", known[32],
				job[128], outcome[128];
		bool open = json_is_true(json_object_get(lease, "open"));
		const char *const cells[] = {json_text(lease, "lease", id, sizeof(id)), json_text(lease, "vm", vm, sizeof(vm)),
				json_text(lease, "holder", holder, sizeof(holder)),
				open ? json_text(lease, "state", state, sizeof(state)) : "closed", left,
				json_text(lease, "registration", known, sizeof(known)),
				json_text(lease, "job", job, sizeof(job)), json_text(lease, "outcome", outcome, sizeof(outcome))};

		if (open)
			(void)cli_duration_text((uint64_t)json_integer_value(json_object_get(lease, "expires_in_ms")), left);
		table_add(table, cells);
	}
	table_print(table);
}

static int list(int argc, char **argv, const char *command)
{
	bool json = false, all = false;
	const char *holder = "";
	const struct cli_option options[] = {
		{"all", OPTION_FLAG, &all, NULL, "every closed lease that is still kept, too", 0, 0},
		{"as", OPTION_TEXT, &holder, "HOLDER", "only this holder's", 0, 0},
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"leases\":[...]}", 0, 0},
	};
	const struct cli_usage usage = {command, "",
			"Lists open leases, and closed ones whose GitHub registration is not known to be gone yet.", options,
			ARRAY_SIZE(options), 0, 0};
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL;
	json_int_t left_off;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_LEASES);
	if ((holder[0] && name_check(holder, "--as", &e) < 0))
		return cli_fail(&e);
	(void)str_copy(r.holder, holder);
	if (all)
		r.flags |= KEEPER_FLAG_ALL;
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	code = EXIT_STATUS_OK;
	if (json)
		code = cli_print_json(document);
	else
		print_leases(json_object_get(document, "leases"));
	left_off = json_integer_value(json_object_get(document, "left_off"));
	if (!json && left_off > 0)
		fprintf(stderr, "%" JSON_INTEGER_FORMAT " older closed %s not listed.\n", left_off, left_off == 1 ? "lease is" : "leases are");
	json_decref(document);
	return code;
}

int cmd_leases(int argc, char **argv)
{
	return list(argc, argv, "boxery-host leases");
}

int cmd_lease_ls(int argc, char **argv)
{
	return list(argc, argv, "boxery-host lease ls");
}
