/*
 * boxery-runners: the runner service.
 *
 * Should: read runners.yaml, connect to the keeper (and start one if there is none), run one boxery-github as
 * a child. Mustn't: hold the token, read a JIT config, talk to libvirt or open the database; it links none of
 * what that takes. With --once it is the host's end of `boxery runners once` instead (once.h).
 */
#include "base/cleanup.h"
#include "base/str.h"
#include "boxery-config.h"
#include "linux/hostconf.h"
#include "linux/log.h"
#include "linux/secret.h"
#include "manager/ask.h"
#include "manager/budget.h"
#include "manager/lock.h"
#include "manager/once.h"
#include "manager/service.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define START_KEEPER "--start-keeper"

static const char usage[] = "usage: boxery-runners [--config FILE] [--debug]\n"
			    "       boxery-runners --check FILE [--offline]\n"
			    "Serves the repositories in runners.yaml (see boxery-host(8)).\n"
			    "  --config FILE   another file than runners.yaml in the configuration folder\n"
			    "  --check FILE    only say whether FILE is right, what it means, and whether GitHub lets us serve it\n"
			    "  --offline       with --check: ask GitHub nothing\n"
			    "  --runner IMAGE=VERSION  with --check: ask until when GitHub takes this actions/runner; may be repeated\n"
			    "  --debug         say more\n"
			    "  --help, --version\n";

static int fail(const struct error *e)
{
	(void)fprintf(stderr, "boxery-runners: %s\n", e->text);
	return error_exit_status(e);
}

static uint64_t forecast(const struct runners_config *c)
{
	unsigned repositories = 0, jobs = 0;

	runners_config_size(c, &repositories, &jobs);
	return budget_forecast(c->poll_interval_ms, repositories, jobs);
}

static int check(const char *path, bool offline, const struct ask_runners *runners)
{
	CLEANUP(runners_config_freep) struct runners_config *c = NULL;
	struct error e = ERROR_INIT;

	if (runners_config_load(path, &c, &e) < 0)
		return fail(&e);
	(void)printf("%s: ok: %u %s, asked every %" PRIu64 " s; in a busy hour up to %" PRIu64 " calls\n", path, c->n_entries,
		c->n_entries == 1 ? "entry" : "entries", c->poll_interval_ms / 1000, forecast(c));
	for (unsigned i = 0; i < c->n_entries; i++) {
		char labels[GITHUB_LABELS_MAX];

		runners_entry_labels(&c->entries[i], labels);
		(void)printf("%s: ok: %s%s%s: labels %s; pool %s; up to %u at once", path, c->entries[i].scope,
			c->entries[i].group[0] ? ", group " : "", c->entries[i].group, labels, c->entries[i].pool,
			c->entries[i].max);
		if (c->entries[i].registered)
			(void)printf(", %u always registered", c->entries[i].registered);
		(void)printf("\n");
	}
	return offline ? EXIT_STATUS_OK : ask_github(c, runners);
}

/* What the service runs as a child when the keeper is gone, because starting one takes time. */
static int start_keeper(void)
{
	CLEANUP(keeper_client_freep) struct keeper_client *c = NULL;
	struct hostconf host;
	struct error e = ERROR_INIT;

	if (hostconf_load(&host, &e) < 0 || keeper_connect(&host, true, &c, &e) < 0)
		return fail(&e);
	return EXIT_STATUS_OK;
}

static int serve(const char *config_path)
{
	static const char *const keeper_argv[] = {"boxery-runners", START_KEEPER, NULL};
	CLEANUP(runners_config_freep) struct runners_config *config = NULL;
	CLEANUP(service_freep) struct service *service = NULL;
	CLEANUP_FD int lock = -1;
	struct hostconf host;
	struct error e = ERROR_INIT;
	char path[PATH_MAX];
	int r;

	if (secret_init(&e) < 0 || hostconf_load(&host, &e) < 0)
		return fail(&e);
	if (!config_path) {
		if (str_format(path, "%s/" RUNNERS_CONFIG_NAME, host.config_dir) < 0) {
			(void)error_set(&e, ENAMETOOLONG, "%s: too long", host.config_dir);
			return fail(&e);
		}
		config_path = path;
	}
	if (runners_config_load(config_path, &config, &e) < 0 || lock_take(host.runtime_dir, &lock, &e) < 0)
		return fail(&e);
	/* As a systemd service we leave the keeper to its own unit: one that we start would be stopped with us. */
	if (service_new(&host, config_path, config, getenv("NOTIFY_SOCKET") ? NULL : keeper_argv, &service, &e) < 0)
		return fail(&e);
	config = NULL;
	r = service_run(service, &e);
	return r < 0 ? fail(&e) : r;
}

int main(int argc, char *argv[])
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", required_argument, NULL, 'n'},
		{"offline", no_argument, NULL, 'o'},
		{"runner", required_argument, NULL, 'r'},
		{"debug", no_argument, NULL, 'd'},
		{"once", no_argument, NULL, '1'},
		{"start-keeper", no_argument, NULL, 'k'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	const char *config_path = NULL, *check_path = NULL;
	int level = LOG_INFO, o;
	struct ask_runners runners = {0};
	bool offline = false;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (o) {
		case 'c':
			config_path = optarg;
			break;
		case 'n':
			check_path = optarg;
			break;
		case 'o':
			offline = true;
			break;
		case 'r':
			if (runners.n == ASK_RUNNERS_MAX || !strchr(optarg, '=')) {
				(void)fputs(usage, stderr);
				return EXIT_STATUS_USAGE;
			}
			runners.items[runners.n++] = optarg;
			break;
		case 'd':
			level = LOG_DEBUG;
			break;
		case '1':
			return once_main();
		case 'k':
			return start_keeper();
		case 'h':
			(void)fputs(usage, stdout);
			return EXIT_STATUS_OK;
		case 'v':
			(void)puts("boxery-runners " BOXERY_VERSION);
			return EXIT_STATUS_OK;
		default:
			(void)fputs(usage, stderr);
			return EXIT_STATUS_USAGE;
		}
	if (optind < argc || (check_path && config_path) || ((offline || runners.n) && !check_path)) {
		(void)fputs(usage, stderr);
		return EXIT_STATUS_USAGE;
	}
	if (check_path)
		return check(check_path, offline, &runners);
	log_open("boxery-runners", level);
	return serve(config_path);
}
