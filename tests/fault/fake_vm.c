/*
 * A stand-in for boxery-vm: the same protocol on fd 3, a folder instead of libvirt (fake_world.h). It keeps to the contract of
 * vm/proto.h strictly (a start of a generation that is not above the recorded one is refused), so that a keeper that
 * breaks it fails here. What a script may ask of it:
 *
 *   ok | slow MS            do it, after a while
 *   fail CODE STEP TEXT     do nothing, say so
 *   late                    do it, end without a result
 *   bad IMAGE               START: fails while its clean state is on that image
 *   half                    REMOVE: the clean state goes, the rest stays, no result
 *   noresult | crash | hang do nothing: exit status 3, SIGKILL, never end
 *   linger                  do it, send the result, do not end
 *   garbage | flood | twice what no boxery-vm would send: nonsense, steps without end, two results
 *   badkey | badaddress     START, WAKE: a result whose life cannot be recorded
 *   asleep                  START: in standby, whether that was asked for or not; nokey: awake, without a key
 *   dead MS                 START, WAKE: the domain is gone this long before the result, which says that all is well
 *   drop MS                 WAKE: the domain is gone this long before the result, which is a failure
 *   shortlife MS            START: the domain is gone this long after the result (its watch says so)
 *   stopped NAME GENERATION WATCH: says that this life has stopped, whatever runs
 *   crashed      STOPPED: what WATCH says of a domain that is gone, instead of "shutdown"
 */
#include "tests/fault/fake_world.h"
#include "vm/proto.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOCKET 3
#define WATCH_POLL_MS 15
#ifndef WATCH_LISTING_EVERY
#define WATCH_LISTING_EVERY 14 /* polls */
#endif

static const char *const verbs[] = {"", "CHECK", "NEW", "START", "RESET", "STOP", "CAPTURE", "REMOVE", "FILTER", "LIST",
		"WATCH", "GRANT", "WAKE", "UNINSTALL", "PATCH", "SETTLE"};
static struct vm_request q;
static struct vm_result res;

static void say(const void *msg)
{
	struct msg_head h;

	memcpy(&h, msg, sizeof(h));
	if (send(SOCKET, msg, h.length, MSG_NOSIGNAL) < 0)
		_exit(4);
}

static void step(const char *name, const char *text)
{
	struct vm_step s = {.head = MSG_HEAD(VM_STEP, struct vm_step, 1), .took_us = 1000};

	(void)snprintf(s.step, sizeof(s.step), "%s", name);
	(void)snprintf(s.text, sizeof(s.text), "%s", text);
	say(&s);
}

static void path_of(char dst[static 128], const char *folder, const char *name)
{
	(void)snprintf(dst, 128, "%s/%s", folder, name);
}

static int failed(int code, const char *where, const char *text)
{
	res.code = -code;
	(void)snprintf(res.step, sizeof(res.step), "%s", where);
	(void)snprintf(res.text, sizeof(res.text), "%s", text);
	return -1;
}

static void remove_file(const char *folder)
{
	char path[128];

	path_of(path, folder, q.name);
	(void)unlinkat(world, path, 0);
}

static void write_number(const char *folder, uint64_t a, uint64_t b)
{
	char path[128], text[64];

	path_of(path, folder, q.name);
	(void)snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 "\n", a, b);
	world_write(path, text);
}

/* Tells its life: the stand-in for boxery-deliver writes this down, so that a test sees which lives got a secret. */
static int give_life(const char *how)
{
	(void)snprintf(res.host_key, sizeof(res.host_key), "ssh-ed25519 AAAA+%s+%" PRIu64, q.name, q.generation);
	for (char *p = res.host_key + 12; *p; p++)
		if (*p == '-')
			*p = '/';
	(void)snprintf(res.address, sizeof(res.address), "127.77.0.%u", 10 + q.slot);
	if (strcmp(how, "badkey") == 0)
		(void)snprintf(res.host_key, sizeof(res.host_key), "ssh-ed25519 AAAA\nevil ssh-ed25519 BBBB");
	if (strcmp(how, "badaddress") == 0)
		(void)snprintf(res.address, sizeof(res.address), "example.org");
	if (strcmp(how, "nokey") == 0)
		res.host_key[0] = '\0';
	return 0;
}

