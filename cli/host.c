/* What the subcommands share: the call to the keeper with its progress, JSON, and becoming another program. */
#include "cli/host.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/spawn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_AFTER_US 2000000 /* shorter work says nothing unless someone is looking at a terminal */

int cli_fail(const struct error *e)
{
	char shown[2 * ERROR_TEXT_MAX];
	const char *text = e->text[0] ? e->text : strerror(e->code);

	/* Names out of the command line and words of a guest may be in it. */
	str_show_n(shown, sizeof(shown), text, strlen(text));
	/* A wrong command line names the subcommand itself. */
	fprintf(stderr, "%s%s\n", str_starts(shown, "boxery-host ") ? "" : "boxery-host: ", shown);
	return error_exit_status(e);
}

bool cli_begin(const struct cli_usage *u, int argc, char **argv, int *ret_first, struct hostconf *ret_conf, int *ret_status)
{
	struct error e = ERROR_INIT;
	int code = cli_parse(u, argc, argv, false, ret_first, &e);

	if (code == 0)
		code = hostconf_load(ret_conf, &e);
	if (code != 0)
		*ret_status = code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	return code == 0;
}

void cli_progress_begin(struct cli_progress *p)
{
	*p = (struct cli_progress){.begun_us = clock_boot_us(), .terminal = isatty(STDERR_FILENO)};
}

void cli_progress_show(void *progress, const char *text)
{
	struct cli_progress *p = progress;
	uint64_t elapsed = clock_boot_us() - p->begun_us;
	char shown[KEEPER_TEXT_MAX];

	if (!p->terminal && elapsed < PROGRESS_AFTER_US)
		return;
	str_show_n(shown, sizeof(shown), text, strlen(text));
	fprintf(stderr, "[%6.1f s] %s\n", (double)elapsed / 1e6, shown);
}

const char *cli_duration_text(uint64_t ms, char dst[static CLI_DURATION_MAX])
{
	uint64_t s = (ms + 500) / 1000;

	if (s < 60)
		(void)str_format_n(dst, CLI_DURATION_MAX, "%" PRIu64 "s", s);
	else if (s < 3600)
		(void)str_format_n(dst, CLI_DURATION_MAX, "%" PRIu64 "m", s / 60);
	else if (s < 86400)
		(void)str_format_n(dst, CLI_DURATION_MAX, "%" PRIu64 "h%02um", s / 3600, (unsigned)(s / 60 % 60));
	else
		(void)str_format_n(dst, CLI_DURATION_MAX, "%" PRIu64 "d%02uh", s / 86400, (unsigned)(s / 3600 % 24));
	return dst;
}

int cli_call(struct keeper_request *r, uint64_t timeout_ms, struct keeper_reply *ret, json_t **ret_document,
		struct error *e)
{
	CLEANUP(keeper_client_freep) struct keeper_client *client = NULL;
	CLEANUP_FREE char *document = NULL;
	struct cli_progress progress;
	struct keeper_reply reply;
	struct hostconf conf;
	json_error_t fault;
	int code;

	cli_progress_begin(&progress);
	code = hostconf_load(&conf, e);
	if (code < 0)
		return code;
	code = keeper_connect(&conf, true, &client, e);
	if (code < 0)
		return code;
	code = keeper_call(client, r, -1, timeout_ms, cli_progress_show, &progress, &reply, &document, e);
	if (code < 0)
		return code;
	if (ret_document) {
		json_t *parsed = document ? json_loads(document, JSON_REJECT_DUPLICATES, &fault) : NULL;

		if (!parsed)
			return error_set(e, EPROTO, "the keeper's answer is not JSON: %s",
					document ? fault.text : "it sent none");
		*ret_document = parsed;
	}
	if (ret)
		*ret = reply;
	return 0;
}

int cli_do(struct keeper_request *r, uint64_t timeout_ms, const char *done)
{
	struct error e = ERROR_INIT;

	if (cli_call(r, timeout_ms, NULL, NULL, &e) < 0)
		return cli_fail(&e);
	if (done)
		printf("%s\n", done);
	return EXIT_STATUS_OK;
}

int cli_set_name(struct keeper_request *r, const char *name, struct error *e)
{
	int code = name_check(name, "VM name", e);

	return code < 0 ? code : str_copy(r->name, name);
}

int cli_print_json(json_t *document)
{
	if (json_dumpf(document, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER) < 0 || putchar('\n') == EOF)
		return EXIT_STATUS_FAILED;
	return EXIT_STATUS_OK;
}

int cli_become(const char *program, const char *const *argv, struct error *e)
{
	char path[512];
	int code = program_path(program, path, sizeof(path), e);

	if (code < 0)
		return code;
	(void)fflush(NULL);
	(void)execv(path, (char *const *)argv);
	return error_errno(e, errno, "cannot run %s", path);
}

static void print_commands(const char *program, const struct command *table, size_t n, FILE *to)
{
	fprintf(to, "Usage: %s COMMAND [OPTIONS] [ARGUMENTS]\n\nCommands:\n", program);
	for (size_t i = 0; i < n; i++)
		fprintf(to, "  %-14s %s\n", table[i].name, table[i].summary);
	fprintf(to, "\n'%s COMMAND --help' tells more about one.\n", program);
}

int command_dispatch(const char *program, const struct command *table, size_t n, int argc, char **argv)
{
	if (argc < 2) {
		print_commands(program, table, n, stderr);
		return EXIT_STATUS_USAGE;
	}
	if (str_equal(argv[1], "--help") || str_equal(argv[1], "-h") || str_equal(argv[1], "help")) {
		print_commands(program, table, n, stdout);
		return EXIT_STATUS_OK;
	}
	for (size_t i = 0; i < n; i++)
		if (str_equal(argv[1], table[i].name))
			return table[i].run(argc - 1, argv + 1);
	fprintf(stderr, "%s: no command '%s'; see '%s --help'\n", program, argv[1], program);
	return EXIT_STATUS_USAGE;
}
