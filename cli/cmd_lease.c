/* Taking a clean VM out of a pool. `lease renew` and `lease ls` are in cmd_leases.c. */
#include "base/str.h"
#include "cli/lease.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LEASE_TTL_MS_DEFAULT (2ull * 3600 * 1000)

struct wanted {
	const char *pool, *holder, *key_file;
	uint64_t ttl, wait;
	bool broken, json;
	struct option_rest exec;
};

int lease_known_hosts(const struct keeper_reply *lease, char *dst, size_t size, struct error *e)
{
	/* One byte is left for a newline. */
	if (str_format_n(dst, size - 1, "%s,%s %s", lease->name, lease->address, lease->host_key) < 0)
		return error_set(e, EPROTO, "%s: its host key is too long", lease->name);
	return 0;
}

static int check(const struct wanted *w, const char *name, struct error *e)
{
	if ((w->pool && name_check(w->pool, "pool name", e) < 0) || name_check(w->holder, "holder", e) < 0)
		return -e->code;
	if (str_equal(w->holder, HOLDER_SERVICE) || str_equal(w->holder, HOLDER_ONCE))
		return error_set(e, EINVAL, "--as %s: this holder's name belongs to the runners; take another", w->holder);
	if (w->broken && !name)
		return error_set(e, EINVAL, "--broken needs the NAME of a BROKEN VM; 'boxery-host pool ls' lists them");
	if (w->broken && (w->exec.given || w->key_file || w->wait))
		return error_set(e, EINVAL, "--broken goes with none of --exec, --ssh-key, --wait: the VM is off");
	if (w->exec.given && !w->exec.argv[0][0])
		return error_set(e, EINVAL, "--exec: the name of the program is empty");
	if (w->exec.given && w->json)
		return error_set(e, EINVAL, "--json and --exec exclude each other: standard output is the program's");
	return 0;
}

static int fill(struct keeper_request *r, const struct wanted *w, const char *name, struct error *e)
{
	keeper_request_init(r, KEEPER_LEASE);
	if (check(w, name, e) < 0 || (name && cli_set_name(r, name, e) < 0) ||
			(w->key_file && cli_public_key(w->key_file, r->text, sizeof(r->text), e) < 0))
		return -e->code;
	/* A VM that is named is of whatever pool it is in, unless one was asked for. */
	(void)str_copy(r->pool, w->pool ? w->pool : name ? "" : POOL_DEFAULT);
	(void)str_copy(r->holder, w->holder);
	r->ttl_ms = w->ttl;
	r->wait_ms = w->wait;
	r->flags = (w->exec.given ? KEEPER_FLAG_BIND : 0u) | (w->broken ? KEEPER_FLAG_BROKEN : 0u);
	return 0;
}

/* A lease that nobody would know of: granted in the moment of an interruption, or its id could not be printed. */
static void give_back(const struct hostconf *conf, const struct keeper_reply *lease)
{
	CLEANUP(keeper_client_freep) struct keeper_client *client = NULL;
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_RELEASE);
	(void)str_copy(r.lease, lease->lease);
	(void)str_copy(r.text, "not taken");
	if (keeper_connect(conf, false, &client, NULL) == 0)
		(void)keeper_call(client, &r, -1, CLI_CALL_TIMEOUT_MS, NULL, NULL, NULL, NULL, NULL);
}

static int print_json(const struct keeper_reply *l, const char *known_hosts, const struct wanted *w)
{
	json_t *document = json_pack("{s:s,s:s,s:s,s:i,s:I,s:s,s:s,s:s,s:I}", "lease", l->lease, "name", l->name, "address",
			l->address, "port", 22, "generation", (json_int_t)l->generation, "host_key", l->host_key, "known_hosts",
			known_hosts, "evidence", w->broken ? l->text : "", "ttl_ms", (json_int_t)w->ttl);
	int status = document ? cli_print_json(document) : EXIT_STATUS_FAILED;

	json_decref(document);
	return status;
}

