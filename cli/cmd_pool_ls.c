/* pool ls. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <stdio.h>

void pool_rows_only(json_t *vms, const char *pool)
{
	for (size_t i = json_array_size(vms); i-- > 0;) {
		const char *in = json_string_value(json_object_get(json_array_get(vms, i), "pool"));

		if (!in || !in[0] || (pool && !str_equal(pool, in)))
			(void)json_array_remove(vms, i);
	}
}

/* What is to become of its image, or why that came to nothing. */
static void patch_text(const json_t *vm, char *dst, size_t size)
{
	char image[64], waits[ERROR_TEXT_MAX], failed[ERROR_TEXT_MAX];
	bool begun = json_is_true(json_object_get(vm, "patching"));

	(void)json_text(vm, "patch", image, sizeof(image));
	(void)json_text(vm, "patch_waits", waits, sizeof(waits));
	(void)json_text(vm, "patch_failed", failed, sizeof(failed));
	dst[0] = '\0';
	if (image[0])
		(void)str_format_n(dst, size, "%s %s%s%s", begun ? "being patched to" : "to be patched to", image, waits[0] ? ", waits: " : "",
				waits);
	else if (failed[0])
		(void)str_format_n(dst, size, "not patched: %s", failed);
}

void pool_print_table(const json_t *vms, size_t max_lines)
{
	static const char *const titles[] = {"NAME", "POOL", "STATE", "WAITS", "FOR", "LIFE", "FAILED", "HOLDER", "LEASE", "STEP",
			"REASON"};
	static const char *const keys[] = {"name", "pool", "state", "waits", "", "generation", "attempts", "holder", "lease", "step",
			"reason"};
	CLEANUP(table_freep) struct table *table = table_new(ARRAY_SIZE(titles), titles);
	json_t *vm;
	size_t i;

	table_pin(table, 0);
	table_pin(table, 2);
	table_states(table, 2);
	json_array_foreach(vms, i, vm)
	{
		char scratch[ARRAY_SIZE(keys)][ERROR_TEXT_MAX], age[CLI_DURATION_MAX], trouble[ERROR_TEXT_MAX],
				warm[ERROR_TEXT_MAX] = "", patch[2 * ERROR_TEXT_MAX + 64], why[5 * ERROR_TEXT_MAX + 192];
		bool cold_only = json_is_true(json_object_get(vm, "cold_only"));
		json_int_t age_ms = json_integer_value(json_object_get(vm, "age_ms"));
		const char *cells[ARRAY_SIZE(keys)];

		for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
			cells[k] = json_text(vm, keys[k], scratch[k], sizeof(scratch[k]));
		/* Of another boot of the host: how long is not known, only since when by the clock on the wall. */
		cells[4] = age_ms >= 0 ? cli_duration_text((uint64_t)age_ms, age) :
					 json_text(vm, "since", scratch[4], sizeof(scratch[4]));
		/* What went wrong last, and what is wrong right now. */
		(void)json_text(vm, "trouble", trouble, sizeof(trouble));
		if (cold_only)
			(void)json_text(vm, "warm_reason", warm, sizeof(warm));
		patch_text(vm, patch, sizeof(patch));
		(void)str_format(why, "%s%s%s%s%s%s%s%s", scratch[10], scratch[10][0] && trouble[0] ? "; now " : "", trouble,
				cold_only && (scratch[10][0] || trouble[0]) ? "; " : "",
				cold_only ? "starts cold only, warm starts failed: " : "", warm,
				patch[0] && (scratch[10][0] || trouble[0] || cold_only) ? "; " : "", patch);
		cells[10] = why;
		table_add(table, cells);
	}
	table_print_rows(table, max_lines);
}

int cmd_pool_ls(int argc, char **argv)
{
	bool json = false, watch = false;
	const char *pool = NULL;
	const struct cli_option options[] = {
		{"pool", OPTION_TEXT, &pool, "POOL", "only this pool", 0, 0},
		{"watch", OPTION_FLAG, &watch, NULL, "keep it on the screen; without a terminal, a line per change", 0, 0},
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"vms\":[...]}", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool ls", "",
			"Lists the VMs of the pools: state, for how long, failed attempts, and where and why the last failure was.",
			options, ARRAY_SIZE(options), 0, 0};
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *vms;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if (watch && json)
		(void)error_set(&e, EINVAL, "--watch and --json exclude each other; without a terminal --watch prints plain lines");
	if (e.code || (pool && name_check(pool, "pool name", &e) < 0))
		return cli_fail(&e);
	if (watch)
		return pool_watch(pool);
	keeper_request_init(&r, KEEPER_LIST);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	vms = json_object_get(document, "vms");
	pool_rows_only(vms, pool);
	code = EXIT_STATUS_OK;
	if (pool && json_array_size(vms) == 0) {
		(void)error_set(&e, ENOENT, "pool %s has no VM; 'boxery-host pool ls' lists those of all pools", pool);
		code = cli_fail(&e);
	} else if (json) {
		code = cli_print_json(document);
	} else {
		pool_print_table(vms, SIZE_MAX);
	}
	json_decref(document);
	return code;
}
