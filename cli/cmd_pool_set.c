/* pool set: how a pool's VMs start and wait, what they may use, and how many are reserved. Without an option it prints what is set. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The wire's numbers of the words. */
static int parse_start(const char *text, uint32_t *ret)
{
	enum pool_start v;
	int r = pool_start_from_string(text, &v);

	if (r == 0)
		*ret = v;
	return r;
}

static int parse_standby(const char *text, uint32_t *ret)
{
	enum pool_standby v;
	int r = pool_standby_from_string(text, &v);

	if (r == 0)
		*ret = v;
	return r;
}

static const struct {
	const char *option; /* NULL: a reservation */
	const char *key;    /* in the document */
	const char *unit;
	size_t offset;
	bool size;
	uint64_t min, max;
	int (*word)(const char *text, uint32_t *ret); /* NULL: a number */
	const char *words;
} settings[] = {
	{"cpus", "cpus", "", offsetof(struct pool_settings, cpus), false, 1, 64},
	{"memory", "memory_mib", " MiB", offsetof(struct pool_settings, memory_mib), true, 128, 1024 * 1024},
	{"disk-rate", "disk_mib_per_s", " MiB/s", offsetof(struct pool_settings, disk_mib_per_s), false, 1, 1000000},
	{"disk-iops", "disk_iops", "/s", offsetof(struct pool_settings, disk_iops), false, 1, 100000000},
	{"net-rate", "net_kib_per_s", " KiB/s", offsetof(struct pool_settings, net_kib_per_s), false, 1, 100000000},
	{"start", "start", "", offsetof(struct pool_settings, start), .word = parse_start, .words = "'warm' or 'cold'"},
	{"standby", "standby", "", offsetof(struct pool_settings, standby), .word = parse_standby,
			.words = "'paused' or 'running'"},
	{NULL, "reserve_service", "", offsetof(struct pool_settings, reserve_service), false, 0, 240},
	{NULL, "reserve_local", "", offsetof(struct pool_settings, reserve_local), false, 0, 240},
};
#define SETTING_RESERVE_SERVICE 7
#define SETTING_RESERVE_LOCAL 8
_Static_assert(sizeof(settings) / sizeof(settings[0]) == sizeof(struct pool_settings) / sizeof(uint32_t),
		"a setting of a pool is missing here");

static int parse_setting(size_t i, const char *text, const char *what, struct pool_settings *s, struct error *e)
{
	uint32_t *to = (uint32_t *)((char *)s + settings[i].offset);
	uint64_t value = POOL_SETTING_NONE;
	int code = 0;

	if (settings[i].word && settings[i].word(text, to) < 0)
		return error_set(e, EINVAL, "%s '%.40s': write %s", what, text, settings[i].words);
	if (settings[i].word)
		return 0;
	if (!str_equal(text, "none"))
		code = settings[i].size ? parse_size_mib(text, what, settings[i].min, settings[i].max, &value, e) :
					  parse_u64(text, what, settings[i].min, settings[i].max, &value, e);
	if (code < 0)
		return error_set(e, EINVAL, "%s, or 'none'", e->text);
	/* 0 means "as it is" on the wire; as a reservation it is none. */
	*to = value ? (uint32_t)value : POOL_SETTING_NONE;
	return 0;
}

static int parse_reservation(const char *text, struct pool_settings *s, struct error *e)
{
	const char *number = strchr(text, '=');
	size_t n = number ? (size_t)(number - text) : 0;

	if (n == strlen(HOLDER_SERVICE) && strncmp(text, HOLDER_SERVICE, n) == 0)
		return parse_setting(SETTING_RESERVE_SERVICE, number + 1, "--reserve " HOLDER_SERVICE, s, e);
	if (n == strlen(HOLDER_ONCE) && strncmp(text, HOLDER_ONCE, n) == 0)
		return parse_setting(SETTING_RESERVE_LOCAL, number + 1, "--reserve " HOLDER_ONCE, s, e);
	return error_set(e, EINVAL, "--reserve '%.80s': write it as HOLDER=N, where HOLDER is " HOLDER_SERVICE
			" (the service) or " HOLDER_ONCE " ('runners once')", text);
}

