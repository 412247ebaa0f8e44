#ifndef BOXERY_MANAGER_METRICS_H
#define BOXERY_MANAGER_METRICS_H
/*
 * Counters and histograms of this life of the service, written as Prometheus text (metrics_file of runners.yaml, for the node
 * exporter's textfile collector). Nothing in it comes from a guest or a workflow. All of it takes a NULL.
 */
#include "manager/work.h"

struct service;
struct metrics;
int metrics_new(struct metrics **ret, struct error *e);
struct metrics *metrics_free(struct metrics *m);
/* A lease has left the state `from`. */
void metrics_step(struct metrics *m, const struct work *w, enum work_state from);
void metrics_outcome(struct metrics *m, const struct work *w);
/* A VM is READY again. */
void metrics_ready(struct metrics *m, const char *vm, uint64_t now_ms);
int metrics_write(struct metrics *m, struct service *s, const char *path, struct error *e);
#endif
