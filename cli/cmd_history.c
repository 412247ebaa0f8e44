/* The timeline of a VM or a lease: every event with the time since the first and, for a stage, how long it took. */
#include "base/str.h"
#include "cli/host.h"
#include "linux/clock.h"
#include "manager/proto.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const titles[] = {"AT", "+SECONDS", "VM", "LIFE", "WHAT", "TOOK MS", "TEXT"};

struct row {
	json_int_t boot_us; /* when it was, which for what GitHub told is before it was noted */
	size_t order;
	const json_t *event;
	const char *what, *at; /* NULL: as the event says */
};

/* A step of the job is noted when it is heard of, with GitHub's time: it is shown where it belongs. */
static void place(struct row *row)
{
	static const struct {
		const char *note, *what;
	} steps[] = {{NOTE_QUEUED, "queued"}, {NOTE_STARTED, "job started"}, {NOTE_COMPLETED, "job completed"}};
	const char *text = json_string_value(json_object_get(row->event, "text"));
	const char *kind = json_string_value(json_object_get(row->event, "kind"));
	uint64_t noted, was;

	row->boot_us = json_integer_value(json_object_get(row->event, "boot_us"));
	if (!text || !kind || !str_equal(kind, "note") ||
			clock_wall_parse(json_string_value(json_object_get(row->event, "at")), &noted) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		size_t len = strlen(steps[i].note);

		if (strncmp(text, steps[i].note, len) != 0 || clock_wall_parse(text + len, &was) < 0)
			continue;
		row->what = steps[i].what;
		row->at = text + len;
		row->boot_us -= ((json_int_t)noted - (json_int_t)was) * 1000000;
	}
}

static int by_time(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->boot_us != y->boot_us)
		return x->boot_us < y->boot_us ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

/* Seconds count from the first event of ours: what came before has a minus. */
static void print_rows(struct table *table, const json_t *events)
{
	size_t n = json_array_size(events);
	CLEANUP_FREE struct row *rows = calloc(n, sizeof(*rows));
	json_int_t begun;

	if (!rows)
		return;
	for (size_t i = 0; i < n; i++) {
		rows[i].order = i;
		rows[i].event = json_array_get(events, i);
		place(&rows[i]);
	}
	begun = json_integer_value(json_object_get(rows[0].event, "boot_us"));
	qsort(rows, n, sizeof(*rows), by_time);
	for (size_t i = 0; i < n; i++) {
		char at[32], vm[VM_NAME_MAX], life[24], kind[48], text[ERROR_TEXT_MAX], since[32], took[32] = "";
		const json_t *event = rows[i].event;
		json_int_t took_us = json_integer_value(json_object_get(event, "took_us"));
		const char *cells[ARRAY_SIZE(titles)] = {rows[i].at ? rows[i].at : json_text(event, "at", at, sizeof(at)), since,
				json_text(event, "vm", vm, sizeof(vm)), json_text(event, "generation", life, sizeof(life)),
				rows[i].what ? rows[i].what : json_text(event, "kind", kind, sizeof(kind)), took,
				rows[i].what ? "by GitHub's clock" : json_text(event, "text", text, sizeof(text))};

		(void)str_format(since, "%.3f", (double)(rows[i].boot_us - begun) / 1e6);
		if (took_us > 0)
			(void)str_format(took, "%.1f", (double)took_us / 1e3);
		table_add(table, cells);
	}
}

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
	CLEANUP(table_freep) struct table *table = table_new(ARRAY_SIZE(titles), titles);
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL;
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
	print_rows(table, json_object_get(document, "events"));
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
