#include "cli/options.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "base/str.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define OPTION_BASE 256 /* getopt_long values of our options; below are characters */
#define OPTION_HELP 255

void cli_help(const struct cli_usage *u)
{
	printf("Usage: %s%s%s%s\n\n%s\n\nOptions:\n", u->command, u->n_options ? " [OPTIONS]" : "",
			u->arguments[0] ? " " : "", u->arguments, u->summary);
	for (size_t i = 0; i < u->n_options; i++) {
		const struct cli_option *o = &u->options[i];
		char left[64];

		(void)snprintf(left, sizeof(left), "--%s%s%s", o->name, o->argument ? " " : "",
				o->argument ? o->argument : "");
		printf("  %-24s %s\n", left, o->help);
	}
	printf("  %-24s %s\n", "--help", "show this text");
}

static int add_to_list(struct option_list *list, char *text, const char *name, struct error *e)
{
	for (char *item = text, *next; item; item = next) {
		next = strchr(item, ',');
		if (next)
			*next++ = '\0';
		if (!item[0])
			return error_set(e, EINVAL, "--%s: a value is empty; name what is wanted, with a comma between two", name);
		if (list->n == OPTION_LIST_MAX)
			return error_set(e, EINVAL, "--%s: at most %d values", name, OPTION_LIST_MAX);
		list->items[list->n++] = item;
	}
	return 0;
}

static int set_option(const struct cli_option *o, char *value, struct error *e)
{
	char what[64];

	(void)snprintf(what, sizeof(what), "--%s", o->name);
	switch (o->kind) {
	case OPTION_FLAG:
		*(bool *)o->target = true;
		return 0;
	case OPTION_TEXT:
		*(const char **)o->target = value;
		return 0;
	case OPTION_NUMBER:
		return parse_u64(value, what, o->min, o->max, o->target, e);
	case OPTION_SIZE_MIB:
		return parse_size_mib(value, what, o->min, o->max, o->target, e);
	case OPTION_DURATION:
		return parse_duration_ms(value, what, o->min, o->max, o->target, e);
	case OPTION_LIST:
		return add_to_list(o->target, value, o->name, e);
	case OPTION_REST:
		((struct option_rest *)o->target)->given = true;
		return 0;
	}
	return error_set(e, EINVAL, "--%s: unknown kind of option", o->name);
}

static const struct cli_option *rest_of(const struct cli_usage *u)
{
	for (size_t i = 0; i < u->n_options; i++)
		if (u->options[i].kind == OPTION_REST)
			return &u->options[i];
	return NULL;
}

/*
 * With an OPTION_REST getopt hands out positional arguments where they stand. They are moved to the front; the slot behind
 * them is that of the option, of "--", or the end of argv, so that a NULL there overwrites nothing of the program's.
 */
static int take_rest(const struct cli_usage *u, const struct cli_option *o, char **argv, int n, int at, struct error *e)
{
	struct option_rest *rest = o->target;
	bool ended = str_equal(argv[at - 1], "--");

	if (!rest->given && ended)
		rest->given = true;
	else if (rest->given && !ended && argv[at] && str_equal(argv[at], "--"))
		at++;
	argv[1 + n] = NULL;
	rest->argv = argv + at;
	if (rest->given && !argv[at])
		return error_set(e, EINVAL, "%s: --%s needs a program to run; see --help", u->command, o->name);
	return 0;
}

static int check_count(const struct cli_usage *u, int n, char *const *arguments, struct error *e)
{
	if (n < u->min_arguments)
		return error_set(e, EINVAL, "%s: needs %s; see --help", u->command,
				u->arguments[0] ? u->arguments : "more arguments");
	if (n > u->max_arguments)
		return error_set(e, EINVAL, "%s: unexpected argument '%s'; see --help", u->command,
				arguments[u->max_arguments]);
	return 0;
}

int cli_parse(const struct cli_usage *u, int argc, char **argv, bool stop_at_first, int *ret_first, struct error *e)
{
	struct option longs[CLI_OPTIONS_MAX + 2] = {{0}};
	const struct cli_option *rest = rest_of(u);
	size_t i;
	int c, r = 0, n = 0;

	if (u->n_options > CLI_OPTIONS_MAX)
		return error_set(e, E2BIG, "%s: too many options in its table", u->command);
	for (i = 0; i < u->n_options; i++)
		longs[i] = (struct option){.name = u->options[i].name,
				.has_arg = u->options[i].kind == OPTION_FLAG || &u->options[i] == rest ? no_argument
												      : required_argument,
				.val = OPTION_BASE + (int)i};
	longs[i] = (struct option){.name = "help", .has_arg = no_argument, .val = OPTION_HELP};

	optind = 1;
	opterr = 0;
	while ((!rest || !((struct option_rest *)rest->target)->given) &&
			(c = getopt_long(argc, argv, rest ? "-:h" : stop_at_first ? "+:h" : ":h", longs, NULL)) != -1) {
		if (c == 1) {
			argv[1 + n++] = optarg;
			continue;
		}
		if (c == OPTION_HELP || c == 'h') {
			cli_help(u);
			return 1;
		}
		if (c == ':')
			return error_set(e, EINVAL, "%s: %s needs a value; see --help", u->command, argv[optind - 1]);
		if (c < OPTION_BASE || (size_t)(c - OPTION_BASE) >= u->n_options)
			return error_set(e, EINVAL, "%s: unknown option %s; see --help", u->command, argv[optind - 1]);
		r = set_option(&u->options[c - OPTION_BASE], optarg, e);
		if (r < 0)
			return r;
	}
	if (rest) {
		*ret_first = 1;
		r = take_rest(u, rest, argv, n, optind, e);
		return r < 0 ? r : check_count(u, n, argv + 1, e);
	}
	*ret_first = optind;
	return check_count(u, argc - optind, argv + optind, e);
}
