#ifndef BOXERY_TEST_FAKE_WORLD_H
#define BOXERY_TEST_FAKE_WORLD_H
/*
 * What the stand-ins for boxery-vm and boxery-deliver share: a folder (BOXERY_TEST_WORLD) that plays libvirt, the disks and
 * the test's script.
 *
 *   domains/NAME     exists while the domain "runs"; content: its generation, and 1 while it is paused
 *   settings/NAME    made by NEW; content: the highest generation started plus one, the number of the slot
 *   clean/NAME       made by CAPTURE
 *   run/NAME         the overlay of a life; content: its generation
 *   broken/NAME      one that was kept as evidence
 *   trouble/NAME     made by a test: what is wrong with the VM
 *   twins/NAME       exists: there is a second domain with the VM's mark
 *   script/WHAT      how the next ones behave: tried in the order VERB-NAME, VERB. One line: a word and its arguments.
 *                    "once ..." removes the file first.
 *   down             exists: libvirt does not answer
 *   ops.log          a line per operation: VERB NAME GENERATION begin|ok|failed
 *   pids.log         a line per operation: the process
 *   deliveries.log   a line per secret that reached a guest: HOST_KEY
 *   grants.log       a line per key that was put into a guest: NAME GENERATION KEY
 *   limits.log       a line per start: NAME and the five limits
 *   starts.log       a line per start: NAME GENERATION warm|cold, and standby when that was asked for
 */
#include <stdbool.h>
#include <stdint.h>

#define LINE_MAX_ 512
extern int world; /* fd of the folder */
void world_open(void);
bool world_read(const char *path, char *dst, unsigned size); /* first line; false: no such file */
void world_write(const char *path, const char *text);
void world_log(const char *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The script's line for this verb and name, "ok" when there is none. */
void world_script(const char *verb, const char *name, char *dst, unsigned size);
uint64_t world_generation(const char *folder, const char *name); /* 0: does not exist */
void pause_ms(unsigned ms);
#endif
