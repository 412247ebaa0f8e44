/*
 * pool show: everything about one VM in one place: what the keeper's lists say, and the end of the guest's console.
 */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define LEASES_SHOWN 5
#define EVENTS_SHOWN 15

static json_t *ask(struct keeper_request *r, const char *key, struct error *e)
{
	json_t *document = NULL, *list;

	if (cli_call(r, CLI_CALL_TIMEOUT_MS, NULL, &document, e) < 0)
		return NULL;
	list = json_incref(json_object_get(document, key));
	json_decref(document);
	if (!json_is_array(list)) {
		(void)error_set(e, EPROTO, "the keeper's answer has no list of %s", key);
		json_decref(list);
		return NULL;
	}
	return list;
}

/* Keeps the rows whose key is the name, and of these the last max. */
static void keep_rows(json_t *list, const char *key, const char *name, size_t max)
{
	for (size_t i = json_array_size(list); i-- > 0;) {
		const char *value = json_string_value(json_object_get(json_array_get(list, i), key));

		if (!value || !str_equal(value, name))
			(void)json_array_remove(list, i);
	}
	while (json_array_size(list) > max)
		(void)json_array_remove(list, 0);
}

/* {"vm":{...},"leases":[...],"events":[...]} */
static json_t *gather(const char *name, struct error *e)
{
	json_t *vms = NULL, *leases = NULL, *events = NULL, *document = NULL;
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_LIST);
	vms = ask(&r, "vms", e);
	if (vms)
		keep_rows(vms, "name", name, 1);
	if (vms && json_array_size(vms) == 0)
		(void)error_set(e, ENOENT, "there is no VM '%s'; 'boxery-host ls' lists them", name);
	keeper_request_init(&r, KEEPER_LEASES);
	(void)str_copy(r.name, name);
	r.flags |= KEEPER_FLAG_ALL;
	if (!e->code)
		leases = ask(&r, "leases", e);
	keeper_request_init(&r, KEEPER_HISTORY);
	(void)str_copy(r.name, name);
	if (!e->code)
		events = ask(&r, "events", e);
	if (!e->code) {
		keep_rows(leases, "vm", name, LEASES_SHOWN);
		keep_rows(events, "vm", name, EVENTS_SHOWN);
		document = json_pack("{s:O,s:O,s:O}", "vm", json_array_get(vms, 0), "leases", leases, "events", events);
		if (!document)
			(void)error_set(e, ENOMEM, "no memory for a list");
	}
	json_decref(vms);
	json_decref(leases);
	json_decref(events);
	return document;
}

static void print_field(const char *title, const json_t *vm, const char *key, const char *nothing)
{
	char text[ERROR_TEXT_MAX];

	(void)json_text(vm, key, text, sizeof(text));
	if (text[0] || nothing)
		printf("%-10s %s\n", title, text[0] ? text : nothing);
}

static void print_warm_failures(const json_t *vm)
{
	json_int_t failures = json_integer_value(json_object_get(vm, "warm_failures"));
	bool cold_only = json_is_true(json_object_get(vm, "cold_only"));
	char reason[ERROR_TEXT_MAX];

	if (failures)
		printf("%-10s %s%" JSON_INTEGER_FORMAT " of its warm starts in a row %s failed, the last in step %s\n", "starts",
				cold_only ? "cold only: " : "warm; ", failures, failures == 1 ? "has" : "have",
				json_text(vm, "warm_reason", reason, sizeof(reason)));
}

static void print_patch(const json_t *vm)
{
	char image[64], text[ERROR_TEXT_MAX];

	(void)json_text(vm, "patch", image, sizeof(image));
	(void)json_text(vm, "patch_waits", text, sizeof(text));
	if (image[0] && json_is_true(json_object_get(vm, "patching")))
		printf("%-10s to %s, under way\n", "patch", image);
	else if (image[0])
		printf("%-10s to %s, waits%s%s\n", "patch", image, text[0] ? ": " : "", text);
	(void)json_text(vm, "patch_failed", text, sizeof(text));
	if (text[0])
		printf("%-10s not patched: %s\n", "patch", text);
}

