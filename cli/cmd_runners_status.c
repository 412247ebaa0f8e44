/* runners status, explain, pause, drain, resume, reload: what the running service does, and telling it to do otherwise. */
#include "base/str.h"
#include "cli/host.h"
#include "linux/clock.h"
#include "manager/proto.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WATCH_MS 2000
#define DRAIN_POLL_MS 2000
#define SCREEN_CLEAR "\x1b[H\x1b[J"

static json_int_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *age(const json_t *object, const char *key, char dst[static CLI_DURATION_MAX])
{
	json_int_t ms = number(object, key);

	return cli_duration_text(ms > 0 ? (uint64_t)ms : 0, dst);
}

static void print_budget(const json_t *status)
{
	const json_t *b = json_object_get(status, "budget");
	char reset[CLI_DURATION_MAX], expires[40];

	printf("GitHub: %" JSON_INTEGER_FORMAT " calls in the last hour, %" JSON_INTEGER_FORMAT " answers unchanged",
			number(b, "calls_last_hour"), number(b, "calls_unchanged"));
	if (number(b, "registrations"))
		printf(", %.1f calls a job", (double)number(b, "calls") / (double)number(b, "registrations"));
	if (number(b, "limit"))
		printf("; %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " left, whole again in %s", number(b, "remaining"),
				number(b, "limit"), age(b, "reset_in_ms", reset));
	printf("\n");
	if (number(b, "limited_for_ms"))
		printf("Not asked for another %s: %s\n", age(b, "limited_for_ms", reset),
				json_text(b, "limited_because", (char[ERROR_TEXT_MAX]){0}, ERROR_TEXT_MAX));
	if (number(b, "short_by_s"))
		printf("At this pace the rate limit is reached %" JSON_INTEGER_FORMAT " s before it is whole again\n",
				number(b, "short_by_s"));
	if (json_text(b, "credential_expires", expires, sizeof(expires))[0])
		printf("The credential ends at %s\n", expires);
}

/* Only what an admin has to do something about. */
static void print_versions(const json_t *status)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(status, "versions"), i, one)
	{
		char image[VM_NAME_MAX], version[64], until[40], state[32];

		(void)json_text(one, "state", state, sizeof(state));
		if (str_equal(state, "ends soon") || str_equal(state, "gets no jobs"))
			printf("actions/runner %s in image %s %s: GitHub takes it until %s\n",
					json_text(one, "version", version, sizeof(version)),
					json_text(one, "image", image, sizeof(image)), state,
					json_text(one, "until", until, sizeof(until)));
	}
}

static void print_entries(const json_t *status)
{
	static const char *const titles[] = {"SCOPE", "STATE", "SINCE", "QUEUED", "LEASES", "MAX", "LAST", "NEXT"};
	CLEANUP(table_freep) struct table *t = table_new(ARRAY_SIZE(titles), titles);
	const json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(status, "entries"), i, entry)
	{
		char scope[SCOPE_MAX], state[64], pause[24], since[CLI_DURATION_MAX], queued[24], leases[24], max[24], last[64],
				next[160], shown[96];
		const char *paused = json_text(entry, "pause", pause, sizeof(pause));
		const char *cells[] = {json_text(entry, "scope", scope, sizeof(scope)), shown, age(entry, "since_ms", since),
				json_text(entry, "queued", queued, sizeof(queued)), json_text(entry, "leases", leases, sizeof(leases)),
				json_text(entry, "max", max, sizeof(max)), json_text(entry, "last_outcome", last, sizeof(last)),
				json_text(entry, "next", next, sizeof(next))};

		(void)str_format(shown, "%s%s%s", json_text(entry, "state", state, sizeof(state)), paused[0] ? ", " : "", paused);
		table_add(t, cells);
	}
	table_pin(t, 0);
	table_print(t);
	json_array_foreach(json_object_get(status, "entries"), i, entry)
	{
		char scope[SCOPE_MAX], why[ERROR_TEXT_MAX];

		if (json_text(entry, "why", why, sizeof(why))[0])
			printf("%s: %s\n", json_text(entry, "scope", scope, sizeof(scope)), why);
	}
}

