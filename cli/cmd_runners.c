/* runners: serves jobs (by becoming boxery-runners), and the subcommands around that. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ARGUMENTS_MAX 20

#define CHECK_IMAGES_MAX 16
struct check_arguments {
	const char *args[6 + 2 * CHECK_IMAGES_MAX];
	char runners[CHECK_IMAGES_MAX][VM_NAME_MAX + 65];
	size_t n, n_runners;
};

static bool add_runner(void *userdata, const struct cli_image *image)
{
	struct check_arguments *c = userdata;
	char *text = c->runners[c->n_runners];

	if (!image->runner_version[0] || str_format_n(text, sizeof(c->runners[0]), "%s=%s", image->name, image->runner_version) < 0)
		return true;
	c->args[c->n++] = "--runner";
	c->args[c->n++] = text;
	return ++c->n_runners < CHECK_IMAGES_MAX;
}

static int runners_check(int argc, char **argv)
{
	bool offline = false;
	const struct cli_option options[] = {
		{"offline", OPTION_FLAG, &offline, NULL, "ask GitHub nothing", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host runners check", "[FILE]",
			"Says whether the configuration is right and whether GitHub lets us serve what it names\n"
			"(default: runners.yaml of the configuration folder), and until when it takes the runners in the base images.",
			options, ARRAY_SIZE(options), 0, 1};
	struct check_arguments c = {.args = {"boxery-runners", "--check"}, .n = 3};
	char path[300];
	struct hostconf conf;
	struct error e = ERROR_INIT;
	int first, status;

	if (!cli_begin(&usage, argc, argv, &first, &conf, &status))
		return status;
	(void)str_format(path, "%s/runners.yaml", conf.config_dir);
	c.args[2] = first < argc ? argv[first] : path;
	if (offline)
		c.args[c.n++] = "--offline";
	else
		cli_images_each(&conf, add_runner, &c);
	(void)cli_become("boxery-runners", c.args, &e);
	return cli_fail(&e);
}

/* The secret is not ours to see: boxery-github reads it from standard input. */
static int runners_token(int argc, char **argv)
{
	const char *values[6] = {NULL};
	const struct cli_option options[] = {
		{"app", OPTION_TEXT, &values[0], "ID", "standard input is the private key (PEM) of the App with this client id", 0, 0},
		{"installation", OPTION_TEXT, &values[1], "NUMBER", "with --app: where it is installed", 0, 0},
		{"host", OPTION_TEXT, &values[2], "HOST", "github.com, NAME.ghe.com or an Enterprise Server", 0, 0},
		{"url", OPTION_TEXT, &values[3], "URL", "or the URL of its API", 0, 0},
		{"ca", OPTION_TEXT, &values[4], "FILE", "the only CA to trust (PEM, absolute path)", 0, 0},
		{"proxy", OPTION_TEXT, &values[5], "URL", "reach it through this proxy; \"\" for none", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host runners token", "< FILE",
			"Stores the credential that is read from standard input in runners.env, owner-only; other settings stay.",
			options, ARRAY_SIZE(options), 0, 1};
	const char *args[ARGUMENTS_MAX] = {"boxery-github", "token"};
	char names[ARRAY_SIZE(options)][24];
	struct error e = ERROR_INIT;
	size_t n = 2;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if (first < argc) { /* not quoted: it may be the token */
		(void)error_set(&e, EINVAL, "runners token: the token is read from standard input, never taken as an argument");
		return cli_fail(&e);
	}
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		if (!values[i])
			continue;
		(void)str_format(names[i], "--%s", options[i].name);
		args[n++] = names[i];
		args[n++] = values[i];
	}
	(void)cli_become("boxery-github", args, &e);
	return cli_fail(&e);
}

/* The leases of the service, those that have ended included. */
static int runners_history(int argc, char **argv)
{
	bool json = false;
	const struct cli_option options[] = {{"json", OPTION_FLAG, &json, NULL, "machine-readable", 0, 0}};
	const struct cli_usage usage = {"boxery-host runners history", "",
			"Lists the service's leases, newest last, with what became of each.", options, ARRAY_SIZE(options), 0, 0};
	char program[] = "lease ls", all[] = "--all", as[] = "--as", holder[] = HOLDER_SERVICE, in_json[] = "--json";
	char *args[] = {program, all, as, holder, NULL, NULL};
	struct error e = ERROR_INIT;
	int first, code = cli_parse(&usage, argc, argv, false, &first, &e);

	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	args[4] = json ? in_json : NULL;
	return cmd_lease_ls(json ? 5 : 4, args);
}

static const struct command subcommands[] = {
	{"check", runners_check, "is the configuration right, does GitHub let us serve it"},
	{"token", runners_token, "store GitHub's token or an App's key from standard input"},
	{"status", cmd_runners_status, "what the running service does, and what it waits for"},
	{"explain", cmd_runners_explain, "queued jobs that match no entry, and which label is off"},
	{"history", runners_history, "the service's leases and what became of each"},
	{"show", cmd_history, "the timeline of a lease (as 'history LEASE')"},
	{"logs", cmd_runners_logs, "the console of a VM or of an ended lease"},
	{"pause", cmd_runners_pause, "no new leases"},
	{"drain", cmd_runners_drain, "no new leases, and runners without a job are taken back"},
	{"resume", cmd_runners_resume, "end a pause or a drain; start again what has stopped by itself"},
	{"reload", cmd_runners_reload, "read runners.yaml again"},
};

static int runners_serve(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host runners", "[COMMAND]",
			"Serves GitHub Actions jobs as runners.yaml says, until SIGTERM; running jobs are left alone and found again.",
			NULL, 0, 0, 1};
	const char *args[2] = {"boxery-runners", NULL};
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, true, &first, &e);
	if (code > 0) {
		printf("\nCommands:\n");
		for (size_t i = 0; i < ARRAY_SIZE(subcommands); i++)
			printf("  %-24s %s\n", subcommands[i].name, subcommands[i].summary);
		return EXIT_STATUS_OK;
	}
	if (code == 0 && first < argc)
		(void)error_set(&e, EINVAL, "runners: no command '%s'; see --help", argv[first]);
	if (e.code)
		return cli_fail(&e);
	(void)cli_become("boxery-runners", args, &e);
	return cli_fail(&e);
}

int cmd_runners(int argc, char **argv)
{
	/* Not for people: the host's end of the link of 'boxery runners once'. */
	static const char *const once[] = {"boxery-runners", "--once", NULL};
	struct error e = ERROR_INIT;

	if (argc == 2 && str_equal(argv[1], "__once")) {
		(void)cli_become("boxery-runners", once, &e);
		return cli_fail(&e);
	}
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(subcommands); i++)
		if (str_equal(argv[1], subcommands[i].name))
			return subcommands[i].run(argc - 1, argv + 1);
	return runners_serve(argc, argv);
}