/*
 * What a VM's clean state stands on: base/NAME while it is not what the VM was made with (debian-12, or of whose clean state it
 * starts); before/NAME: the one before, while nothing is decided.
 */
static void write_base(const char *folder, const char *image)
{
	char path[128];

	(void)mkdirat(world, folder, 0700);
	path_of(path, folder, q.name);
	world_write(path, image);
}

static bool read_base(const char *folder, const char *name, char dst[static LINE_MAX_])
{
	char path[128];

	dst[0] = '\0';
	path_of(path, folder, name);
	if (faccessat(world, path, F_OK, 0) < 0)
		return false;
	(void)world_read(path, dst, LINE_MAX_);
	dst[strcspn(dst, "\n")] = '\0';
	return true;
}

static const char *base_of(char dst[static LINE_MAX_])
{
	if (!read_base("base", q.name, dst) && !(q.clean_of[0] && read_base("base", q.clean_of, dst)))
		(void)snprintf(dst, LINE_MAX_, "debian-12");
	return dst;
}

static void settle(void)
{
	char before[LINE_MAX_], now[LINE_MAX_];

	if (!read_base("before", q.name, before))
		return;
	if (strcmp(base_of(now), q.image) != 0)
		write_base("base", before);
	remove_file("before");
	world_log("settled.log", "%s %s\n", q.name, base_of(now));
}

static int do_patch(void)
{
	char before[LINE_MAX_], now[LINE_MAX_];

	if (strcmp(q.image, "debian-12") != 0 && strcmp(q.image, "debian-13") != 0)
		return failed(ENOENT, "base", "there is no such base image");
	if (world_generation("domains", q.name) > q.generation)
		return failed(ESTALE, "destroy", "a later life runs");
	remove_file("domains");
	if (!read_base("before", q.name, before))
		write_base("before", base_of(now));
	write_base("base", q.image);
	return 0;
}

/* A life that START has left paused: the second number of its domain is 1. */
static int do_wake(const char *how)
{
	char path[128], line[LINE_MAX_];
	unsigned asleep = 0;

	if (world_generation("domains", q.name) != q.generation)
		return failed(ESTALE, "resume", "another life of it runs, or none");
	if (strncmp(q.key_line, "ssh-ed25519 ", 12) != 0)
		return failed(EINVAL, "begin", "no key line");
	path_of(path, "domains", q.name);
	(void)world_read(path, line, sizeof(line));
	if (sscanf(line, "%*u %u", &asleep) == 1 && asleep)
		write_number("domains", q.generation, 0);
	step("resume", asleep ? "" : "awake already");
	step("begin", "");
	step("check", "clean");
	return give_life(how);
}

static int do_start(const char *how)
{
	uint64_t recorded = world_generation("settings", q.name), running = world_generation("domains", q.name);
	const bool standby = q.flags & VM_FLAG_STANDBY || strcmp(how, "asleep") == 0;
	char base[LINE_MAX_];

	if (strncmp(how, "bad ", 4) == 0 && strcmp(how + 4, base_of(base)) == 0)
		return failed(ETIMEDOUT, "agent", "it does not boot");
	if (recorded && recorded - 1 == q.generation && running == q.generation) {
		step("domain", "runs already");
	} else {
		if (recorded == 0)
			return failed(ENOENT, "settings", "there is no such VM");
		if (q.generation <= recorded - 1)
			return failed(ESTALE, "settings", "the generation is not above the recorded one");
		if (running)
			return failed(EBUSY, "domain", "another life of it runs");
		if (strncmp(q.key_line, "ssh-ed25519 ", 12) != 0)
			return failed(EINVAL, "settings", "no key line");
		if (!(q.flags & VM_FLAG_PLAIN) && !world_generation("clean", q.clean_of[0] ? q.clean_of : q.name))
			return failed(ENOENT, "clean", "it has no clean state");
		write_number("settings", q.generation + 1, q.slot);
		remove_file("broken");
		write_number("run", q.generation, 0);
		step("overlay", "");
		write_number("domains", q.generation, standby);
		world_log("starts.log", "%s %" PRIu64 " %s%s\n", q.name, q.generation, q.flags & VM_FLAG_WARM ? "warm" : "cold",
				q.flags & VM_FLAG_STANDBY ? " standby" : "");
		world_log("bases.log", "%s %" PRIu64 " %s\n", q.name, q.generation, base_of(base));
		world_log("limits.log", "%s %u %u %u %u %u\n", q.name, q.start_cpus, q.start_memory_mib, q.disk_mib_per_s,
				q.disk_iops, q.net_kib_per_s);
		step("domain", "created");
		if (!standby)
			step("begin", "a guest's word\x1b[31m");
		step("check", "clean");
	}
	res.warm = (q.flags & VM_FLAG_WARM) != 0;
	res.standby = standby;
	if (standby && strcmp(how, "badkey") != 0) /* in standby any key is a bad one */
		return 0;
	return give_life(how);
}

