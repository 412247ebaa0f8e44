#ifndef BOXERY_LINUX_LOOP_H
#define BOXERY_LINUX_LOOP_H
/*
 * Glue for sd-event: one default loop per service, SIGTERM and SIGINT as a callback, one-shot timers on CLOCK_BOOTTIME
 * and children with a deadline. Callbacks never block.
 */
#include "base/error.h"
#include "linux/spawn.h"
#include <stdint.h>
#include <systemd/sd-event.h>

/* New loop; SIGTERM and SIGINT (blocked here) call on_stop once, a second one ends the loop at once. */
int loop_new(sd_event **ret, void (*on_stop)(void *userdata), void *userdata, struct error *e);
/* One-shot timer; *s is created or re-armed. The source stays owned by the caller (sd_event_source_disable_unref). */
int loop_timer(sd_event *ev, sd_event_source **s, uint64_t in_ms, sd_event_time_handler_t cb, void *userdata,
		struct error *e);
/*
 * Watches a child: cb gets its wait status when it has ended by itself, or timed_out = true after it was killed at the
 * deadline (0: it has none). After success *c is empty and the loop owns the child; ret may be NULL. The handle may be
 * given to loop_child_kill, not later than cb is entered: it is freed right after cb. A killed child that the kernel does
 * not let go (it hangs on a disk) is reported 5 s after its deadline all the same and reaped whenever it ends.
 */
struct loop_child;
typedef void (*loop_child_cb)(void *userdata, int status, bool timed_out);
int loop_child_add(sd_event *ev, struct child *c, uint64_t timeout_ms, loop_child_cb cb, void *userdata,
		struct loop_child **ret, struct error *e);
/* A child that has been watched with another cb, and no deadline, gets these from now on. */
int loop_child_pass(struct loop_child *lc, uint64_t timeout_ms, loop_child_cb cb, void *userdata, struct error *e);
void loop_child_kill(struct loop_child *lc); /* kills, reaps and frees; cb is not called */
#endif
