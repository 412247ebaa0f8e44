/*
 * lease --exec: a program that runs while a VM is leased.
 *
 * The lease is bound to our connection to the keeper, and the program has us as its death signal's parent: kill -9 of this
 * process ends both. Signals that only we got are passed on (a terminal's Ctrl-C reaches the program by itself, its hang-up
 * may not). When the lease ends first (its ttl, the guest powered off, the keeper gone for REJOIN_MS), the program has
 * LEASE_END_GRACE_MS to end by itself, then gets SIGTERM, then SIGKILL: nothing shall go on working with a VM that is not there.
 *
 * A connection that ends is no end of the lease: the keeper drops a subscriber that was stopped (Ctrl-Z) while much happened,
 * and a keeper that ends leaves its VMs alone. Both are connected to again, and asked.
 */
#include "base/str.h"
#include "cli/lease.h"
#include "linux/clock.h"
#include "linux/spawn.h"
#include "pool/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LEASE_END_GRACE_MS 10000
#define REJOIN_MS 30000 /* so long the keeper may be away */
#define REJOIN_AGAIN_MS 300
#define REJOIN_CALL_MS 5000
#define KNOWN_HOSTS "known-hosts-"
#define STALE_S 60
#define REAP_MS 60000

extern char **environ;

struct exec {
	const struct hostconf *conf;
	const struct keeper_reply *lease;
	struct keeper_client *holder, *events; /* NULL: gone */
	struct child child;
	int signals;
	bool ended;           /* the lease */
	bool told;            /* that the keeper is away */
	uint64_t rejoin_until_us, again_us; /* while a connection is missing; 0: none is */
	int next_signal;      /* to be sent at deadline_us, 0: none */
	uint64_t deadline_us;
};

/* A run that was killed leaves its file. The living hold a lock on theirs; age covers the moment before it is taken. */
static void sweep(const char *folder)
{
	CLEANUP_DIR DIR *dir = opendir(folder);
	uint64_t now_s = clock_wall_us() / 1000000;
	struct stat st;

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		CLEANUP_FD int fd = -1;

		if (!str_starts(entry->d_name, KNOWN_HOSTS))
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_mtime + STALE_S < now_s &&
				flock(fd, LOCK_EX | LOCK_NB) == 0)
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	}
}