static int do_reset(void)
{
	uint64_t running = world_generation("domains", q.name);

	if (running > q.generation)
		return failed(ESTALE, "destroy", "a later life runs");
	remove_file("domains");
	step("destroy", "");
	if (q.flags & VM_FLAG_HALT)
		return 0;
	remove_file("broken");
	if (q.flags & VM_FLAG_EVIDENCE && world_generation("run", q.name)) {
		char from[128], to[128];

		path_of(from, "run", q.name);
		path_of(to, "broken", q.name);
		if (renameat(world, from, world, to) < 0)
			return failed(errno, "evidence", "cannot keep the overlay");
		(void)snprintf(res.text, sizeof(res.text), "/images/broken/%s.qcow2", q.name);
	}
	remove_file("run");
	if (!(q.flags & (VM_FLAG_TRIAL | VM_FLAG_EVIDENCE)))
		settle();
	if (q.flags & VM_FLAG_DROP_MEMORY) {
		step("memory", "image dropped");
		world_log("dropped.log", "%s %" PRIu64 "\n", q.name, q.generation);
	}
	return 0;
}

static int do_grant(void)
{
	if (world_generation("domains", q.name) != q.generation)
		return failed(ESTALE, "grant", "another life of it runs, or none");
	if (strchr(q.key_line, '\n') || strncmp(q.key_line, "ssh-", 4) != 0)
		return failed(EINVAL, "grant", "no key line");
	world_log("grants.log", "%s %" PRIu64 " %s\n", q.name, q.generation, q.key_line);
	return 0;
}

static int do_new(void)
{
	if (strcmp(q.image, "debian-12") != 0 && strcmp(q.image, "debian-13") != 0)
		return failed(ENOENT, "image", "there is no such base image");
	if (q.clean_of[0] && !world_generation("clean", q.clean_of))
		return failed(ENOENT, "clean", "there is no such clean state");
	if (q.flags & VM_FLAG_FRESH && world_generation("settings", q.name))
		return failed(EEXIST, "new", "its settings file is there already");
	if (q.flags & VM_FLAG_FRESH)
		step(VM_STEP_MAKING, "");
	if (!world_generation("settings", q.name))
		write_number("settings", 1, q.slot);
	return 0;
}

static int do_capture(void)
{
	if (world_generation("domains", q.name))
		return failed(EBUSY, "capture", "it runs");
	write_number("clean", 1, 0);
	return 0;
}

static int do_filter(void)
{
	return world_generation("domains", q.name) == q.generation ? 0 : failed(ENOENT, "filter", "no filter for this life");
}

static int do_check(void)
{
	step("network", "boxery is active");
	step("virt", "software emulation: no /dev/kvm");
	return 0;
}