static void print_pool(const json_t *pool)
{
	static const char *const counts[] = {"name", "vms", "ready", "leased", "broken"};
	char text[64];

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		printf("%-16s %s\n", counts[i], json_text(pool, counts[i], text, sizeof(text)));
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		bool none = !settings[i].word && json_integer_value(json_object_get(pool, settings[i].key)) == 0;

		printf("%-16s %s%s\n", settings[i].key, none ? "none" : json_text(pool, settings[i].key, text, sizeof(text)),
				none ? "" : settings[i].unit);
	}
}

/* The pool's row, or NULL with the sentence. */
static json_t *find_pool(json_t *document, const char *name, struct error *e)
{
	json_t *pool;
	size_t i;

	json_array_foreach(json_object_get(document, "pools"), i, pool)
	{
		const char *in = json_string_value(json_object_get(pool, "name"));

		if (in && str_equal(in, name))
			return pool;
	}
	(void)error_set(e, ENOENT, "pool %s has no VM; 'boxery-host pool add NAME --pool %s' adds one", name, name);
	return NULL;
}

/* A pool may be set up before its first VM; a misspelt one looks just like that. */
static int warn_empty(const char *name)
{
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *pool;

	keeper_request_init(&r, KEEPER_POOLS);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	pool = find_pool(document, name, &e);
	if (!pool || json_integer_value(json_object_get(pool, "vms")) == 0)
		fprintf(stderr, "Set; but pool %s has no VM yet: 'boxery-host pool add NAME --pool %s' adds one.\n", name, name);
	json_decref(document);
	return EXIT_STATUS_OK;
}

static int show(const char *name, bool json)
{
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *pool;
	int code = EXIT_STATUS_OK;

	keeper_request_init(&r, KEEPER_POOLS);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	pool = find_pool(document, name, &e);
	if (!pool)
		code = cli_fail(&e);
	else if (json)
		code = cli_print_json(pool);
	else
		print_pool(pool);
	json_decref(document);
	return code;
}

int cmd_pool_set(int argc, char **argv)
{
	const char *values[SETTING_RESERVE_SERVICE] = {NULL};
	struct option_list reserve = {0};
	bool json = false, any = false;
	const struct cli_option options[] = {
		{"cpus", OPTION_TEXT, &values[0], "N", "CPUs of each VM, instead of what 'new' said", 0, 0},
		{"memory", OPTION_TEXT, &values[1], "SIZE", "memory of each VM, instead of what 'new' said", 0, 0},
		{"disk-rate", OPTION_TEXT, &values[2], "N", "MiB per second of each VM's disk, reads and writes together", 0, 0},
		{"disk-iops", OPTION_TEXT, &values[3], "N", "operations per second of each VM's disk", 0, 0},
		{"net-rate", OPTION_TEXT, &values[4], "N", "KiB per second of each VM's network, each way", 0, 0},
		{"start", OPTION_TEXT, &values[5], "HOW", "warm: from a memory image (the default); cold: by booting", 0, 0},
		{"standby", OPTION_TEXT, &values[6], "HOW", "a warm VM waits paused (the default) or running", 0, 0},
		{"reserve", OPTION_LIST, &reserve, "HOLDER=N", "so many VMs only for github-runner or github-runner-local", 0, 0},
		{"json", OPTION_FLAG, &json, NULL, "machine-readable, when nothing is set", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool set", "POOL",
			"Sets how each VM of a pool starts and what it may use, from its next start on, and reservations. 'none' takes a\n"
			"limit away.\n"
			"Without an option: prints what is set.",
			options, ARRAY_SIZE(options), 1, 1};
	struct keeper_request r;
	struct error e = ERROR_INIT;
	char what[32];
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_POOL_SET);
	if (name_check(argv[first], "pool name", &e) < 0)
		return cli_fail(&e);
	(void)str_copy(r.pool, argv[first]);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		(void)str_format(what, "--%s", settings[i].option);
		any = any || values[i];
		if (values[i] && parse_setting(i, values[i], what, &r.settings, &e) < 0)
			return cli_fail(&e);
	}
	for (size_t i = 0; i < reserve.n; i++)
		if (parse_reservation(reserve.items[i], &r.settings, &e) < 0)
			return cli_fail(&e);
	if (!any && reserve.n == 0)
		return show(argv[first], json);
	code = cli_do(&r, CLI_CALL_TIMEOUT_MS, NULL);
	return code == EXIT_STATUS_OK ? warn_empty(argv[first]) : code;
}