/* 0600 in the runtime folder, locked as long as the fd is open. */
static int write_known_hosts(const struct hostconf *conf, const struct keeper_reply *lease, char *path, size_t size,
		int *ret_fd, struct error *e)
{
	CLEANUP_FD int fd = -1;
	char line[LEASE_KNOWN_HOSTS_MAX];
	size_t len;

	sweep(conf->runtime_dir);
	if (lease_known_hosts(lease, line, sizeof(line), e) < 0)
		return -e->code;
	if (str_format_n(path, size, "%s/" KNOWN_HOSTS "XXXXXX", conf->runtime_dir) < 0)
		return error_set(e, ENAMETOOLONG, "%s: the runtime folder's path is too long", conf->runtime_dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return error_errno(e, errno, "cannot make a known_hosts file in %s", conf->runtime_dir);
	(void)flock(fd, LOCK_EX | LOCK_NB);
	len = strlen(line);
	line[len++] = '\n';
	if (write(fd, line, len) != (ssize_t)len) {
		int code = errno ? errno : EIO;

		(void)unlink(path);
		return error_errno(e, code, "cannot write %s", path);
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static void lease_ended(struct exec *x, const char *why)
{
	if (x->ended)
		return;
	x->ended = true;
	fprintf(stderr, "boxery-host: lease %s of %s %s; the program gets SIGTERM in %d s\n", x->lease->lease, x->lease->name, why,
			LEASE_END_GRACE_MS / 1000);
	x->next_signal = SIGTERM;
	x->deadline_us = clock_boot_us() + LEASE_END_GRACE_MS * 1000;
}

/*
 * What a terminal's keys send (SI_KERNEL) has gone to its whole foreground group, and so to the program. Its hang-up goes to the
 * session's leader alone, and that may be us.
 */
static void pass_signals_on(struct exec *x)
{
	struct signalfd_siginfo info;

	while (read(x->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_code != SI_KERNEL || info.ssi_signo == SIGHUP)
			(void)kill(x->child.pid, (int)info.ssi_signo);
}

/* The keeper has ended, or it has dropped a connection that was not read: we were stopped for a while. */
static void lost(struct exec *x, struct keeper_client **which)
{
	*which = keeper_client_free(*which);
	x->again_us = clock_boot_us();
	if (!x->rejoin_until_us)
		x->rejoin_until_us = x->again_us + REJOIN_MS * 1000;
}

static void read_events(struct exec *x)
{
	struct keeper_answer a;
	char why[KEEPER_TEXT_MAX];
	int code;

	while ((code = keeper_receive(x->events, &a, NULL)) == 1) {
		free(a.document);
		if (a.type != KEEPER_EVENT || !str_equal(a.event.lease, x->lease->lease) ||
				state_has_lease((enum vm_state)a.event.to))
			continue;
		(void)snprintf(why, sizeof(why), "has ended: %.480s", a.event.text[0] ? a.event.text : "its VM is being reset");
		lease_ended(x, why);
	}
	if (code != -EAGAIN)
		lost(x, &x->events);
}

/* Nothing comes here but the end. */
static void read_holder(struct exec *x)
{
	struct keeper_answer a;
	int code;

	while ((code = keeper_receive(x->holder, &a, NULL)) == 1)
		free(a.document);
	if (code != -EAGAIN)
		lost(x, &x->holder);
}

/* Of a lease that has ended, and of one that is only not closed yet. */
static bool is_open(const json_t *document, const char *id)
{
	const json_t *lease;
	enum vm_state state;
	size_t i;

	json_array_foreach(json_object_get(document, "leases"), i, lease)
		if (str_equal(json_string_value(json_object_get(lease, "lease")), id))
			return json_is_true(json_object_get(lease, "open")) &&
					state_from_string(json_string_value(json_object_get(lease, "state")), &state) == 0 &&
					state_has_lease(state);
	return false;
}

/* Events tell only of what comes; so whoever has just subscribed asks how it stands. -EALREADY: the lease has ended. */
static int watch_lease(struct exec *x, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	struct keeper_request r;
	json_t *document;
	bool open;
	int code = cli_subscribe(x->conf, false, &x->events, e);

	keeper_request_init(&r, KEEPER_LEASES);
	(void)str_copy(r.name, x->lease->name);
	if (code == 0)
		code = keeper_call(x->events, &r, -1, CLI_CALL_TIMEOUT_MS, NULL, NULL, NULL, &text, e);
	if (code < 0) {
		x->events = keeper_client_free(x->events);
		return code;
	}
	document = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
	open = is_open(document, x->lease->lease);
	json_decref(document);
	return open ? 0 : error_set(e, EALREADY, "has ended already; 'boxery-host history %s' tells why", x->lease->lease);
}

/* The lease to a new connection; its time stays as it is. */
static int bind_again(struct exec *x, struct error *e)
{
	struct keeper_request r;
	int code = keeper_connect(x->conf, false, &x->holder, e);

	keeper_request_init(&r, KEEPER_RENEW);
	(void)str_copy(r.lease, x->lease->lease);
	r.flags = KEEPER_FLAG_BIND;
	r.ttl_ms = 1;
	if (code == 0)
		code = keeper_call(x->holder, &r, -1, REJOIN_CALL_MS, NULL, NULL, NULL, NULL, e);
	if (code < 0)
		x->holder = keeper_client_free(x->holder);
	/* The keeper's sentence begins as ours does. */
	return code == -EALREADY ? error_set(e, EALREADY, "has ended meanwhile; 'boxery-host history %s' tells why", x->lease->lease) : code;
}

/* Whatever connection is missing. A keeper that does not come back cannot be asked what became of the lease. */
static void rejoin(struct exec *x)
{
	struct error e = ERROR_INIT;
	char why[KEEPER_TEXT_MAX];
	int code = 0;

	if (!x->rejoin_until_us || x->ended || clock_boot_us() < x->again_us)
		return;
	if (!x->holder)
		code = bind_again(x, &e);
	if (code == 0 && !x->events)
		code = watch_lease(x, &e);
	x->again_us = clock_boot_us() + REJOIN_AGAIN_MS * 1000;
	if (code == 0) {
		x->rejoin_until_us = 0;
		x->told = false;
	} else if (code == -EALREADY || code == -ENOENT) {
		lease_ended(x, e.text);
	} else if (clock_boot_us() >= x->rejoin_until_us) {
		(void)snprintf(why, sizeof(why), "cannot be held: the keeper has gone away: %.400s", e.text);
		lease_ended(x, why);
	} else if (!x->told) {
		x->told = true;
		fprintf(stderr, "boxery-host: the keeper has gone away; its return is awaited for %d s\n", REJOIN_MS / 1000);
	}
}

static void remind(struct exec *x)
{
	if (!x->next_signal || clock_boot_us() < x->deadline_us)
		return;
	(void)kill(x->child.pid, x->next_signal);
	x->next_signal = x->next_signal == SIGTERM ? SIGKILL : 0;
	x->deadline_us = clock_boot_us() + LEASE_END_GRACE_MS * 1000;
}

/* Before the program is there to get it. */
static bool ended_already(const struct exec *x)
{
	struct signalfd_siginfo info;
	bool ended = false;

	while (read(x->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		ended = ended || info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP ||
				info.ssi_signo == SIGQUIT;
	return ended;
}

static int wait_ms(const struct exec *x)
{
	if (x->next_signal)
		return cli_poll_ms(x->deadline_us);
	return x->rejoin_until_us && !x->ended ? cli_poll_ms(x->again_us) : -1;
}

static int run(struct exec *x, char **argv, struct error *e)
{
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	int status = 0, code;

	if (ended_already(x))
		return error_set(e, ECANCELED, "interrupted before the program was run");
	o.program = argv[0];
	o.argv = (const char *const *)argv;
	o.env = (const char *const *)environ;
	o.stdin_fd = STDIN_FILENO;
	o.search_path = true;
	code = spawn(&o, &x->child, e);
	if (code < 0)
		return error_wrap(e, "--exec");
	for (;;) {
		struct pollfd p[] = {{.fd = x->child.pidfd, .events = POLLIN}, {.fd = x->signals, .events = POLLIN},
				{.fd = x->events ? keeper_client_fd(x->events) : -1, .events = POLLIN},
				{.fd = x->holder ? keeper_client_fd(x->holder) : -1, .events = POLLIN}};

		if (poll(p, ARRAY_SIZE(p), wait_ms(x)) < 0)
			continue;
		if (p[0].revents)
			break;
		if (p[1].revents)
			pass_signals_on(x);
		if (p[2].revents)
			read_events(x);
		if (p[3].revents)
			read_holder(x);
		rejoin(x);
		remind(x);
	}
	code = spawn_wait(&x->child, REAP_MS, &status, e);
	if (code < 0)
		return code;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int set_environment(const struct keeper_reply *lease, const char *known_hosts, struct error *e)
{
	const char *const variables[][2] = {{"BOXERY_LEASE", lease->lease}, {"BOXERY_VM", lease->name},
			{"BOXERY_ADDRESS", lease->address}, {"BOXERY_PORT", LEASE_PORT}, {"BOXERY_KNOWN_HOSTS", known_hosts}};

	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		if (setenv(variables[i][0], variables[i][1], 1) < 0)
			return error_errno(e, errno, "cannot set %s", variables[i][0]);
	return 0;
}

/*
 * Whatever the program did, and also when it could not be run. The keeper may be gone; the next one finds a lease that nobody
 * holds, and ends it.
 */
static void release(struct exec *x)
{
	struct keeper_request r;
	struct error e = ERROR_INIT;
	struct keeper_reply reply;
	bool late;
	int code = x->holder ? 0 : keeper_connect(x->conf, false, &x->holder, &e);

	keeper_request_init(&r, KEEPER_RELEASE);
	(void)str_copy(r.lease, x->lease->lease);
	(void)str_copy(r.text, "released");
	if (code == 0)
		code = cli_wait_call(x->holder, &r, -1, CLI_CALL_TIMEOUT_MS, &reply, &late, &e);
	if (code < 0 && code != -EALREADY && !x->ended)
		fprintf(stderr, "boxery-host: lease %s of %s: %s; it ends with this process\n", x->lease->lease,
				x->lease->name, e.text);
	x->holder = keeper_client_free(x->holder);
}

static int hold(struct exec *x, struct error *e)
{
	char text[KEEPER_TEXT_MAX];
	int code = watch_lease(x, e);

	if (code != -EALREADY)
		return code;
	(void)str_copy(text, e->text);
	return error_set(e, EALREADY, "lease %s of %s %s", x->lease->lease, x->lease->name, text);
}

int lease_exec(const struct hostconf *conf, struct keeper_client *client, int signals, const struct keeper_reply *lease,
		char **argv)
{
	CLEANUP_FD int lock = -1;
	char path[512] = "";
	struct error e = ERROR_INIT;
	struct exec x = {.conf = conf, .lease = lease, .holder = client, .child = CHILD_INIT, .signals = signals};
	int status = -1;

	/* The subscription stands before the program runs, so that no end of the lease is missed. */
	if (write_known_hosts(conf, lease, path, sizeof(path), &lock, &e) == 0 && set_environment(lease, path, &e) == 0 &&
			hold(&x, &e) == 0)
		status = run(&x, argv, &e);
	if (lock >= 0)
		(void)unlink(path);
	release(&x);
	x.events = keeper_client_free(x.events);
	if (status >= 0)
		return status;
	(void)cli_fail(&e);
	if (e.code == ECANCELED)
		return EXIT_STATUS_INTERRUPTED;
	return e.code == ENOENT || e.code == ENOTDIR ? LEASE_EXEC_NOT_FOUND : LEASE_EXEC_NOT_RUN;
}