static void entry(const char *name)
{
	struct vm_entry e = {.head = MSG_HEAD(VM_ENTRY, struct vm_entry, 1)};
	char trouble[64];

	(void)snprintf(e.name, sizeof(e.name), "%.40s", name);
	e.generation = world_generation("domains", name);
	e.running = e.generation != 0;
	(void)snprintf(trouble, sizeof(trouble), "trouble/%.40s", name);
	(void)world_read(trouble, e.trouble, sizeof(e.trouble));
	e.stuck = strncmp(e.trouble, "its guest was stopped", 21) == 0;
	e.plain = strncmp(e.trouble, "its disk", 8) == 0;
	if (!e.running && !world_generation("settings", name))
		return;
	say(&e);
	/* Somebody copied the domain, mark and all. */
	(void)snprintf(trouble, sizeof(trouble), "twins/%.40s", name);
	if (e.running && faccessat(world, trouble, F_OK, 0) == 0)
		say(&e);
}

static void entries(const char *folder, bool skip_running)
{
	int fd = openat(world, folder, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *f;

	while (d && (f = readdir(d)))
		if (f->d_name[0] != '.' && !(skip_running && world_generation("domains", f->d_name)))
			entry(f->d_name);
	if (d)
		(void)closedir(d);
}

static bool down(void)
{
	return faccessat(world, "down", F_OK, 0) == 0;
}

static void event(int kind, const char *name, uint64_t generation, const char *text)
{
	struct vm_event_msg m = {.head = MSG_HEAD(VM_EVENT, struct vm_event_msg, 1), .kind = kind, .generation = generation};

	(void)snprintf(m.name, sizeof(m.name), "%s", name);
	(void)snprintf(m.text, sizeof(m.text), "%s", text);
	say(&m);
}

struct seen {
	char name[VM_NAME_MAX];
	uint64_t generation;
};

/* What ran at the last look and does not any more, or runs with another generation, has stopped. */
static void tell_stopped(struct seen *seen, unsigned *n)
{
	for (unsigned i = 0; i < *n; i++) {
		char how[LINE_MAX_];

		if (world_generation("domains", seen[i].name) == seen[i].generation)
			continue;
		world_script("STOPPED", seen[i].name, how, sizeof(how));
		event(VM_EVENT_STOPPED, seen[i].name, seen[i].generation, strcmp(how, "ok") == 0 ? "shutdown" : how);
	}
	*n = 0;
	int fd = openat(world, "domains", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *f;
	while (d && (f = readdir(d)) && *n < 512) {
		uint64_t generation = f->d_name[0] == '.' ? 0 : world_generation("domains", f->d_name);

		if (!generation)
			continue;
		(void)snprintf(seen[*n].name, sizeof(seen[*n].name), "%.40s", f->d_name);
		seen[(*n)++].generation = generation;
	}
	if (d)
		(void)closedir(d);
}

static void watch(void)
{
	static struct seen seen[512];
	unsigned n = 0, polls = 0;
	bool was_down = false;
	char where[VM_STEP_MAX], text[256];
	int code;

	for (;;) {
		struct pollfd p = {.fd = SOCKET, .events = 0};
		char how[LINE_MAX_];

		world_script("WATCH", "", how, sizeof(how));
		if (sscanf(how, "stopped %31s %d", where, &code) == 2)
			event(VM_EVENT_STOPPED, where, (uint64_t)code, "shutdown");
		if (strcmp(how, "crash") == 0)
			(void)raise(SIGKILL);
		if (strcmp(how, "garbage") == 0)
			(void)send(SOCKET, "nonsense", 8, MSG_NOSIGNAL);
		if (sscanf(how, "fail %d %31s %255[^\n]", &code, where, text) == 3) {
			(void)failed(code, where, text);
			say(&res);
			_exit(1);
		}
		if (down() && !was_down)
			event(VM_EVENT_DISCONNECTED, "", 0, "connection reset");
		if (!down()) {
			if (strcmp(how, "deaf") != 0) /* listings only: an event that got lost */
				tell_stopped(seen, &n);
			if (was_down || polls++ % WATCH_LISTING_EVERY == 0) {
				entries("domains", false);
				entries("trouble", true);
				event(VM_EVENT_SNAPSHOT, "", 0, "");
			}
		}
		was_down = down();
		if (poll(&p, 1, WATCH_POLL_MS) > 0 && p.revents & POLLHUP)
			_exit(0);
	}
}

static int act(const char *how)
{
	if (down())
		return failed(ECONNREFUSED, "connect", "libvirt does not answer");
	switch (q.head.type) {
	case VM_CHECK:
		return do_check();
	case VM_NEW:
		return do_new();
	case VM_START:
		return do_start(how);
	case VM_WAKE:
		return do_wake(how);
	case VM_RESET:
		return do_reset();
	case VM_STOP:
		remove_file("domains");
		return 0;
	case VM_CAPTURE:
		return do_capture();
	case VM_REMOVE:
		remove_file("domains");
		remove_file("clean");
		remove_file("run");
		remove_file("broken");
		remove_file("base");
		remove_file("before");
		remove_file("settings");
		return 0;
	case VM_UNINSTALL:
		world_log("uninstalls.log", "gone\n");
		step("network", "was removed");
		return 0;
	case VM_PATCH:
		return do_patch();
	case VM_SETTLE:
		settle();
		return 0;
	case VM_FILTER:
		return do_filter();
	case VM_GRANT:
		return do_grant();
	default:
		entries("domains", false);
		entries("settings", true);
		return 0;
	}
}

static int misbehave(const char *how)
{
	char where[VM_STEP_MAX] = "", text[256] = "";
	int code = EIO;

	if (sscanf(how, "fail %d %31s %255[^\n]", &code, where, text) >= 1)
		return failed(code, where, text);
	if (strcmp(how, "half") == 0)
		remove_file("clean");
	if (strcmp(how, "noresult") == 0 || strcmp(how, "half") == 0)
		_exit(3);
	if (strcmp(how, "crash") == 0)
		(void)raise(SIGKILL);
	while (strcmp(how, "hang") == 0)
		pause_ms(1000);
	while (strcmp(how, "flood") == 0)
		step("again", "and again");
	if (strcmp(how, "garbage") == 0) {
		(void)send(SOCKET, "nonsense", 8, MSG_NOSIGNAL);
		pause_ms(60000);
	}
	return 0;
}

int main(void)
{
	unsigned ms = 0;
	char how[LINE_MAX_];
	const char *verb;

	world_open();
	(void)prctl(PR_SET_NAME, VM_SPARE_NAME);
	if (recv(SOCKET, &q, sizeof(q), 0) != sizeof(q) || q.head.length != sizeof(q) || q.head.type < VM_CHECK ||
			q.head.type > VM_SETTLE)
		return 2;
	(void)prctl(PR_SET_NAME, "boxery-vm");
	res.head = MSG_HEAD(VM_RESULT, struct vm_result, 1);
	if (q.head.type == VM_WATCH)
		watch();
	verb = verbs[q.head.type];
	world_script(verb, q.name, how, sizeof(how));
	world_log("ops.log", "%s %s %" PRIu64 " begin\n", verb, q.name, q.generation);
	world_log("pids.log", "%d\n", getpid());
	if (sscanf(how, "slow %u", &ms) == 1)
		pause_ms(ms);
	if (misbehave(how) == 0)
		(void)act(how);
	if (sscanf(how, "dead %u", &ms) == 1) {
		pause_ms(60); /* so that the watch has seen it */
		remove_file("domains");
		pause_ms(ms);
	}
	if (sscanf(how, "drop %u", &ms) == 1) {
		remove_file("domains");
		pause_ms(ms);
		(void)failed(EIO, "agent", "the guest is gone");
	}
	world_log("ops.log", "%s %s %" PRIu64 " %s\n", verb, q.name, q.generation, res.code ? "failed" : "ok");
	if (strcmp(how, "late") == 0)
		return 3;
	say(&res);
	if (strcmp(how, "twice") == 0)
		say(&res);
	if (sscanf(how, "shortlife %u", &ms) == 1 && fork() == 0) {
		(void)close(SOCKET);
		pause_ms(ms);
		remove_file("domains");
	}
	while (strcmp(how, "linger") == 0)
		pause_ms(1000);
	return 0;
}