static void print_vm(const json_t *vm)
{
	const char *state = json_string_value(json_object_get(vm, "state"));
	json_int_t attempts = json_integer_value(json_object_get(vm, "attempts"));
	json_int_t age = json_integer_value(json_object_get(vm, "age_ms")), kept;
	char text[64], since[32], duration[CLI_DURATION_MAX];
	const char *colour = state_colour(state ? state : "");

	kept = json_integer_value(json_object_get(vm, "kept_for_ms"));
	print_field("name", vm, "name", "");
	print_field("pool", vm, "pool", "none");
	printf("%-10s %s%s%s since %s%s%s\n", "state", colour, json_text(vm, "state", text, sizeof(text)),
			colour[0] ? COLOUR_END : "", json_text(vm, "since", since, sizeof(since)), age >= 0 ? ", for " : "",
			age >= 0 ? cli_duration_text((uint64_t)age, duration) : "");
	print_field("waits", vm, "waits", NULL);
	print_field("life", vm, "generation", "");
	print_field("under way", vm, "work", NULL);
	if (attempts)
		printf("%-10s %" JSON_INTEGER_FORMAT " in a row\n", "failures", attempts);
	print_warm_failures(vm);
	print_field("at step", vm, "step", NULL);
	print_field("reason", vm, "reason", NULL);
	print_field("trouble", vm, "trouble", NULL);
	print_field("evidence", vm, "evidence", state && str_equal(state, "BROKEN") ? "none was kept" : NULL);
	if (kept > 0)
		printf("%-10s %s\n", "kept for", cli_duration_text((uint64_t)kept, duration));
	print_field("lease", vm, "lease", NULL);
	print_field("holder", vm, "holder", NULL);
	print_field("address", vm, "address", NULL);
	print_field("host key", vm, "host_key", NULL);
	print_field("image", vm, "image", "");
	print_field("clean of", vm, "clean_of", NULL);
	print_patch(vm);
}

static void print_advice(const json_t *vm)
{
	const char *state = json_string_value(json_object_get(vm, "state"));
	const char *name = json_string_value(json_object_get(vm, "name"));

	if (!state || !name)
		return;
	if (str_equal(state, "BROKEN"))
		printf("\nTo look at it: boxery-host lease --broken %s\nTo try it again: boxery-host pool repair %s\n"
		       "To give it up: boxery-host pool rm --force %s\n", name, name, name);
	else if (json_is_true(json_object_get(vm, "cold_only")))
		printf("\nTo have it started warm again: boxery-host pool repair %s\n", name);
	if (str_equal(state, "KEPT"))
		printf("\nTo put it back to work: boxery-host pool repair %s\n", name);
}

static void print_tables(const json_t *document)
{
	static const char *const lease_titles[] = {"LEASE", "HOLDER", "OPENED", "CLOSED", "JOB", "OUTCOME", "ENDED BY"};
	static const char *const lease_keys[] = {"lease", "holder", "opened", "closed", "job", "outcome", "end_reason"};
	static const char *const event_titles[] = {"AT", "LIFE", "WHAT", "TEXT"};
	static const char *const event_keys[] = {"at", "generation", "kind", "text"};
	CLEANUP(table_freep) struct table *leases = table_new(ARRAY_SIZE(lease_titles), lease_titles);
	CLEANUP(table_freep) struct table *events = table_new(ARRAY_SIZE(event_titles), event_titles);

	table_pin(leases, 0);
	table_pin(events, 0);
	table_add_list(leases, json_object_get(document, "leases"), lease_keys);
	table_add_list(events, json_object_get(document, "events"), event_keys);
	if (json_array_size(json_object_get(document, "leases"))) {
		printf("\nLast leases\n");
		table_print(leases);
	}
	printf("\nLast events\n");
	table_print(events);
}

static void print_console(const json_t *lines, const char *path, const struct error *fault)
{
	json_t *line;
	size_t i;

	printf("\nConsole: the end of %s (the guest can write anything there)\n", path);
	if (fault->code)
		printf("  cannot be read: %s\n", fault->text);
	else if (json_array_size(lines) == 0)
		printf("  nothing\n");
	json_array_foreach(lines, i, line)
	{
		printf("  %s\n", json_string_value(line));
	}
}

int cmd_pool_show(int argc, char **argv)
{
	bool json = false;
	const struct cli_option options[] = {
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"vm\":{...},\"leases\":[...],...}", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool show", "NAME",
			"Shows everything about one VM: state, the step and the reason of its last failure, where evidence is kept, its\n"
			"last leases and events, and the end of its console.",
			options, ARRAY_SIZE(options), 1, 1};
	struct error e = ERROR_INIT, fault = ERROR_INIT;
	json_t *document, *console;
	struct hostconf conf;
	char path[400];
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if (name_check(argv[first], "VM name", &e) < 0 || hostconf_load(&conf, &e) < 0)
		return cli_fail(&e);
	document = gather(argv[first], &e);
	if (!document)
		return cli_fail(&e);
	(void)str_format(path, "%s/console/%s.log", conf.image_dir, argv[first]);
	console = cli_console(path, &fault);
	(void)json_object_set_new(document, "console", console);
	(void)json_object_set_new(document, "console_file", json_string(path));
	code = EXIT_STATUS_OK;
	if (json) {
		code = cli_print_json(document);
	} else {
		print_vm(json_object_get(document, "vm"));
		print_advice(json_object_get(document, "vm"));
		print_tables(document);
		print_console(console, path, &fault);
	}
	json_decref(document);
	return code;
}
