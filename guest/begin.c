/*
 * begin - begins a life of this guest (CONTRACT.md). Run by the guest agent as root, text on stdin. Nothing of it is kept but
 * what goes to /run/boxery. Any failure ends with a sentence on stderr and without "done".
 *
 *   begin          the call of each life
 *   begin list     what is there
 *   begin settle   before a capture: wait until all is quiet, forget what need not be kept; then as list
 */
#include "guest/begin.h"
#include "base/parse.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define GENERATION RUN_DIR "/generation"
#define NS 1000000000ull

static int take(struct life *l, const char *key, const char *value, struct error *e)
{
	if (str_equal(key, "generation"))
		l->generation = value;
	else if (str_equal(key, "seed"))
		l->seed = value;
	else if (str_equal(key, "address"))
		l->address = value;
	else if (str_equal(key, "host_key"))
		l->host_key = value;
	else if (str_equal(key, "time"))
		return parse_u64(value, key, NS, UINT64_MAX, &l->time_ns, e);
	else if (!str_equal(key, "authorized_key"))
		return error_set(e, EINVAL,
			"unknown key '%.40s'; allowed: generation time seed address authorized_key host_key", key);
	else if (l->n_keys == KEYS_MAX)
		return error_set(e, E2BIG, "more than %d authorized keys", KEYS_MAX);
	else
		l->keys[l->n_keys++] = value;
	return 0;
}

static int parse(struct life *l, struct error *e)
{
	struct in_addr a;
	uint64_t number;
	char *next;
	int r;

	for (char *line = l->text; *line; line = next) {
		char *value, *end = strchr(line, '\n');

		next = end ? end + 1 : line + strlen(line);
		if (end)
			*end = '\0';
		value = strchr(line, ' ');
		if (!value || !value[1])
			return error_set(e, EINVAL, "a line without a value");
		*value++ = '\0';
		r = take(l, line, value, e);
		if (r < 0)
			return r;
	}
	if (!l->generation || !l->time_ns || !l->seed || !l->address || !l->host_key)
		return error_set(e, EINVAL, "one of generation, time, seed, address and host_key is missing");
	if (inet_pton(AF_INET, l->address, &a) != 1)
		return error_set(e, EINVAL, "address is not an IPv4 address");
	return parse_u64(l->generation, "generation", 0, UINT64_MAX, &number, e);
}

static int set_clock(uint64_t ns, struct error *e)
{
	const struct timespec t = {.tv_sec = (time_t)(ns / NS), .tv_nsec = (long)(ns % NS)};

	return clock_settime(CLOCK_REALTIME, &t) < 0 ? error_errno(e, errno, "cannot set the clock") : 0;
}

/* What lies here before a life begins is what an earlier one left: a clean image has none. */
static int is_there_a_lease(bool *ret, struct error *e)
{
	CLEANUP_DIR DIR *d = NULL;
	struct dirent *entry;

	if (mkdir(RUN_DIR, 0755) < 0 && errno != EEXIST)
		return error_errno(e, errno, RUN_DIR);
	d = opendir(RUN_DIR);
	if (!d || chmod(RUN_DIR, 0755) < 0)
		return error_errno(e, errno, RUN_DIR);
	while ((entry = readdir(d)))
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			*ret = true;
	return 0;
}

/* The host's end of the network answers DNS; the guest keeps no resolver of its own. */
static int put_names(const struct life *l, const struct utsname *u, struct error *e)
{
	char text[256];
	int r;

	(void)str_format(text, "nameserver %.*s.1\n", (int)(strrchr(l->address, '.') - l->address), l->address);
	r = put_text("/etc/resolv.conf", text, e);
	if (r < 0)
		return r;
	/* The VM's name came on the kernel's command line; without this line sudo asks DNS for it at every call. */
	(void)str_format(text, "127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost ip6-localhost ip6-loopback\n", u->nodename);
	return put_text("/etc/hosts", text, e);
}

static void say_listing(const struct buf *b)
{
	for (const char *p = b->data; p && *p; p += strcspn(p, "\n") + 1)
		(void)printf("seen %.*s\n", (int)strcspn(p, "\n"), p);
}

static int finish(struct error *e)
{
	(void)puts("done");
	return fflush(stdout) != 0 ? error_errno(e, errno, "cannot answer") : 0;
}

/* A whole line: scripts read it, and a shell's `read` fails without the end. */
static int put_generation(const char *generation, struct error *e)
{
	char line[32];
	int r = str_format(line, "%s\n", generation);

	return r < 0 ? error_errno(e, -r, "generation") : put_file(GENERATION, line, strlen(line), 0644, e);
}

static int begin(struct life *l, struct error *e)
{
	CLEANUP_BUF struct buf seen = BUF_INIT(LISTING_MAX);
	struct utsname u = {0};
	struct timespec now;
	char public[256];
	bool lease = false;
	int r;

	if (access(GENERATION, F_OK) == 0)
		return error_set(e, EEXIST, "a life has begun already: " GENERATION " exists");
	r = read_all(STDIN_FILENO, &l->text, INPUT_MAX, e);
	if (r == 0)
		r = parse(l, e);
	/* The clock first: it was right when the host wrote it. */
	if (r == 0)
		r = set_clock(l->time_ns, e);
	if (r == 0)
		r = is_there_a_lease(&lease, e);
	/* Host bytes into the random pool before anything here makes a key or a session. */
	if (r == 0)
		r = reseed(l->seed, e);
	if (r == 0)
		r = listing(&seen, e);
	if (r == 0)
		r = put_host_key(l->host_key, public, sizeof(public), e);
	if (r == 0)
		r = put_authorized_keys(l, e);
	(void)uname(&u);
	if (r == 0)
		r = put_names(l, &u, e);
	/* Written before anybody can reach this guest: from here on this life has begun. */
	if (r == 0)
		r = put_generation(l->generation, e);
	if (r == 0)
		r = network_up(l->address, e);
	if (r < 0)
		return r;
	say_listing(&seen);
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)printf("generation %s\nhost_key %s\nclock %lld%09ld\naddress %s\nlease %d\nkernel %s\n", l->generation, public,
		(long long)now.tv_sec, now.tv_nsec, l->address, lease, u.release);
	return finish(e);
}

static int show(int (*list)(struct buf *ret, struct error *e), struct error *e)
{
	CLEANUP_BUF struct buf seen = BUF_INIT(LISTING_MAX);
	int r = list(&seen, e);

	if (r < 0)
		return r;
	say_listing(&seen);
	return finish(e);
}

int main(int argc, char **argv)
{
	const char *verb = argc == 2 ? argv[1] : "";
	struct error e = ERROR_INIT;
	struct life l = {0};
	int r;

	(void)umask(077);
	if (argc == 1)
		r = begin(&l, &e);
	else if (str_equal(verb, "list"))
		r = show(listing, &e);
	else if (str_equal(verb, "settle"))
		r = show(settle, &e);
	else
		r = error_set(&e, EINVAL, "begin [list|settle]");
	if (l.text)
		explicit_bzero(l.text, INPUT_MAX + 1);
	if (r < 0)
		(void)fprintf(stderr, "begin: %s\n", e.text);
	return r < 0;
}
