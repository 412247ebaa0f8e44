/*
 * boxery-vm on libvirt's own test driver (test+unix:///... through a libvirtd, whose state lives as long as one connection is
 * held): the real program but for what needs a guest, a network or a disk image. Its locks, files, generations, listings,
 * events, results and order of acts are the product's. What stands in, all of it deterministic:
 *
 *   domains   type 'test', otherwise the XML of a real one
 *   disks     small text files: "test disk on BACKING"; a line more in an overlay is what a guest has left there
 *   guest     answers at once. Its `begin` says what a real one would, and "not clean" when its overlay is not fresh.
 *             Its `grant` leaves a line in the overlay. A shutdown destroys it.
 *   filter    in force for every tap while isolation is on
 *   memory    a text file; restored, it is a domain as any other
 *   network   always up; slots 0 to 4095 with addresses 127.77.H.L (H:L = slot + 10), where a test may listen
 *
 * A folder named by BOXERY_TESTDRIVER makes it fail or wait (a file's content is not read but for `delay`):
 *   NAME.agent     the guest's agent never answers        NAME.begin    `begin` fails
 *   NAME.dies      the guest ends by itself at `begin`    NAME.filter   its filter is not in force
 *   NAME.delay     milliseconds to wait at the agent      disk          no disk can be made
 *   NAME.full      hardly any space on its disk
 *   NAME.more      a process more in its listing          NAME.save     its memory cannot be saved
 *   NAME.settle    it does not come to rest               restore       no memory can be restored
 */
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/agent.h"
#include "vm/begin.h"
#include "vm/connections.h"
#include "vm/disk.h"
#include "vm/domain.h"
#include "vm/filter.h"
#include "vm/memory.h"
#include "vm/network.h"
#include "vm/op.h"
#include "vm/probe.h"
#include "vm/rate.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define DISK_GIB_DEFAULT 1
#define DISK_TEXT_MAX (64 * 1024)
#define KEY_OFFSET_MAGIC "openssh-key-v1"
#define LISTING_OF(more, space) "seen process 0 systemd /usr/lib/systemd/systemd\n" more "seen space " space " 50000\nseen taint 0\n"
#define LISTING(more) LISTING_OF(more, "1000000")

static bool told_to(const char *name, const char *what)
{
	const char *folder = getenv("BOXERY_TESTDRIVER");
	char path[512];

	return folder && str_format(path, "%s/%s%s%s", folder, name, name[0] ? "." : "", what) == 0 &&
	       access(path, F_OK) == 0;
}

static unsigned told_delay_ms(const char *name)
{
	const char *folder = getenv("BOXERY_TESTDRIVER");
	CLEANUP_FREE char *text = NULL;
	char path[512];
	uint64_t ms = 0;

	if (!folder || str_format(path, "%s/%s.delay", folder, name) < 0 ||
			file_read(AT_FDCWD, path, 64, &text, NULL, NULL) < 0)
		return 0;
	text[strcspn(text, "\n")] = '\0';
	return parse_u64(text, "delay", 0, 600000, &ms, NULL) < 0 ? 0 : (unsigned)ms;
}

/* Disks. */

int disk_virtual_size(const char *path, uint64_t *ret, struct error *e)
{
	if (access(path, R_OK) < 0)
		return error_errno(e, errno, "%s", path);
	*ret = DISK_GIB_DEFAULT * 1024ull * 1024 * 1024;
	return 0;
}

static int disk_write(const char *path, const char *backing, const char *rest, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(DISK_TEXT_MAX);
	CLEANUP_FD int fd = -1;
	int r = buf_addf(&b, "test disk on %s\n%s", backing, rest);

	if (told_to("", "disk"))
		return error_set(e, ENOSPC, "%s: the test has said that no disk can be made", path);
	if (r < 0)
		return error_errno(e, -r, "%s", path);
	/* As qemu-img does it: not all at once, and under that very name. */
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, b.data, b.len) != (ssize_t)b.len)
		return error_errno(e, errno, "%s", path);
	return 0;
}

int disk_create(const char *path, const char *backing, uint32_t size_gib, struct error *e)
{
	(void)size_gib;
	return disk_write(path, backing, "", e);
}

int disk_create_ahead(const char *path, const char *backing, const char *like, struct error *e)
{
	(void)like;
	return disk_write(path, backing, "", e);
}

int disk_layer(const char *from, const char *backing, const char *path, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	const char *rest;
	int r = file_read(AT_FDCWD, from, DISK_TEXT_MAX, &text, NULL, e);

	if (r < 0)
		return r;
	rest = strchr(text, '\n');
	return disk_write(path, backing, rest ? rest + 1 : "", e);
}

