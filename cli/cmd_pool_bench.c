/*
 * pool bench: leases a VM and gives it back, again and again, and shows from the keeper's timelines where the time goes.
 *
 * It is a client like any other: the lease is bound to our connection, so whatever ends this process ends it. Somebody may
 * want a VM meanwhile, so the last one that is free is not taken without --yes; that is looked at before each round.
 */
#include "base/str.h"
#include "cli/bench_stages.h"
#include "cli/host.h"
#include "linux/clock.h"
#include "pool/state.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#define ROUNDS_DEFAULT 10
#define ROUNDS_MAX 10000
#define BENCH_HOLDER "bench"
#define READY_TIMEOUT_MS (20ull * 60 * 1000) /* three starts of a slow guest */

struct bench {
	struct hostconf conf;
	const char *pool, *name; /* name: NULL, any of the pool */
	bool take_last;
	int signals;
	json_t *samples;
	uint64_t good, failed;
	char last_failure[ERROR_TEXT_MAX];
};

/* What the argument names: a VM of a pool, or a pool. Counts what is free in it. */
static int look(struct bench *b, const char *given, char pool[static VM_NAME_MAX], struct error *e)
{
	json_t *document = NULL, *vm;
	struct keeper_request r;
	size_t i, vms = 0, ready = 0;
	bool is_vm = false;

	keeper_request_init(&r, KEEPER_LIST);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, e) < 0)
		return -e->code;
	(void)str_copy_n(pool, VM_NAME_MAX, given);
	json_array_foreach(json_object_get(document, "vms"), i, vm)
	{
		const char *of = json_string_value(json_object_get(vm, "pool"));
		const char *name = json_string_value(json_object_get(vm, "name"));

		/* A name wins over a pool, as with a lease. */
		if (name && of && of[0] && str_equal(name, given)) {
			is_vm = true;
			(void)str_copy_n(pool, VM_NAME_MAX, of);
		}
	}
	json_array_foreach(json_object_get(document, "vms"), i, vm)
	{
		const char *of = json_string_value(json_object_get(vm, "pool"));
		const char *state = json_string_value(json_object_get(vm, "state"));

		if (!of || !str_equal(of, pool))
			continue;
		vms++;
		ready += state && str_equal(state, state_to_string(STATE_READY));
	}
	json_decref(document);
	b->name = is_vm ? given : NULL;
	b->pool = pool;
	if (vms == 0)
		return error_set(e, ENOENT, "there is neither a pool '%s' with VMs nor a VM of that name in one; "
				"'boxery-host pool ls' lists them", given);
	if (ready < 2 && !b->take_last)
		return error_set(e, EBUSY, "too few VMs of pool '%s' are free (READY: %zu): each round takes one, and whoever wants one "
				"meanwhile waits; --yes does it nevertheless", pool, ready);
	return 0;
}

/* When the VM is READY again. Another end is not waited for. */
static int await_ready(struct bench *b, struct keeper_client *events, const struct keeper_reply *lease, struct error *e)
{
	uint64_t deadline_us = clock_boot_us() + READY_TIMEOUT_MS * 1000;
	struct keeper_answer a;
	int code;

	for (;;) {
		struct pollfd p[] = {{.fd = keeper_client_fd(events), .events = POLLIN}, {.fd = b->signals, .events = POLLIN}};

		while ((code = keeper_receive(events, &a, e)) == 1) {
			free(a.document);
			if (a.type != KEEPER_EVENT || !str_equal(a.event.name, lease->name))
				continue;
			if (a.event.to == STATE_READY)
				return 0;
			if (a.event.to == STATE_BROKEN || a.event.to == STATE_KEPT)
				return error_set(e, EIO, "%s is %s: %s", lease->name, state_to_string((enum vm_state)a.event.to),
						a.event.text);
		}
		if (code != -EAGAIN)
			return code;
		error_clear(e);
		if (clock_boot_us() >= deadline_us)
			return error_set(e, ETIMEDOUT, "%s is not READY again after %llu minutes", lease->name,
					READY_TIMEOUT_MS / 60000);
		if (poll(p, ARRAY_SIZE(p), cli_poll_ms(deadline_us)) > 0 && p[1].revents)
			return error_set(e, ECANCELED, "interrupted");
	}
}

/* Leases, gives back, waits. */
static int life(struct bench *b, struct keeper_reply *lease, uint64_t *ret_us, struct error *e)
{
	CLEANUP(keeper_client_freep) struct keeper_client *holder = NULL, *events = NULL;
	struct keeper_request r;
	uint64_t asked_us;
	bool late;
	int code;

	code = keeper_connect(&b->conf, true, &holder, e);
	if (code == 0)
		code = cli_subscribe(&b->conf, false, &events, e);
	if (code < 0)
		return code;
	keeper_request_init(&r, KEEPER_LEASE);
	(void)str_copy(r.holder, BENCH_HOLDER);
	(void)str_copy(r.pool, b->pool);
	(void)str_copy(r.name, b->name ? b->name : "");
	r.flags = KEEPER_FLAG_BIND;
	r.wait_ms = READY_TIMEOUT_MS;
	asked_us = clock_boot_us();
	code = cli_wait_call(holder, &r, b->signals, r.wait_ms + CLI_CALL_TIMEOUT_MS, lease, &late, e);
	if (code < 0)
		return code;
	*ret_us = clock_boot_us() - asked_us;
	keeper_request_init(&r, KEEPER_RELEASE);
	(void)str_copy(r.lease, lease->lease);
	(void)str_copy(r.text, "bench");
	code = keeper_call(holder, &r, -1, CLI_CALL_TIMEOUT_MS, NULL, NULL, NULL, NULL, e);
	return code < 0 && code != -EALREADY ? code : await_ready(b, events, lease, e);
}

