/*
 * boxery-fetch: one verified download into the cache; its path on stdout.
 *
 * Should: talk https to anybody, write below the cache folder.
 * Mustn't: hold a secret, gain a privilege, keep what was not verified.
 */
#include "boxery-config.h"
#include "base/parse.h"
#include "base/str.h"
#include "layers/fetch.h"
#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static void usage(FILE *f)
{
	(void)fprintf(f, "usage: boxery-fetch --url URL --sha256 HEX --out-dir CACHE [--ca-file FILE] [--max-size SIZE]\n"
			"Downloads URL into CACHE/sha256/HEX, or verifies that it is there, and prints the path.\n"
			"  --url URL        https; http only to a loopback address\n"
			"  --sha256 HEX     what its bytes must sum up to; without it nothing is downloaded\n"
			"  --out-dir CACHE  folder of the cache\n"
			"  --ca-file FILE   trust these authorities instead of the system's\n"
			"  --max-size SIZE  refuse more than this (default 2G)\n");
}

static void on_signal(int number)
{
	(void)number;
	fetch_cancel();
}

static void drop_privileges(void)
{
	const struct rlimit none = { 0, 0 };
	struct sigaction sa = { .sa_handler = on_signal };

	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	(void)setrlimit(RLIMIT_CORE, &none);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)sigaction(SIGINT, &sa, NULL);
	(void)sigaction(SIGTERM, &sa, NULL);
}

static int parse_options(int argc, char **argv, struct fetch_request *q, struct error *e)
{
	enum { URL = 1, SUM, DIR_OPTION, CA, MAX, HELP };
	static const struct option options[] = {
		{ "url", required_argument, NULL, URL }, { "sha256", required_argument, NULL, SUM },
		{ "out-dir", required_argument, NULL, DIR_OPTION }, { "ca-file", required_argument, NULL, CA },
		{ "max-size", required_argument, NULL, MAX }, { "help", no_argument, NULL, HELP }, { NULL, 0, NULL, 0 },
	};
	uint64_t mib;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == URL)
			q->url = optarg;
		else if (c == SUM)
			q->sha256 = optarg;
		else if (c == DIR_OPTION)
			q->cache_dir = optarg;
		else if (c == CA)
			q->ca_file = optarg;
		else if (c == HELP)
			return 1;
		else if (c != MAX)
			return error_set(e, EINVAL, "see boxery-fetch --help");
		else if (parse_size_mib(optarg, "--max-size", 1, 1u << 20, &mib, e) < 0)
			return -EINVAL;
		else
			q->max_size = mib << 20;
	}
	if (optind < argc)
		return error_set(e, EINVAL, "unexpected argument '%s'", argv[optind]);
	if (!q->url || !q->cache_dir)
		return error_set(e, EINVAL, "--url and --out-dir are needed; see boxery-fetch --help");
	if (!q->sha256)
		return error_set(e, EINVAL, "--sha256 is missing: what is not pinned is not downloaded");
	return 0;
}

int main(int argc, char **argv)
{
	struct fetch_request q = { .url = NULL };
	struct fetch_result result;
	struct error e = ERROR_INIT;
	int r = parse_options(argc, argv, &q, &e);

	if (r > 0) {
		usage(stdout);
		return EXIT_STATUS_OK;
	}
	if (r == 0) {
		drop_privileges();
		if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
			r = error_set(&e, ENOMEM, "libcurl cannot be set up");
		else
			r = fetch(&q, &result, &e);
		curl_global_cleanup();
	}
	if (r < 0) {
		(void)fprintf(stderr, "boxery-fetch: %s\n", e.text);
		return error_exit_status(&e);
	}
	(void)printf("%s\n", result.path);
	(void)fprintf(stderr, "boxery-fetch: %s, %.1f MiB\n", result.cached ? "in the cache, verified" : "fetched, verified",
			(double)result.size / 1048576.0);
	return EXIT_STATUS_OK;
}