/* Network, filter, virtualisation. */

int slot_derive(const struct hostconf *conf, uint32_t slot, struct slot *ret, struct error *e)
{
	const unsigned n = slot + SLOT_FIRST_HOST;
	struct slot s;

	if (slot >= SLOT_COUNT)
		return error_set(e, EINVAL, "slot %u: a network has the slots 0 to %d", slot, SLOT_COUNT - 1);
	if (str_format(s.address, "127.77.%u.%u", n / 256, n % 256) < 0 || str_format(s.gateway, "127.77.255.1") < 0 ||
			str_format(s.mac, "52:54:00:b0:%02x:%02x", n / 256, n % 256) < 0 ||
			str_format(s.gateway_mac, "52:54:00:b0:ff:01") < 0 ||
			str_format(s.tap, "%s-%u", conf->net_name, n) < 0 ||
			str_format(s.bridge, "virbr-%s", conf->net_name) < 0)
		return error_set(e, ENAMETOOLONG, "network %s: its name is too long", conf->net_name);
	*ret = s;
	return 0;
}

int network_ensure(struct host *h, struct error *e)
{
	(void)h;
	(void)e;
	return 0;
}

static int no_xml(struct buf *b, const struct slot *s)
{
	(void)b;
	(void)s;
	return 0;
}

static const struct filter_ops nothing = {.name = "test driver", .add_xml = no_xml};

const struct filter_ops *filter_implementation(const struct host *h)
{
	return h->conf.net_isolation ? &nothing : NULL;
}

int filter_ensure(struct host *h, struct error *e)
{
	(void)h;
	(void)e;
	return 0;
}

int network_remove(struct host *h, struct error *e)
{
	(void)h;
	(void)e;
	return 1;
}

int filter_remove(struct host *h, struct error *e)
{
	(void)h;
	(void)e;
	return 0;
}

int filter_guarded(struct host *h, struct error *e)
{
	(void)h;
	(void)e;
	return 0;
}

/* Which VM has this tap is in its settings; the test names VMs. */
static int filter_told(void *userdata, const struct settings *s, struct error *e)
{
	return s->slot == *(const unsigned *)userdata && told_to(s->name, "filter")
		       ? error_set(e, EPERM, "the network filter of %s is not in force: the test says so", s->name)
		       : 0;
}

int filter_active(struct host *h, const struct slot *s, struct error *e)
{
	struct slot place;
	unsigned slot;

	if (!h->conf.net_isolation)
		return error_set(e, EPERM, "network isolation is switched off on this host");
	for (slot = 0; slot < SLOT_COUNT; slot++)
		if (slot_derive(&h->conf, slot, &place, NULL) == 0 && str_equal(place.tap, s->tap))
			break;
	return getenv("BOXERY_TESTDRIVER") ? settings_each(h, filter_told, &slot, e) : 0;
}

int rate_set(struct host *h, const struct slot *s, uint32_t kib_per_s, struct error *e)
{
	(void)h;
	(void)s;
	(void)kib_per_s;
	(void)e;
	return 0;
}

int rate_clear(struct host *h, const struct slot *s, struct error *e)
{
	(void)h;
	(void)s;
	(void)e;
	return 0;
}

int connections_forget(const struct slot *s, struct error *e)
{
	(void)s;
	(void)e;
	return 0;
}

const char *virt_type(bool kvm)
{
	(void)kvm;
	return "test";
}

int virt_choose(struct host *h, struct virt_choice *ret, struct error *e)
{
	(void)h;
	(void)e;
	*ret = (struct virt_choice){.known = true};
	(void)str_copy(ret->why, "libvirt's test driver");
	return 0;
}

/* The guest. */

static int guest_overlay(virDomainPtr d, struct domain_seen *ret, struct error *e)
{
	CLEANUP_FREE char *xml = virDomainGetXMLDesc(d, 0);

	if (!xml)
		return virt_error(e, "cannot read the description of domain %s", virDomainGetName(d));
	return domain_seen_parse(xml, ret, e);
}

/* 1: as it was made. */
static int guest_is_clean(virDomainPtr d, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	struct domain_seen seen;
	const char *end;
	int r = guest_overlay(d, &seen, e);

	if (r == 0)
		r = file_read(AT_FDCWD, seen.layers[0], DISK_TEXT_MAX, &text, NULL, e);
	if (r < 0 || !text)
		return r;
	end = strchr(text, '\n');
	return end && end[1] == '\0';
}

