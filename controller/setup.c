/*
 * boxery setup HOST: can it be reached, is boxery there and of a version that fits, what does its doctor say; then it is
 * remembered. The greeting is the one of `runners once`, so what is tried here is what is needed there.
 */
#include "controller/setup.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/options.h"
#include "controller/clock.h"
#include "controller/hosts.h"
#include "controller/process.h"
#include "link/link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define GREETING_MS 60000
#define DOCTOR_MS 300000

static int fail(const struct error *e)
{
	(void)fprintf(stderr, "%s%s\n", str_starts(e->text, "boxery ") ? "" : "boxery: ", e->text);
	return error_exit_status(e);
}

static int start(const char *host, const char *const *args, unsigned pipes, struct process *ret, struct error *e)
{
	CLEANUP_BUF struct buf line = BUF_INIT(FORWARD_LINE_MAX);
	const char *argv[FORWARD_ARGV_MAX];
	int r = forward_command(host, false, args, argv, &line, e);

	if (r == 0)
		r = process_start(argv, pipes | PROCESS_NO_TOKENS, ret, e);
	if (r < 0)
		forward_explain(host, e);
	return r;
}

static int status_of(struct process *p, uint64_t timeout_ms)
{
	uint64_t until = clock_now_ms() + timeout_ms;

	while (!process_reap(p) && clock_now_ms() < until)
		(void)poll(NULL, 0, 50);
	return p->ended && WIFEXITED(p->status) ? WEXITSTATUS(p->status) : -1;
}

static int why_not(const char *host, struct process *p, struct error *e)
{
	int status;

	p->in = fd_close(p->in);
	status = status_of(p, PROCESS_LOST_MS);
	if (status == 255 && host[0])
		return error_set(e, ENOTCONN, "%s cannot be reached; what ssh says is above", host);
	if (status == 127)
		return error_set(e, ENOENT, "%s is reached, but boxery-host is not installed there, or not in PATH", host);
	return error_set(e, EOPNOTSUPP, "boxery-host on %s does not know 'runners once' (exit status %d): install this version (%s) there",
			host[0] ? host : "this machine", status, forward_version());
}

/* 1: *ret is the host's hello; 0: more has to be read. */
static int take_hello(struct link_buffer *in, json_t **ret, struct error *e)
{
	enum link_type type;
	char text[LINK_TEXT_MAX];
	json_t *m;
	int r;

	while ((r = link_next(in, &type, &m, e)) == 1) {
		if (type == LINK_HELLO) {
			*ret = m;
			return 1;
		}
		link_shown(m, "text", text, sizeof(text));
		json_decref(m);
		if (type == LINK_ERROR)
			return error_set(e, EIO, "the host says: %s", text);
	}
	return r;
}

static int greet(const char *host, json_t **ret, struct error *e)
{
	static const char *const args[] = {"runners", "__once", NULL};
	CLEANUP(process_free) struct process p = PROCESS_INIT;
	CLEANUP(link_buffer_free) struct link_buffer in = LINK_BUFFER_INIT;
	uint64_t until = clock_now_ms() + GREETING_MS;
	int r = start(host, args, PROCESS_IN | PROCESS_OUT, &p, e);

	while (r == 0) {
		struct pollfd f = {.fd = p.out, .events = POLLIN};

		if (clock_now_ms() >= until)
			return error_set(e, ETIMEDOUT, "the host does not answer within a minute");
		(void)poll(&f, 1, 200);
		r = link_read(&in, p.out, e);
		if (r == 0)
			return why_not(host, &p, e);
		if (r > 0)
			r = take_hello(&in, ret, e);
		else if (r == -EAGAIN)
			r = 0;
		if (r == 0)
			error_clear(e);
	}
	return r < 0 ? r : link_agree(*ret, "this boxery", "boxery on the host", e);
}

