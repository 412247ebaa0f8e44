#include "cli/bench_stages.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "pool/state.h"

#include <errno.h>
#include <stdlib.h>

enum phase {
	PHASE_LEASE,
	PHASE_RESET,
	PHASE_START,
	PHASE_AGAIN,
	PHASE_COUNT
};
static const char *const phase_words[PHASE_COUNT] = {"lease", "reset", "start", "again"};

struct walk {
	enum phase phase;
	uint64_t stages_us[PHASE_COUNT]; /* the stages of boxery-vm together */
	uint64_t ends_us[PHASE_COUNT];   /* when the phase ended, in the keeper's time */
};

static uint64_t number(const json_t *object, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(object, key));

	return v > 0 ? (uint64_t)v : 0;
}

static const char *text(const json_t *object, const char *key)
{
	const char *v = json_string_value(json_object_get(object, key));

	return v ? v : "";
}

/* samples: {phase: {stage: [us, ...]}} */
static int sample(json_t *samples, enum phase phase, const char *stage, uint64_t us)
{
	json_t *of_phase = json_object_get(samples, phase_words[phase]), *of_stage;

	if (!of_phase) {
		of_phase = json_object();
		if (json_object_set_new(samples, phase_words[phase], of_phase) < 0)
			return -ENOMEM;
	}
	of_stage = json_object_get(of_phase, stage);
	if (!of_stage) {
		of_stage = json_array();
		if (json_object_set_new(of_phase, stage, of_stage) < 0)
			return -ENOMEM;
	}
	return json_array_append_new(of_stage, json_integer((json_int_t)us)) < 0 ? -ENOMEM : 0;
}

/* 1: the timeline is complete. */
static int transition(struct walk *w, enum vm_happening what, const json_t *event, struct error *e)
{
	if (what == HAPPENING_LEASE || what == HAPPENING_DELIVER || what == HAPPENING_START)
		return 0;
	if ((what == HAPPENING_RELEASE && w->phase == PHASE_LEASE) || (what == HAPPENING_RESET_DONE && w->phase == PHASE_RESET) ||
			(what == HAPPENING_STARTED && w->phase == PHASE_START)) {
		w->ends_us[w->phase++] = number(event, "boot_us");
		return what == HAPPENING_STARTED;
	}
	return error_set(e, EAGAIN, "%s: %s", text(event, "kind"), text(event, "text"));
}

static int walk(struct walk *w, json_t *samples, const json_t *events, struct error *e)
{
	const json_t *event;
	size_t i;
	int r = 0;

	json_array_foreach(events, i, event)
	{
		const char *kind = text(event, "kind");
		enum vm_happening what;

		if (happening_from_string(kind, &what) == 0) {
			r = transition(w, what, event, e);
			if (r != 0)
				return r < 0 ? r : 0;
			continue;
		}
		w->stages_us[w->phase] += number(event, "took_us");
		if (sample(samples, w->phase, kind, number(event, "took_us")) < 0)
			return error_set(e, ENOMEM, "no memory for the samples");
	}
	return error_set(e, EAGAIN, "its timeline does not end with a VM that is READY");
}

static int totals(json_t *samples, struct walk *w, uint64_t lease_us)
{
	const uint64_t total_us[PHASE_COUNT] = {lease_us, w->ends_us[PHASE_RESET] - w->ends_us[PHASE_LEASE],
			w->ends_us[PHASE_START] - w->ends_us[PHASE_RESET],
			w->ends_us[PHASE_START] - w->ends_us[PHASE_LEASE]};
	int r = 0;

	w->stages_us[PHASE_AGAIN] = w->stages_us[PHASE_RESET] + w->stages_us[PHASE_START];
	for (int p = 0; r == 0 && p < PHASE_COUNT; p++) {
		uint64_t stages_us = w->stages_us[p];

		r = sample(samples, (enum phase)p, "keeper", total_us[p] > stages_us ? total_us[p] - stages_us : 0);
		if (r == 0)
			r = sample(samples, (enum phase)p, "total", total_us[p]);
	}
	return r;
}

/* Of two objects of this shape, the second into the first. */
static int merge(json_t *into, const json_t *from)
{
	for (int p = 0; p < PHASE_COUNT; p++) {
		const char *stage;
		json_t *us, *one;
		size_t i;

		json_object_foreach(json_object_get(from, phase_words[p]), stage, us)
		{
			json_array_foreach(us, i, one)
			{
				if (sample(into, (enum phase)p, stage, (uint64_t)json_integer_value(one)) < 0)
					return -ENOMEM;
			}
		}
	}
	return 0;
}

int bench_stages_add(json_t *samples, const json_t *events, uint64_t lease_us, struct error *e)
{
	struct walk w = {0};
	json_t *fresh = json_object(); /* a lease that went another way leaves nothing */
	int r = fresh ? walk(&w, fresh, events, e) : error_set(e, ENOMEM, "no memory for the samples");

	if (r == 0 && (totals(fresh, &w, lease_us) < 0 || merge(samples, fresh) < 0))
		r = error_set(e, ENOMEM, "no memory for the samples");
	json_decref(fresh);
	return r;
}

static int by_size(const void *a, const void *b)
{
	json_int_t x = *(const json_int_t *)a, y = *(const json_int_t *)b;

	return (x > y) - (x < y);
}

static json_t *summary_of(const char *phase, const char *stage, const json_t *us)
{
	size_t n = json_array_size(us);
	CLEANUP_FREE json_int_t *v = calloc(n ? n : 1, sizeof(*v));

	if (!v || n == 0)
		return NULL;
	for (size_t i = 0; i < n; i++)
		v[i] = json_integer_value(json_array_get(us, i));
	qsort(v, n, sizeof(*v), by_size);
	/* The 95th of a hundred, by rank: of fewer than twenty the largest. */
	return json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I}", "phase", phase, "stage", stage, "rounds", (json_int_t)n, "median_us",
			n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, "p95_us", v[(n * 95 + 99) / 100 - 1], "min_us", v[0],
			"max_us", v[n - 1]);
}

json_t *bench_stages_summary(const json_t *samples)
{
	json_t *list = json_array();

	for (int p = 0; list && p < PHASE_COUNT; p++) {
		const char *stage;
		json_t *us;

		json_object_foreach(json_object_get(samples, phase_words[p]), stage, us)
		{
			if (json_array_append_new(list, summary_of(phase_words[p], stage, us)) < 0) {
				json_decref(list);
				return NULL;
			}
		}
	}
	return list;
}