static int print(const struct keeper_reply *l, const struct wanted *w, struct error *e)
{
	char known_hosts[LEASE_KNOWN_HOSTS_MAX] = "", left[CLI_DURATION_MAX];

	if (!w->broken && lease_known_hosts(l, known_hosts, sizeof(known_hosts), e) < 0)
		return cli_fail(e);
	if (w->json)
		return print_json(l, known_hosts, w);
	printf("lease     %s\nname      %s\n", l->lease, l->name);
	if (w->broken)
		printf("evidence  %s\n", l->text[0] ? l->text : "none was kept");
	else
		printf("address   %s\nport      " LEASE_PORT "\nhost key  %s\n", l->address, known_hosts);
	printf("ends in   %s\n", cli_duration_text(w->ttl, left));
	if (!w->broken && !w->key_file && isatty(STDERR_FILENO))
		fprintf(stderr, "Nobody can log in to it: no --ssh-key was given.\n");
	return EXIT_STATUS_OK;
}

static int take(struct keeper_request *r, const struct wanted *w, struct error *e)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
	/* Without a program nothing is passed on: only what would end this process is waited for. */
	const size_t n = w->exec.given ? ARRAY_SIZE(signals) : 4;
	CLEANUP(keeper_client_freep) struct keeper_client *client = NULL;
	CLEANUP_FD int signal_fd = -1;
	struct keeper_reply reply;
	char waited[CLI_DURATION_MAX];
	struct hostconf conf;
	bool late = false;
	int status;

	if (hostconf_load(&conf, e) < 0 || keeper_connect(&conf, true, &client, e) < 0 ||
			cli_signals(signals, n, &signal_fd, e) < 0)
		return cli_fail(e);
	if (cli_wait_call(client, r, signal_fd, r->wait_ms + CLI_CALL_TIMEOUT_MS, &reply, &late, e) < 0) {
		if (late)
			give_back(&conf, &reply);
		if (e->code == EAGAIN && !w->broken && !strstr(e->text, "boxery-host "))
			(void)error_set(e, EAGAIN, "%s; %s%s", e->text, w->wait ? "waited in vain for " : "--wait TIME waits for "
					"a clean one", w->wait ? cli_duration_text(w->wait, waited) : "");
		return cli_fail(e);
	}
	if (w->exec.given)
		return lease_exec(&conf, TAKE_PTR(client), signal_fd, &reply, w->exec.argv);
	(void)signal(SIGPIPE, SIG_IGN);
	status = print(&reply, w, e);
	if (fflush(stdout) == EOF || ferror(stdout)) {
		give_back(&conf, &reply);
		(void)error_errno(e, errno, "the lease was given back, as it could not be printed");
		return cli_fail(e);
	}
	return status;
}

int cmd_lease(int argc, char **argv)
{
	struct wanted w = {.holder = "admin", .ttl = LEASE_TTL_MS_DEFAULT};
	const struct cli_option options[] = {
		{"pool", OPTION_TEXT, &w.pool, "POOL", "from this pool (default \"default\")", 0, 0},
		{"as", OPTION_TEXT, &w.holder, "HOLDER", "who holds it (default admin)", 0, 0},
		{"ttl", OPTION_DURATION, &w.ttl, "TIME", "ends by itself after this (default 2h, at most 7d)", CLI_TTL_MS_MIN,
				KEEPER_TTL_MAX_MS},
		{"wait", OPTION_DURATION, &w.wait, "TIME", "wait this long for a clean VM (default: not at all)", 0,
				KEEPER_WAIT_MAX_MS},
		{"ssh-key", OPTION_TEXT, &w.key_file, "FILE", "this ssh public key may log in as root; - is standard input", 0, 0},
		{"broken", OPTION_FLAG, &w.broken, NULL, "hold the BROKEN VM NAME, to look at what is left of it", 0, 0},
		{"json", OPTION_FLAG, &w.json, NULL, "machine-readable", 0, 0},
		{"exec", OPTION_REST, &w.exec, "PROGRAM", "run it (and all that follows) while the VM is leased", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host lease", "[NAME]",
			"Takes a clean VM, any of the pool or NAME, for exclusive use. 'release' or the end of the ttl resets it. See also\n"
			"'boxery-host lease renew --help' and 'boxery-host lease ls --help'.",
			options, ARRAY_SIZE(options), 0, 1};
	struct keeper_request r;
	struct error e = ERROR_INIT;
	int first, code;

	if (argc > 1 && str_equal(argv[1], "renew"))
		return cmd_lease_renew(argc - 1, argv + 1);
	if (argc > 1 && str_equal(argv[1], "ls"))
		return cmd_lease_ls(argc - 1, argv + 1);
	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	if (fill(&r, &w, argv[first], &e) < 0)
		return cli_fail(&e);
	return take(&r, &w, &e);
}
