#ifndef BOXERY_CONTROLLER_SCREEN_H
#define BOXERY_CONTROLLER_SCREEN_H
/*
 * What goes to standard output and standard error while a run is on. It never waits for whoever reads: a terminal may be stopped
 * (Ctrl-S), a pager may stand still, and after two minutes without a heartbeat the host takes the VM back. What is not taken waits
 * here, in its order; a reader that is gone gets nothing.
 */
#include <stdbool.h>
#include <stddef.h>

/* Bytes. Above SCREEN_MAX what is added is left out. */
#define SCREEN_MAX (1024 * 1024)

void screen_add(int fd, const char *data, size_t len); /* fd: STDOUT_FILENO or STDERR_FILENO */
void screen_flush(void);                               /* what goes at once; now and then */
size_t screen_waiting(void);                           /* bytes */
int screen_lost(void);                                 /* errno of the first write to standard output that failed; 0: none did */
bool screen_is_taken(int fd);                          /* something would go at once */
/* For the end, when nothing depends on this process any more: waits until something goes, at most so long. True: nothing waits. */
bool screen_wait(int within_ms);
#endif
