#ifndef BOXERY_CONTROLLER_PROCESS_H
#define BOXERY_CONTROLLER_PROCESS_H
/*
 * Child programs of the controller: ssh, gh, git. Portable, so no pidfds and no death signal: a child ends because its pipes
 * do. Children ignore SIGINT, SIGQUIT and SIGHUP, since a terminal sends these to everybody in it, and ssh and gh are needed
 * for tidying up; process_end_with_us() is for commands without that. Whoever calls reaps: process_reap() after SIGCHLD or now and then.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include <stdbool.h>
#include <sys/types.h>

#define PROCESS_END_MS 1000  /* for a child that is asked to end; then it is killed */
#define PROCESS_LOST_MS 5000 /* how long an ended pipe may be ahead of its process */

enum process_pipe {
	PROCESS_IN = 1 << 0,  /* without it standard input is /dev/null */
	PROCESS_OUT = 1 << 1, /* without it, and without PROCESS_ERR, these are ours */
	PROCESS_ERR = 1 << 2,
	PROCESS_NO_TOKENS = 1 << 3, /* the variables that hold a GitHub token are taken out of its environment */
};
struct process {
	pid_t pid;        /* -1: there is none */
	int in, out, err; /* our ends, non-blocking; -1: not wanted, or closed */
	int status;       /* as of waitpid(), when it has ended */
	bool ended;
};
#define PROCESS_INIT ((struct process){.pid = -1, .in = -1, .out = -1, .err = -1})
/* argv[0] is looked for in PATH. -ENOENT when there is no such program. */
int process_start(const char *const *argv, unsigned pipes, struct process *ret, struct error *e);
bool process_reap(struct process *p); /* true when it has ended, now or before, or never was */
void process_free(struct process *p); /* closes the pipes; ends and reaps what still runs */
/*
 * For a command that has nothing to tidy up: SIGINT, SIGTERM, SIGHUP and SIGQUIT end the child that is running (one at a
 * time is started then), then this process, by the same signal.
 */
void process_end_with_us(void);
/*
 * Runs it to its end and takes what it prints, at most size - 1 bytes; its exit status, or an error. PROCESS_ERR: what it says besides
 * is nobody's business. For quick ones that say little.
 */
int process_capture(const char *const *argv, unsigned pipes, int timeout_ms, char *dst, size_t size, struct error *e);
#endif