static int remember(const char *host, const char *version, const char *arch, bool is_default, struct error *e)
{
	CLEANUP_FD int lock = -1;
	json_t *document = NULL, *hosts;
	int r = hosts_lock(&lock, e);

	if (r == 0)
		r = hosts_load(&document, e);
	if (r < 0)
		return r;
	hosts = json_object_get(document, "hosts");
	if (!json_is_object(hosts)) {
		hosts = json_object();
		(void)json_object_set_new(document, "hosts", hosts);
	}
	(void)json_object_set_new(hosts, host, json_pack("{s:s,s:s}", "version", version, "arch", arch));
	if (is_default || !json_is_string(json_object_get(document, "default")))
		(void)json_object_set_new(document, "default", json_string(host));
	r = hosts_save(document, e);
	json_decref(document);
	return r;
}

static int list(struct error *e)
{
	json_t *document = NULL, *host;
	const char *name, *usual;

	if (hosts_load(&document, e) < 0)
		return fail(e);
	usual = link_text(document, "default");
	json_object_foreach(json_object_get(document, "hosts"), name, host)
		(void)printf("%s %-30s boxery %s, %s\n", str_equal(name, usual) ? "*" : " ", name, link_text(host, "version"),
				link_text(host, "arch"));
	json_decref(document);
	return EXIT_STATUS_OK;
}

static int forget(const char *host, struct error *e)
{
	CLEANUP_FD int lock = -1;
	json_t *document = NULL;
	int r = hosts_lock(&lock, e);

	if (r == 0)
		r = hosts_load(&document, e);
	if (r == 0 && json_object_del(json_object_get(document, "hosts"), host) < 0)
		r = error_set(e, ENOENT, "no host '%.60s' is remembered", host);
	if (r == 0 && str_equal(link_text(document, "default"), host))
		(void)json_object_del(document, "default");
	if (r == 0)
		r = hosts_save(document, e);
	json_decref(document);
	return r < 0 ? fail(e) : EXIT_STATUS_OK;
}

static int look(const char *host, bool is_default, struct error *e)
{
	static const char *const doctor[] = {"doctor", NULL};
	CLEANUP(process_free) struct process p = PROCESS_INIT;
	const char *address = str_equal(host, HOSTS_THIS_MACHINE) ? "" : host;
	char version[32], arch[LINK_ARCH_MAX];
	json_t *hello = NULL;
	int status;

	if (forward_check_host(host, e) < 0 || greet(address, &hello, e) < 0 || link_arch(hello, arch, e) < 0) {
		json_decref(hello);
		return fail(e);
	}
	link_shown(hello, "version", version, sizeof(version));
	(void)printf("%s: boxery %s, %s\n", host, version, arch);
	if (!str_equal(version, forward_version()))
		(void)printf("%s: this is boxery %s; both speak protocol %d, so they work together\n", host, forward_version(), LINK_PROTOCOL);
	status = remember(host, version, arch, is_default, e) < 0 ? fail(e) : EXIT_STATUS_OK;
	json_decref(hello);
	if (status != EXIT_STATUS_OK)
		return status;
	if (start(address, doctor, 0, &p, e) < 0)
		return fail(e);
	status = status_of(&p, DOCTOR_MS);
	if (status >= 0)
		return status;
	(void)error_set(e, ETIMEDOUT, "its doctor does not come to an end");
	return fail(e);
}

int setup(int argc, char **argv)
{
	bool is_default = false, drop = false;
	const struct cli_option options[] = {
		{"default", OPTION_FLAG, &is_default, NULL, "use this host when none is named (the first one is, anyway)", 0, 0},
		{"forget", OPTION_FLAG, &drop, NULL, "forget this host", 0, 0},
	};
	const struct cli_usage usage = {"boxery setup", "[HOST]",
			"Looks whether HOST (what ssh calls it; . is this machine) can be reached and has a boxery that fits, runs its doctor, and remembers it.\n"
			"Without HOST: lists what is remembered; * marks the default.",
			options, ARRAY_SIZE(options), 0, 1};
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : fail(&e);
	if (is_default && drop)
		(void)error_set(&e, EINVAL, "boxery setup: --default and --forget exclude each other");
	else if (first == argc && (is_default || drop))
		(void)error_set(&e, EINVAL, "boxery setup: %s goes with a HOST", drop ? "--forget" : "--default");
	if (e.code)
		return fail(&e);
	process_end_with_us();
	if (first == argc)
		return list(&e);
	return drop ? forget(argv[first], &e) : look(argv[first], is_default, &e);
}