static void print_leases(const json_t *status)
{
	static const char *const titles[] = {"LEASE", "VM", "SCOPE", "STATE", "SINCE", "JOB", "WAITS FOR"};
	const json_t *list = json_object_get(status, "leases"), *lease;
	CLEANUP(table_freep) struct table *t = NULL;
	size_t i;

	if (json_array_size(list) == 0)
		return;
	t = table_new(ARRAY_SIZE(titles), titles);
	json_array_foreach(list, i, lease)
	{
		char id[LEASE_ID_MAX], vm[VM_NAME_MAX], scope[SCOPE_MAX], state[32], since[CLI_DURATION_MAX], job[400], next[80];
		const char *cells[] = {json_text(lease, "lease", id, sizeof(id)), json_text(lease, "vm", vm, sizeof(vm)),
				json_text(lease, "scope", scope, sizeof(scope)), json_text(lease, "state", state, sizeof(state)),
				age(lease, "since_ms", since), json_text(lease, "job", job, sizeof(job)),
				json_text(lease, "next", next, sizeof(next))};

		table_add(t, cells);
	}
	printf("\n");
	table_pin(t, 0);
	table_print(t);
}

static int print_status(bool json, struct error *e)
{
	json_t *status = NULL;
	int r = cli_runners_call(CONTROL_STATUS, NULL, &status, e);

	if (r < 0)
		return r;
	if (json) {
		r = cli_print_json(status);
		json_decref(status);
		return r == EXIT_STATUS_OK ? 0 : error_set(e, EIO, "the status could not be printed");
	}
	print_budget(status);
	print_versions(status);
	if (!json_is_true(json_object_get(status, "keeper")))
		printf("The keeper is not there: no VM can be leased\n");
	print_entries(status);
	print_leases(status);
	json_decref(status);
	return 0;
}

/* Again and again until a signal. */
static int watch_status(bool json, struct error *e)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	bool terminal = isatty(STDOUT_FILENO);
	CLEANUP_FD int fd = -1;
	int r = cli_signals(signals, ARRAY_SIZE(signals), &fd, e);

	while (r == 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		if (terminal)
			printf(SCREEN_CLEAR);
		r = print_status(json, e);
		if (r < 0 || fflush(stdout) != 0)
			break;
		if (poll(&p, 1, WATCH_MS) > 0)
			return 0;
	}
	return r;
}

int cmd_runners_status(int argc, char **argv)
{
	bool json = false, watch = false;
	const struct cli_option options[] = {
		{"json", OPTION_FLAG, &json, NULL, "machine-readable", 0, 0},
		{"watch", OPTION_FLAG, &watch, NULL, "again every 2 s, until Ctrl-C", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host runners status", "",
			"Shows what the running service does: entries, leases, what is waited for, what asking GitHub costs.", options,
			ARRAY_SIZE(options), 0, 0};
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	code = watch ? watch_status(json, &e) : print_status(json, &e);
	return code < 0 ? cli_fail(&e) : EXIT_STATUS_OK;
}

int cmd_runners_explain(int argc, char **argv)
{
	bool json = false;
	const struct cli_option options[] = {{"json", OPTION_FLAG, &json, NULL, "machine-readable", 0, 0}};
	const struct cli_usage usage = {"boxery-host runners explain", "",
			"Lists queued jobs that no entry of runners.yaml is for, and which label is off.", options, ARRAY_SIZE(options), 0,
			0};
	json_t *document = NULL, *job;
	struct error e = ERROR_INIT;
	int first, code;
	size_t i;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if (cli_runners_call(CONTROL_EXPLAIN, NULL, &document, &e) < 0)
		return cli_fail(&e);
	if (json) {
		code = cli_print_json(document);
		json_decref(document);
		return code;
	}
	if (json_array_size(json_object_get(document, "jobs")) == 0)
		printf("every queued job that GitHub lists fits an entry of runners.yaml\n");
	json_array_foreach(json_object_get(document, "jobs"), i, job)
	{
		char scope[SCOPE_MAX], name[400], label[300], meant[80];
		bool near = json_text(job, "meant", meant, sizeof(meant))[0] != '\0';

		printf("%s: job \"%s\": no entry has the label \"%s\"%s%s%s", json_text(job, "scope", scope, sizeof(scope)),
				json_text(job, "job", name, sizeof(name)), json_text(job, "label", label, sizeof(label)),
				near ? "; was \"" : "", near ? meant : "", near ? "\" meant?" : "");
		if (number(job, "labels_off") > 1)
			printf(" (and %" JSON_INTEGER_FORMAT " more)", number(job, "labels_off") - 1);
		printf("\n");
	}
	json_decref(document);
	return EXIT_STATUS_OK;
}

/* The parse, the call, and a word. */
static int tell(const struct cli_usage *usage, int type, int argc, char **argv, const char *done)
{
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if (cli_runners_call(type, first < argc ? argv[first] : "", NULL, &e) < 0)
		return cli_fail(&e);
	printf("%s\n", done);
	return EXIT_STATUS_OK;
}

int cmd_runners_pause(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host runners pause", "[SCOPE]",
			"No new leases, for everything or one entry (OWNER/REPO or ORG). Registered runners may still take a job.\n"
			"Kept over restarts until 'runners resume'.",
			NULL, 0, 0, 1};

	return tell(&usage, CONTROL_PAUSE, argc, argv, "paused");
}

