#ifndef BOXERY_CLI_BENCH_STAGES_H
#define BOXERY_CLI_BENCH_STAGES_H
/*
 * How long the stages of a lease took, out of the timelines of many. Phases: "lease" from the asking to the hand-over, "reset"
 * from the end of the lease to COLD, "start" from there to READY, "again" for both of these together. In each there is a
 * sample per stage of boxery-vm, "total", and "keeper": what is left of the total when its stages are taken away.
 */
#include "base/error.h"
#include <jansson.h>
#include <stdint.h>

/*
 * Adds the samples of one lease: events as of HISTORY, from its LEASE to STARTED. lease_us: from the asking to the reply, as
 * the client saw it. -EAGAIN with the reason: this lease went another way (a failed start, another end), nothing was added.
 */
int bench_stages_add(json_t *samples, const json_t *events, uint64_t lease_us, struct error *e);
/* [{phase, stage, rounds, median_us, p95_us, min_us, max_us}] in the order of a life; NULL: no memory. */
json_t *bench_stages_summary(const json_t *samples);
#endif