static int round_once(struct bench *b, struct error *e)
{
	struct error went = ERROR_INIT;
	struct keeper_reply lease;
	struct keeper_request r;
	json_t *document = NULL;
	uint64_t lease_us = 0;
	int code = life(b, &lease, &lease_us, e);

	if (code < 0)
		return code;
	keeper_request_init(&r, KEEPER_HISTORY);
	(void)str_copy(r.lease, lease.lease);
	code = cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, e);
	if (code < 0)
		return code;
	code = bench_stages_add(b->samples, json_object_get(document, "events"), lease_us, &went);
	json_decref(document);
	if (code == 0) {
		b->good++;
	} else if (code == -EAGAIN) {
		b->failed++;
		(void)str_copy(b->last_failure, went.text);
	} else {
		*e = went;
		return code;
	}
	return 0;
}

static void print_table(const json_t *stages)
{
	static const char *const titles[] = {"PHASE", "STAGE", "ROUNDS", "MEDIAN MS", "P95 MS", "MIN MS", "MAX MS"};
	static const char *const times[] = {"median_us", "p95_us", "min_us", "max_us"};
	CLEANUP(table_freep) struct table *table = table_new(ARRAY_SIZE(titles), titles);
	json_t *row;
	size_t i;

	json_array_foreach(stages, i, row)
	{
		char phase[16], stage[48], rounds[24], ms[ARRAY_SIZE(times)][24];
		const char *cells[ARRAY_SIZE(titles)] = {json_text(row, "phase", phase, sizeof(phase)),
				json_text(row, "stage", stage, sizeof(stage)), json_text(row, "rounds", rounds, sizeof(rounds))};

		for (size_t k = 0; k < ARRAY_SIZE(times); k++) {
			(void)str_format(ms[k], "%.1f", (double)json_integer_value(json_object_get(row, times[k])) / 1e3);
			cells[3 + k] = ms[k];
		}
		table_add(table, cells);
	}
	table_print(table);
}

static int show(const struct bench *b, bool json, struct error *e)
{
	json_t *stages = bench_stages_summary(b->samples), *document;
	int status = EXIT_STATUS_OK;

	if (!stages)
		(void)error_set(e, ENOMEM, "no memory for the summary");
	if (e->code)
		return cli_fail(e);
	if (json) {
		document = json_pack("{s:s,s:s,s:I,s:I,s:O}", "pool", b->pool, "name", b->name ? b->name : "", "rounds",
				(json_int_t)b->good, "failed", (json_int_t)b->failed, "stages", stages);
		status = document ? cli_print_json(document) : EXIT_STATUS_FAILED;
		json_decref(document);
	} else if (b->good) {
		print_table(stages);
	}
	json_decref(stages);
	if (b->failed == 0)
		return status;
	(void)error_set(e, EIO, "%llu of %llu rounds went another way and are not counted, the last one: %s",
			(unsigned long long)b->failed, (unsigned long long)(b->good + b->failed), b->last_failure);
	return cli_fail(e);
}

int cmd_pool_bench(int argc, char **argv)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct bench b = {.signals = -1};
	uint64_t rounds = ROUNDS_DEFAULT;
	bool json = false;
	const struct cli_option options[] = {
		{"rounds", OPTION_NUMBER, &rounds, "N", "how often a VM is leased and given back (default 10)", 1, ROUNDS_MAX},
		{"yes", OPTION_FLAG, &b.take_last, NULL, "also when no other VM of the pool is free meanwhile", 0, 0},
		{"json", OPTION_FLAG, &json, NULL, "machine-readable", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool bench", "[POOL|NAME]",
			"Leases a VM of a pool (default \"default\"), or the VM NAME, and gives it back, round after round, and prints how long\n"
			"each stage took: of the lease, of the reset and of the start until the VM was READY again.",
			options, ARRAY_SIZE(options), 0, 1};
	char pool[VM_NAME_MAX];
	struct error e = ERROR_INIT;
	int first, code, status;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if ((argv[first] && name_check(argv[first], "pool or VM name", &e) < 0) || hostconf_load(&b.conf, &e) < 0 ||
			cli_signals(signals, ARRAY_SIZE(signals), &b.signals, &e) < 0)
		return cli_fail(&e);
	b.samples = json_object();
	for (uint64_t i = 0; e.code == 0 && i < rounds; i++)
		if (look(&b, argv[first] ? argv[first] : POOL_DEFAULT, pool, &e) == 0)
			(void)round_once(&b, &e);
	status = show(&b, json, &e);
	json_decref(b.samples);
	b.signals = fd_close(b.signals);
	return e.code == ECANCELED ? EXIT_STATUS_INTERRUPTED : status;
}
