#ifndef BOXERY_CLI_HOST_H
#define BOXERY_CLI_HOST_H
/*
 * What the subcommands of boxery-host share. A command returns an exit status; it prints its own error with cli_fail().
 */
#include "base/cleanup.h"
#include "cli/options.h"
#include "linux/hostconf.h"
#include "pool/client.h"
#include <jansson.h>

#define CLI_CALL_TIMEOUT_MS 60000         /* a call that only reads or commits */
#define CLI_TTL_MS_MIN 1000
#define CLI_WORK_TIMEOUT_MS (30 * 60000)  /* a call that waits for a VM; the keeper's own deadlines are shorter */

typedef int (*command_fn)(int argc, char **argv);
struct command {
	const char *name;
	command_fn run;
	const char *summary;
};
/* Runs argv[1] from the table; without one, or with --help, prints the table. */
int command_dispatch(const char *program, const struct command *table, size_t n, int argc, char **argv);

int cli_fail(const struct error *e); /* prints "boxery-host: text", returns the exit status */
/*
 * How most commands begin: the words of argv as of cli_parse, then the host's settings. False: the command is over, with
 * *ret_status (--help was printed, or what is wrong).
 */
bool cli_begin(const struct cli_usage *u, int argc, char **argv, int *ret_first, struct hostconf *ret_conf, int *ret_status);
/* The usual call: connects (starting a keeper when none runs), sends, shows progress on stderr, checks the reply. */
int cli_call(struct keeper_request *r, uint64_t timeout_ms, struct keeper_reply *ret, json_t **ret_document,
		struct error *e);
/* As cli_call, and returns the exit status; for commands that only do. done: printed on success, may be NULL. */
int cli_do(struct keeper_request *r, uint64_t timeout_ms, const char *done);
/* One question (enum control_type) to the runner service. scope: NULL or "" for all; ret_document may be NULL. */
int cli_runners_call(int type, const char *scope, json_t **ret_document, struct error *e);
/* Ends the keeper and waits until it has ended; 0 also when none runs. */
int cli_keeper_end(const struct hostconf *conf, bool *ret_ran, struct error *e);
int cli_set_name(struct keeper_request *r, const char *name, struct error *e);
int cli_print_json(json_t *document); /* indented, key order kept; returns the exit status */
/* What cli_call shows of a long call: begin, then each text on standard error once it takes long or someone looks. */
struct cli_progress {
	uint64_t begun_us;
	bool terminal;
};
void cli_progress_begin(struct cli_progress *p);
void cli_progress_show(void *progress, const char *text);
/* These signals are blocked from here on and read from the fd. */
int cli_signals(const int *signals, size_t n, int *ret_fd, struct error *e);
/* A connection on which events come; start as of keeper_connect. */
int cli_subscribe(const struct hostconf *conf, bool start, struct keeper_client **ret, struct error *e);
/* Milliseconds for poll until then. */
int cli_poll_ms(uint64_t deadline_us);
/*
 * A call on an own connection that one of the signals (fd of cli_signals, or -1) ends: -ECANCELED, and the connection is of
 * no use any more. *ret_late: its reply came nevertheless and is in *ret; what it gave must be given back.
 */
int cli_wait_call(struct keeper_client *client, struct keeper_request *r, int signals, uint64_t timeout_ms,
		struct keeper_reply *ret, bool *ret_late, struct error *e);
/* "TYPE BASE64" out of an ssh public key file, FILE or FILE.pub; "-" is standard input. A private key is refused. */
int cli_public_key(const char *path, char *dst, size_t size, struct error *e);
/*
 * The last lines of a guest's console as a JSON array of ASCII texts. A console that is not there has none; e says when it cannot
 * be read.
 */
json_t *cli_console(const char *path, struct error *e);
#define CLI_DURATION_MAX 24
const char *cli_duration_text(uint64_t ms, char dst[static CLI_DURATION_MAX]); /* "45s" "12m" "3h05m" "2d04h" */
/* Becomes one of our own programs (beside us, or in libexec). Returns only on failure. */
int cli_become(const char *program, const char *const *argv, struct error *e);

struct cli_image { /* a base image, as its manifest tells */
	char name[VM_NAME_MAX], layers[1024], runner_version[64], built_at[32]; /* "" where it says nothing; built_at as 2026-11-29T22:10:01Z */
};
/* In no order, until cb says false. A manifest that cannot be read is left out. */
void cli_images_each(const struct hostconf *conf, bool (*cb)(void *userdata, const struct cli_image *image), void *userdata);
/* The name of a base image whose manifest says LAYERS=layers (comma-separated, same order); -ENOENT with what to do. */
int cli_image_of_layers(const struct hostconf *conf, const char *layers, char *dst, size_t size, struct error *e);
/* The list as one comma-separated text. */
int cli_join(const struct option_list *list, char *dst, size_t size, struct error *e);

/*
 * Tables: a header row, then rows; widths from the content. On a terminal a table is made as wide as that: the widest
 * columns are shortened with an ellipsis, and states have colours unless NO_COLOR is set. Elsewhere nothing is cut.
 */
struct table;
struct table *table_new(size_t columns, const char *const *titles);
void table_add(struct table *t, const char *const *cells); /* copies; NULL or "" is "-" */
void table_pin(struct table *t, size_t column);            /* never shortened: a name that is to be typed again */
void table_states(struct table *t, size_t column);         /* coloured */
/* The rows of a list in a document, one column per key. */
void table_add_list(struct table *t, const json_t *list, const char *const *keys);
void table_print(struct table *t);
void table_print_rows(struct table *t, size_t max); /* the header and at most so many lines, the last says how many more */
bool terminal_size(size_t *ret_columns, size_t *ret_rows); /* false: standard output is no terminal */
const char *state_colour(const char *state); /* escape sequence or "", as above */
#define COLOUR_END "\x1b[0m"
struct table *table_free(struct table *t);
DEFINE_CLEANUP(struct table *, table_free);
const char *json_text(const json_t *object, const char *key, char *scratch, size_t size); /* any scalar as text, "" when absent */

int cmd_init(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_paths(int argc, char **argv);
int cmd_build_base(int argc, char **argv);
int cmd_new(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_start(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_ssh(int argc, char **argv);
int cmd_known_hosts(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_pool_ls(int argc, char **argv);
int cmd_pool_patch(int argc, char **argv);
int cmd_pool_set(int argc, char **argv);
int cmd_pool_show(int argc, char **argv);
int cmd_pool_history(int argc, char **argv);
int cmd_pool_bench(int argc, char **argv);
/* The rows of LIST that are in a pool (NULL: any). */
void pool_rows_only(json_t *vms, const char *pool);
void pool_print_table(const json_t *vms, size_t max_lines);
int pool_watch(const char *pool); /* returns the exit status */
int cmd_lease(int argc, char **argv);
int cmd_lease_renew(int argc, char **argv);
int cmd_lease_ls(int argc, char **argv);
int cmd_release(int argc, char **argv);
int cmd_leases(int argc, char **argv);
int cmd_history(int argc, char **argv);
int cmd_runners(int argc, char **argv);
int cmd_runners_status(int argc, char **argv);
int cmd_runners_explain(int argc, char **argv);
int cmd_runners_pause(int argc, char **argv);
int cmd_runners_drain(int argc, char **argv);
int cmd_runners_resume(int argc, char **argv);
int cmd_runners_reload(int argc, char **argv);
int cmd_runners_logs(int argc, char **argv);
int cmd_keeper(int argc, char **argv);
int cmd_uninstall(int argc, char **argv);
#endif