int agent_wait(virDomainPtr d, uint64_t timeout_ms, struct error *e)
{
	const char *name = virDomainGetName(d);
	uint64_t delay = told_delay_ms(name);
	bool dead = told_to(name, "agent");

	host_sleep_ms((unsigned)(dead || delay > timeout_ms ? timeout_ms : delay));
	if (!virt_runs(d))
		return error_set(e, ENOTCONN, "the guest stopped before its agent answered");
	if (dead || delay > timeout_ms)
		return error_set(e, ETIMEDOUT, "the guest agent did not answer in %llu s",
				(unsigned long long)(timeout_ms / 1000));
	return 0;
}

/* Copies the base64 value of one line of the text of `begin`. */
static int value_of(const char *text, const char *key, char *dst, size_t size)
{
	char start[64];
	const char *p = text;

	(void)str_format(start, "%s ", key);
	while (p && !str_starts(p, start)) {
		p = strchr(p, '\n');
		p = p ? p + 1 : NULL;
	}
	if (!p)
		return -EBADMSG;
	p += strlen(start);
	return str_format_n(dst, size, "%.*s", (int)strcspn(p, "\n"), p);
}

/* The public half, which stands in clear in an OpenSSH key file: magic, three strings, the number 1, then its blob. */
static int public_half(const char *host_key, char *dst, size_t size)
{
	unsigned char pem[2048], raw[1024];
	char blob[256];
	size_t pem_len, len, at = sizeof(KEY_OFFSET_MAGIC), n;
	char *body, *end;

	if (sodium_base642bin(pem, sizeof(pem) - 1, host_key, strlen(host_key), NULL, &pem_len, NULL,
			    sodium_base64_VARIANT_ORIGINAL) != 0)
		return -EBADMSG;
	pem[pem_len] = '\0';
	body = strchr((char *)pem, '\n');
	end = body ? strstr(body, "-----END") : NULL;
	if (!end || sodium_base642bin(raw, sizeof(raw), body, (size_t)(end - body), "\n", &len, NULL,
				    sodium_base64_VARIANT_ORIGINAL) != 0)
		return -EBADMSG;
	for (int i = 0; i < 3; i++)
		at += 4 + (size_t)raw[at + 3];
	at += 4;
	n = raw[at + 3];
	if (at + 4 + n > len || n == 0)
		return -EBADMSG;
	(void)sodium_bin2base64(blob, sizeof(blob), raw + at + 4, n, sodium_base64_VARIANT_ORIGINAL);
	return str_format_n(dst, size, "ssh-ed25519 %s", blob);
}

static const char *listing_of(const char *name)
{
	if (told_to(name, "full"))
		return LISTING_OF("", "2000");
	return told_to(name, "more") ? LISTING("seen process 0 x /usr/bin/x\n") : LISTING("");
}

static int begin(virDomainPtr d, const char *text, char **ret, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(BEGIN_TEXT_MAX);
	char host_key[4096], public[VM_HOST_KEY_MAX], generation[32], address[VM_ADDRESS_MAX];
	const char *name = virDomainGetName(d);
	int r, clean;

	if (told_to(name, "dies")) {
		(void)virDomainDestroy(d);
		return error_set(e, ENOTCONN, "the guest has ended by itself");
	}
	if (told_to(name, "begin"))
		return error_set(e, EIO, "%s in the guest failed with status 1: the test says so", BEGIN_PROGRAM);
	clean = guest_is_clean(d, e);
	if (clean < 0)
		return clean;
	r = value_of(text, "host_key", host_key, sizeof(host_key));
	if (r == 0)
		r = public_half(host_key, public, sizeof(public));
	if (r == 0)
		r = value_of(text, "generation", generation, sizeof(generation));
	if (r == 0)
		r = value_of(text, "address", address, sizeof(address));
	if (r == 0)
		r = buf_addf(&b, "generation %s\nhost_key %s\nclock %llu000\naddress %s\nlease %d\nkernel "
				 "test\n%sdone\n",
				generation, public, (unsigned long long)clock_wall_us(), address, !clean, listing_of(name));
	if (r < 0)
		return error_errno(e, -r, "the stand-in guest cannot read its begin");
	*ret = TAKE_PTR(b.data);
	return 0;
}

/* What anything but `begin` does in a guest is a line in its overlay. */
static int leave_line(virDomainPtr d, const char *path, char **ret, struct error *e)
{
	CLEANUP_FD int fd = -1;
	CLEANUP_FREE char *out = strdup("done\n");
	struct domain_seen seen;
	int r = guest_overlay(d, &seen, e);

	if (r < 0)
		return r;
	fd = open(seen.layers[0], O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0 || dprintf(fd, "%s\n", path) < 0 || !out)
		return error_errno(e, errno, "%s", seen.layers[0]);
	*ret = TAKE_PTR(out);
	return 0;
}

