#ifndef BOXERY_CLI_OPTIONS_H
#define BOXERY_CLI_OPTIONS_H
/*
 * A subcommand is a table of options and a call. The table makes getopt_long's arrays, the --help text and the checks of
 * values, so that none of the three can differ. Portable (POSIX and getopt_long).
 */
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_OPTIONS_MAX 24

enum option_kind {
	OPTION_FLAG,     /* bool */
	OPTION_TEXT,     /* const char *, not owned */
	OPTION_NUMBER,   /* uint64_t, min..max */
	OPTION_SIZE_MIB, /* uint64_t, MiB, "2G" */
	OPTION_DURATION, /* uint64_t, milliseconds, "10m" */
	OPTION_LIST,     /* struct option_list, repeatable, commas split */
	OPTION_REST,     /* struct option_rest: ends the options; what follows, here or after "--", is a program to be run */
};
struct option_rest {
	bool given;
	char **argv; /* NULL-terminated */
};
#define OPTION_LIST_MAX 16
struct option_list {
	const char *items[OPTION_LIST_MAX];
	size_t n;
};
struct cli_option {
	const char *name; /* long name without dashes */
	enum option_kind kind;
	void *target;
	const char *argument; /* name of the value in --help; NULL for flags */
	const char *help;
	uint64_t min, max; /* numbers, sizes, durations */
};
struct cli_usage {
	const char *command;   /* "boxery-host pool add" */
	const char *arguments; /* "NAME [--pool POOL]"-like positional part, may be "" */
	const char *summary;
	const struct cli_option *options;
	size_t n_options;
	int min_arguments, max_arguments;
};
/*
 * Parses argv[1..]; positional arguments may stand anywhere unless stop_at_first (the rest belongs to a program to be run). Returns
 * 0 and *ret_first (index of the first positional argument in the permuted argv); 1 when --help was printed; -EINVAL.
 * The positional arguments end with argc or, when the table has an OPTION_REST, with a NULL.
 */
int cli_parse(const struct cli_usage *u, int argc, char **argv, bool stop_at_first, int *ret_first, struct error *e);
void cli_help(const struct cli_usage *u);
#endif
