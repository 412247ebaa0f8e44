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
/* The usual call: connects (starting a keeper when none runs), sends, shows progress on stderr, checks the reply. */
int cli_call(struct keeper_request *r, uint64_t timeout_ms, struct keeper_reply *ret, json_t **ret_document,
		struct error *e);
/* As cli_call, and returns the exit status; for commands that only do. done: printed on success, may be NULL. */
int cli_do(struct keeper_request *r, uint64_t timeout_ms, const char *done);
int cli_set_name(struct keeper_request *r, const char *name, struct error *e);
int cli_print_json(json_t *document); /* indented, key order kept; returns the exit status */
/* Becomes one of our own programs (beside us, or in libexec). Returns only on failure. */
int cli_become(const char *program, const char *const *argv, struct error *e);

/* The name of a base image whose manifest says LAYERS=layers (comma-separated, same order); -ENOENT with what to do. */
int cli_image_of_layers(const struct hostconf *conf, const char *layers, char *dst, size_t size, struct error *e);
/* The list as one comma-separated text. */
int cli_join(const struct option_list *list, char *dst, size_t size, struct error *e);

/* Tables: a header row, then rows; widths from the content, the last column cut to the terminal. */
struct table;
struct table *table_new(size_t columns, const char *const *titles);
void table_add(struct table *t, const char *const *cells); /* copies; NULL is "-" */
void table_print(struct table *t);
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
int cmd_lease(int argc, char **argv);
int cmd_release(int argc, char **argv);
int cmd_leases(int argc, char **argv);
int cmd_history(int argc, char **argv);
int cmd_runners(int argc, char **argv);
int cmd_keeper(int argc, char **argv);
#endif
