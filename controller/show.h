#ifndef BOXERY_CONTROLLER_SHOW_H
#define BOXERY_CONTROLLER_SHOW_H
/* What the person sees: a line per stage on standard output, or a JSON object per line (docs/once.md). */
#include "controller/run.h"

void show_stage(const struct run *r, const char *word, const char *format, ...) __attribute__((format(printf, 3, 4)));
void show_note(const struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3))); /* on standard error */
void show_output(const struct run *r, const char *text);
void show_others(const char *text, size_t len); /* of a child, made harmless, on standard error */
void show_result(const struct run *r);
void show_spinner(const struct run *runs, unsigned n); /* on a terminal only */
void show_clear(void);
#endif