static int say_listing(const char *name, char **ret, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(BEGIN_TEXT_MAX);

	if (buf_addf(&b, "%sdone\n", listing_of(name)) < 0)
		return error_errno(e, ENOMEM, "the stand-in guest");
	*ret = TAKE_PTR(b.data);
	return 0;
}

static int say(const char *text, char **ret, struct error *e)
{
	*ret = strdup(text);
	return *ret ? 0 : error_errno(e, ENOMEM, "the stand-in guest");
}

int agent_exec(virDomainPtr d, const char *path, const char *argument, const void *input, size_t input_len, uint64_t timeout_ms,
		char **ret_stdout, struct error *e)
{
	CLEANUP_BUF struct buf text = BUF_INIT(BEGIN_TEXT_MAX);
	int r = buf_add(&text, input, input_len);

	(void)timeout_ms;
	if (!virt_runs(d))
		return error_set(e, ENOTCONN, "the guest is off");
	if (r < 0)
		return error_errno(e, -r, "%s", path);
	if (str_equal(path, READY_PROGRAM))
		return say("system running\ndone\n", ret_stdout, e);
	if (str_equal(path, BEGIN_PROGRAM) && str_equal(argument, BEGIN_SETTLE) && told_to(virDomainGetName(d), "settle"))
		return error_set(e, EIO, "begin: the guest does not come to rest");
	if (str_equal(path, BEGIN_PROGRAM) && argument)
		return say_listing(virDomainGetName(d), ret_stdout, e);
	return str_equal(path, BEGIN_PROGRAM) ? begin(d, text.data, ret_stdout, e) : leave_line(d, path, ret_stdout, e);
}

/* Memory: a text file. What is in it does not matter; that it is there, and whose it is, does. */

int memory_save(virDomainPtr d, const char *path, struct error *e)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (told_to(virDomainGetName(d), "save"))
		return error_set(e, EIO, "the memory of %s cannot be saved: the test says so", virDomainGetName(d));
	if (fd < 0 || dprintf(fd, "memory of %s\n", virDomainGetName(d)) < 0)
		return error_errno(e, errno, "%s", path);
	host_sleep_ms(told_delay_ms(virDomainGetName(d)));
	return virDomainDestroy(d) < 0 ? virt_error(e, "cannot save domain %s", virDomainGetName(d)) : 0;
}

int memory_restore(const struct host *h, const char *path, const char *xml, bool paused, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = NULL;
	CLEANUP_FREE char *text = NULL;
	int r = file_read(AT_FDCWD, path, DISK_TEXT_MAX, &text, NULL, e);

	if (r < 0)
		return r;
	if (!str_starts(text, "memory of ") || told_to("", "restore"))
		return error_set(e, EIO, "cannot restore the memory in %s", path);
	d = virDomainCreateXML(h->conn, xml, VIR_DOMAIN_NONE);
	if (!d)
		return virt_error(e, "cannot restore the memory in %s", path);
	return paused && virDomainSuspend(d) < 0 ? virt_error(e, "cannot pause a domain") : 0;
}

int memory_machine(virDomainPtr d, char *ret_machine, char *ret_program, size_t size, struct error *e)
{
	ssize_t n = readlink("/proc/self/exe", ret_program, size - 1);

	(void)d;
	if (n < 0)
		return error_errno(e, errno, "/proc/self/exe");
	ret_program[n] = '\0';
	return str_copy_n(ret_machine, size, "test");
}

int memory_resume(virDomainPtr d, struct error *e)
{
	int state, reason;

	if (virDomainGetState(d, &state, &reason, 0) == 0 && state == VIR_DOMAIN_RUNNING)
		return 0;
	return virDomainResume(d) < 0 ? virt_error(e, "cannot resume %s", virDomainGetName(d)) : 0;
}

int agent_clock_skew_ms(virDomainPtr d, uint64_t *ret, struct error *e)
{
	(void)d;
	(void)e;
	*ret = 0;
	return 0;
}

int agent_clock_set(virDomainPtr d, struct error *e)
{
	(void)d;
	(void)e;
	return 0;
}

int agent_poweroff(virDomainPtr d, struct error *e)
{
	return virDomainDestroy(d) < 0 ? virt_error(e, "cannot end domain %s", virDomainGetName(d)) : 0;
}
