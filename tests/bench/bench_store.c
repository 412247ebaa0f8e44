/*
 * What one committed change of a VM's state costs the keeper, the one thing in it that blocks. Lives of one
 * VM among a hundred, on the file system of the argument (default: the folder for temporary files, which may
 * be memory).
 */
#include "base/cleanup.h"
#include "pool/store.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VMS 100
#define LIVES 150

static uint64_t now_ns(void)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void report(const char *what, uint64_t *ns, size_t n)
{
	qsort(ns, n, sizeof(*ns), compare);
	const uint64_t median = ns[n / 2], p95 = ns[n * 95 / 100], max = ns[n - 1];
	printf("%-24s %6zu  median %8.1f us  p95 %8.1f us  max %8.1f us\n", what, n, (double)median / 1e3,
		(double)p95 / 1e3, (double)max / 1e3);
}

static int check(int r, const struct error *e)
{
	if (r < 0)
		(void)fprintf(stderr, "%s\n", e->text);
	return r;
}

static int fill(struct store *s, struct error *e)
{
	static const enum vm_happening way[] = {HAPPENING_MAINTAINED, HAPPENING_RESET_DONE};
	const struct store_detail d = {.pool = "default"};
	int r = 0;

	for (unsigned i = 0; r >= 0 && i < VMS; i++) {
		struct vm_row v = {.image = "debian", .state = STATE_PLAIN};
		(void)snprintf(v.name, sizeof(v.name), "vm%u", i);
		r = store_vm_insert(s, &v, e);
		if (r >= 0)
			r = store_apply(s, v.name, 0, HAPPENING_ADD, &d, NULL, NULL, e);
		for (size_t j = 0; r >= 0 && j < ARRAY_SIZE(way); j++)
			r = store_apply(s, v.name, 0, way[j], NULL, NULL, NULL, e);
	}
	return r;
}

static int measure(struct store *s, struct error *e)
{
	static const enum vm_happening life[] = {HAPPENING_START, HAPPENING_STARTED, HAPPENING_LEASE,
		HAPPENING_DELIVER, HAPPENING_JOB_SEEN, HAPPENING_STOPPED, HAPPENING_RESET_DONE};
	static uint64_t apply[LIVES * ARRAY_SIZE(life)], event[LIVES];
	const struct store_detail d = {
		.holder = "bench", .scope = "octo/box", .ttl_ms = 3600000, .reason = "bench"};
	size_t n = 0;

	for (size_t i = 0; i < LIVES; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "vm%zu", i % VMS);
		for (size_t j = 0; j < ARRAY_SIZE(life); j++) {
			struct vm_row row;
			uint64_t start = now_ns();
			int r = store_apply(s, name, 0, life[j], &d, NULL, &row, e);
			apply[n++] = now_ns() - start;
			if (r < 0)
				return r;
		}
		uint64_t start = now_ns();
		int r = store_event(s, name, NULL, 1, "agent", "up", 1000, e);
		event[i] = now_ns() - start;
		if (r < 0)
			return r;
	}
	report("state change, committed", apply, n);
	report("event, committed", event, LIVES);
	return 0;
}

static int run(const char *folder, struct error *e)
{
	CLEANUP(store_freep) struct store *s = NULL;
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/boxery.db", folder);
	int r = store_open(path, &s, e);
	if (r == 0)
		r = fill(s, e);
	if (r >= 0)
		r = measure(s, e);
	s = store_free(s);
	if (r < 0)
		return r;
	uint64_t start = now_ns();
	r = store_open(path, &s, e);
	if (r == 0)
		printf("open, check, copy         %d VMs  %8.1f us\n", VMS, (double)(now_ns() - start) / 1e3);
	return r;
}

int main(int argc, char **argv)
{
	static const char *const files[] = {"boxery.db", "boxery.db-wal", "boxery.db.last-good"};
	const char *base = argc > 1 ? argv[1] : getenv("TMPDIR");
	char folder[256], path[300];
	struct error e = ERROR_INIT;

	if (snprintf(folder, sizeof(folder), "%s/boxery-bench-XXXXXX", base ? base : "/tmp") >=
			(int)sizeof(folder) ||
		!mkdtemp(folder)) {
		perror(folder);
		return 1;
	}
	int r = check(run(folder, &e), &e);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
		(void)unlink(path);
	}
	(void)rmdir(folder);
	return r < 0;
}
