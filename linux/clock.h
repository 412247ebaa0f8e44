#ifndef BOXERY_LINUX_CLOCK_H
#define BOXERY_LINUX_CLOCK_H
/* Deadlines are CLOCK_BOOTTIME together with the host's boot id; wall time is only shown to people. */
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

#define BOOT_ID_MAX 37 /* with the NUL */
uint64_t clock_boot_us(void);
uint64_t clock_wall_us(void);
int clock_boot_id(char ret[static BOOT_ID_MAX], struct error *e);
void clock_wall_text(uint64_t wall_us, char *dst, size_t size); /* 2026-11-29T22:10:01Z */
/* The inverse, in whole seconds; -EINVAL for anything else than that form, with or without a fraction. */
int clock_wall_parse(const char *text, uint64_t *ret_s);
#endif