int cmd_runners_resume(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host runners resume", "[SCOPE]",
			"Ends a pause or a drain, and starts an entry again that has stopped by itself.", NULL, 0, 0, 1};

	return tell(&usage, CONTROL_RESUME, argc, argv, "resumed");
}

int cmd_runners_reload(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host runners reload", "",
			"Reads runners.yaml again, as SIGHUP does. When it is wrong, the old configuration stays.", NULL, 0, 0, 0};

	return tell(&usage, CONTROL_RELOAD, argc, argv, "read again");
}

/* Leases of the scope (NULL: all) that still have a VM. */
static int open_leases(const char *scope, size_t *ret, struct error *e)
{
	static const char *const closing[] = {"asking", "naming", "spent", "looking", "clearing", "forgetting", "paused", "done"};
	json_t *status = NULL, *lease;
	size_t i, n = 0;
	int r = cli_runners_call(CONTROL_STATUS, NULL, &status, e);

	if (r < 0)
		return r;
	json_array_foreach(json_object_get(status, "leases"), i, lease)
	{
		const char *state = json_string_value(json_object_get(lease, "state"));
		bool over = !state || (scope && !str_equal(json_string_value(json_object_get(lease, "scope")), scope));

		for (size_t c = 0; c < ARRAY_SIZE(closing) && !over; c++)
			over = str_equal(state, closing[c]);
		n += !over;
	}
	json_decref(status);
	*ret = n;
	return 0;
}

static int wait_drained(const char *scope, uint64_t timeout_ms, struct error *e)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	uint64_t end = clock_boot_us() / 1000 + timeout_ms;
	size_t left = 0, told = SIZE_MAX;
	CLEANUP_FD int fd = -1;
	int r = cli_signals(signals, ARRAY_SIZE(signals), &fd, e);

	while (r == 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		r = open_leases(scope, &left, e);
		if (r < 0 || left == 0)
			return r;
		if (left != told)
			fprintf(stderr, "%zu %s to wait for\n", left, left == 1 ? "lease" : "leases");
		told = left;
		if (timeout_ms && clock_boot_us() / 1000 >= end)
			return error_set(e, ETIMEDOUT, "%zu leases still run", left);
		if (poll(&p, 1, DRAIN_POLL_MS) > 0)
			return error_set(e, ECANCELED, "interrupted; it goes on draining");
	}
	return r;
}

int cmd_runners_drain(int argc, char **argv)
{
	bool wait = false;
	uint64_t timeout = 0;
	const struct cli_option options[] = {
		{"wait", OPTION_FLAG, &wait, NULL, "return when no lease has a VM any more", 0, 0},
		{"timeout", OPTION_DURATION, &timeout, "TIME", "with --wait: give up after this (default: never)", 1000,
				KEEPER_TTL_MAX_MS},
	};
	const struct cli_usage usage = {"boxery-host runners drain", "[SCOPE]",
			"No new leases, and runners without a job are taken back; running jobs are left to end.\n"
			"Kept over restarts until 'runners resume'.",
			options, ARRAY_SIZE(options), 0, 1};
	struct error e = ERROR_INIT;
	const char *scope;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	scope = first < argc ? argv[first] : NULL;
	if (cli_runners_call(CONTROL_DRAIN, scope, NULL, &e) < 0 || (wait && wait_drained(scope, timeout, &e) < 0))
		return cli_fail(&e);
	printf("%s\n", wait ? "drained" : "draining");
	return EXIT_STATUS_OK;
}
