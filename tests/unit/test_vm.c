#include "testing.h"
#include "boxery-config.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/file.h"
#include "vm/begin.h"
#include "vm/domain.h"
#include "vm/filter.h"
#include "vm/listing.h"
#include "vm/nft_generation.h"
#include "vm/rate.h"
#include "vm/settings.h"
#include "vm/slot.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>

#define VM_LISTING BOXERY_SOURCE_DATADIR "/tests/fuzz/corpus/vm/nft-bridge"

static const struct hostconf conf = {
	.net_name = "boxery", .net_subnet = "192.168.130", .net_isolation = true};

static void test_slot(void **state)
{
	struct error e = ERROR_INIT;
	struct slot s;

	assert_ok(slot_derive(&conf, 0, &s, &e), &e);
	assert_string_equal(s.address, "192.168.130.10");
	assert_string_equal(s.mac, "52:54:00:b0:0e:0a");
	assert_string_equal(s.tap, "boxery-10");
	assert_string_equal(s.bridge, "virbr-boxery");
	assert_string_equal(s.gateway, "192.168.130.1");
	assert_ok(slot_derive(&conf, SLOT_COUNT - 1, &s, &e), &e);
	assert_string_equal(s.address, "192.168.130.249");
	assert_string_equal(s.mac, "52:54:00:b0:0e:f9");
	assert_fails(slot_derive(&conf, SLOT_COUNT, &s, &e), EINVAL, &e, "slot 240");
	assert_string_equal(s.tap, "boxery-249");
}

/* The longest name that hostconf lets through still fits the kernel's 15 bytes for a device. */
static void test_slot_longest_name(void **state)
{
	const struct hostconf c = {.net_name = "abcdefghi", .net_subnet = "10.255.255"};
	struct error e = ERROR_INIT;
	struct slot s;

	assert_ok(slot_derive(&c, SLOT_COUNT - 1, &s, &e), &e);
	assert_true(strlen(s.tap) <= 15 && strlen(s.bridge) <= 15);
	assert_string_equal(s.address, "10.255.255.249");
}

static int parse(const char *text, struct settings *s, struct error *e)
{
	return settings_parse("one", "one.env", text, strlen(text), s, e);
}

#define WHOLE "SLOT=3\nCPUS=2\nMEMORY_MIB=2048\nDISK_GIB=20\nIMAGE=debian-12\nBASE_IDENTITY=1:2:3.4\n"

static void test_settings(void **state)
{
	struct error e = ERROR_INIT;
	struct settings s = {0};

	assert_fails(parse("SLOT=3\nCPUS=2\n", &s, &e), EBADMSG, &e, "is missing");
	assert_int_equal(s.cpus, 0);
	assert_ok(parse(WHOLE, &s, &e), &e);
	assert_int_equal(s.slot, 3);
	assert_int_equal(s.cpus, 2);
	assert_int_equal(s.memory_mib, 2048);
	assert_int_equal(s.disk_gib, 20);
	assert_string_equal(s.image, "debian-12");
	assert_string_equal(s.base_identity, "1:2:3.4");
	assert_fails(parse(WHOLE "COLOUR=red\n", &s, &e), EBADMSG, &e, "one.env:7: COLOUR");
	assert_fails(parse("SLOT=240\n", &s, &e), EBADMSG, &e, "one.env:1");
	assert_fails(parse("CPUS=0\n", &s, &e), EBADMSG, &e, "CPUS");
	assert_fails(parse("IMAGE=../x\n", &s, &e), EBADMSG, &e, "is not a name");
}

static void test_generation(void **state)
{
	struct test_folder *f = *state;
	struct host h = {.image_fd = f->fd, .report_fd = -1};
	struct generation g = {.generation = 99};
	struct error e = ERROR_INIT;

	assert_int_equal(mkdirat(f->fd, "run", 0700), 0);
	assert_ok(generation_load(&h, "one", &g, &e), &e);
	assert_int_equal(g.generation, 0);
	assert_false(g.begun);
	g = (struct generation){.generation = 7};
	assert_ok(generation_save(&h, "one", &g, &e), &e);
	g = (struct generation){0};
	assert_ok(generation_load(&h, "one", &g, &e), &e);
	assert_int_equal(g.generation, 7);
	assert_false(g.begun);
	g = (struct generation){
		.generation = UINT64_MAX, .begun = true, .host_key = "ssh-ed25519 AAAA", .kvm = true};
	assert_ok(generation_save(&h, "one", &g, &e), &e);
	g = (struct generation){0};
	assert_ok(generation_load(&h, "one", &g, &e), &e);
	assert_true(g.generation == UINT64_MAX && g.begun && g.kvm);
	assert_string_equal(g.host_key, "ssh-ed25519 AAAA");
}

static void test_metadata(void **state)
{
	uint64_t generation = 1;
	char name[VM_NAME_MAX] = "";

#define META(attributes) "<vm xmlns=\"" DOMAIN_METADATA_URI "\" " attributes "/>"
	assert_int_equal(
		domain_metadata_parse(META("name=\"one\" generation=\"18446744073709551615\" net=\"boxery\""),
			"boxery", name, &generation),
		0);
	assert_string_equal(name, "one");
	assert_true(generation == UINT64_MAX);
	assert_int_equal(domain_metadata_parse(
				 META("net='boxery' generation='0' name='a-b'"), "boxery", name, &generation),
		0);
	assert_string_equal(name, "a-b");
	assert_int_equal(domain_metadata_parse(
				 META("name='one' generation='1' net='other'"), "boxery", name, &generation),
		-EINVAL);
	assert_int_equal(domain_metadata_parse(META("name='one' generation='-1' net='boxery'"), "boxery",
				 name, &generation),
		-EINVAL);
	assert_int_equal(domain_metadata_parse(META("name='o/ne' generation='1' net='boxery'"), "boxery",
				 name, &generation),
		-EINVAL);
	assert_int_equal(
		domain_metadata_parse(META("name='one generation=1"), "boxery", name, &generation), -EINVAL);
	assert_int_equal(domain_metadata_parse("", "boxery", name, &generation), -EINVAL);
	assert_string_equal(name, "a-b");
}

/* ssh-keygen reads the file and finds the same public half. */
static void test_hostkey(void **state)
{
	struct test_folder *f = *state;
	struct hostkey k = {0}, other = {0};
	struct error e = ERROR_INIT;
	char path[128], command[256], line[VM_HOST_KEY_MAX] = "";
	FILE *out;
	int fd;

	assert_ok(hostkey_new(&k, &e), &e);
	assert_ok(hostkey_new(&other, &e), &e);
	assert_string_not_equal(k.public_line, other.public_line);
	assert_ok(hostkey_line_check(k.public_line, &e), &e);
	(void)snprintf(path, sizeof(path), "%s/key", f->path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, secret_bytes(k.private_file), secret_len(k.private_file)),
		(ssize_t)secret_len(k.private_file));
	(void)close(fd);
	/* Into a file and back: popen and system are not for this code, not even here. */
	(void)snprintf(command, sizeof(command), "%s/pub", f->path);
	fd = fork();
	if (fd == 0) {
		int to = open(command, O_WRONLY | O_CREAT, 0600);

		(void)dup2(to, 1);
		(void)execlp("ssh-keygen", "ssh-keygen", "-y", "-P", "", "-f", path, NULL);
		_exit(127);
	}
	{
		int status;

		assert_int_equal(waitpid(fd, &status, 0), fd);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	out = fopen(command, "re");
	assert_non_null(out);
	assert_non_null(fgets(line, sizeof(line), out));
	(void)fclose(out);
	assert_int_equal(strncmp(line, k.public_line, strlen(k.public_line)), 0);
	hostkey_free(&k);
	hostkey_free(&other);
}

static void test_key_line(void **state)
{
	struct error e = ERROR_INIT;

#define KEY "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOy6LJPeQVBIOVlmPvbDHPH"
	assert_ok(hostkey_line_check(KEY, &e), &e);
	assert_ok(hostkey_line_check(KEY " me@there", &e), &e);
	assert_fails(hostkey_line_check("command=\"x\" " KEY, &e), EINVAL, &e, "starts with its type");
	assert_fails(hostkey_line_check("ssh-ed25519", &e), EINVAL, &e, "TYPE BASE64");
	assert_fails(hostkey_line_check("ssh-ed25519 AA", &e), EINVAL, &e, "TYPE BASE64");
	assert_fails(hostkey_line_check(KEY "!", &e), EINVAL, &e, "TYPE BASE64");
	assert_fails(hostkey_line_check(KEY " a\nb", &e), EINVAL, &e, "not printable");
	assert_fails(hostkey_line_check("", &e), EINVAL, &e, "starts with");
}

static void test_begin_render(void **state)
{
	struct buf b = BUF_INIT(BEGIN_TEXT_MAX);
	struct hostkey k = {0};
	struct error e = ERROR_INIT;

	assert_ok(hostkey_new(&k, &e), &e);
	assert_ok(begin_render(&b, 5, "192.168.130.10", KEY "\n", true, &k, &e), &e);
	assert_non_null(
		strstr(b.data, "\ngeneration 5\naddress 192.168.130.10\nhost_key LS0tLS1CRUdJTiBPUEVOU1NI"));
	/* base64 of: command="/usr/lib/boxery/deliver",restrict ssh-ed25519 */
	assert_non_null(strstr(b.data,
		"\nauthorized_key Y29tbWFuZD0iL3Vzci9saWIvYm94ZXJ5L2RlbGl2ZXIiLHJlc3RyaWN0IHNzaC1lZDI1NTE5"));
	assert_non_null(strstr(b.data, "\ntime 1"));
	assert_int_equal(b.data[b.len - 1], '\n');
	buf_free(&b);
	b = BUF_INIT(BEGIN_TEXT_MAX);
	assert_ok(begin_render(&b, 5, "192.168.130.10", KEY "\n\n" KEY " two", false, &k, &e), &e);
	assert_non_null(strstr(b.data, "\nauthorized_key c3NoLWVkMjU1MTkg"));
	buf_free(&b);
	b = BUF_INIT(BEGIN_TEXT_MAX);
	assert_fails(begin_render(&b, 5, "192.168.130.10", "", true, &k, &e), EINVAL, &e, "no public key");
	assert_fails(begin_render(&b, 5, "192.168.130.10", "nonsense", true, &k, &e), EINVAL, &e,
		"starts with its type");
	buf_free(&b);
	hostkey_free(&k);
}

#define ANSWER                                                                                               \
	"generation 5\nhost_key ssh-ed25519 AAAA\nclock 1796000000000000000\naddress "                       \
	"192.168.130.10\n"                                                                                   \
	"seen process 0 systemd /usr/lib/systemd/systemd\nseen taint 0\n"                                    \
	"lease 0\nkernel 6.1.0-57-amd64\n"

static void test_begin_parse(void **state)
{
	struct begin_answer a = {.generation = 99};
	struct error e = ERROR_INIT;

	assert_fails(begin_parse(ANSWER, &a, &e), EBADMSG, &e, "no last line");
	assert_fails(begin_parse("done\n", &a, &e), EBADMSG, &e, "generation is missing");
	assert_fails(begin_parse(ANSWER "lease 0\ndone\n", &a, &e), EBADMSG, &e, "twice");
	assert_fails(begin_parse(ANSWER "colour red\ndone\n", &a, &e), EBADMSG, &e, "colour red");
	assert_fails(begin_parse(ANSWER "\x1b[31m\ndone\n", &a, &e), EBADMSG, &e, "\\x1b");
	assert_fails(begin_parse(ANSWER "done\nmore\n", &a, &e), EBADMSG, &e, "goes on");
	assert_fails(begin_parse("lease 2\n", &a, &e), EINVAL, &e, "lease");
	assert_fails(begin_parse("generation five\n", &a, &e), EINVAL, &e, "generation");
	assert_fails(begin_parse("", &a, &e), EBADMSG, &e, "no last line");
	assert_int_equal(a.generation, 99);
	assert_ok(begin_parse(ANSWER "done\n", &a, &e), &e);
	assert_int_equal(a.generation, 5);
	assert_string_equal(a.host_key, "ssh-ed25519 AAAA");
	assert_string_equal(a.address, "192.168.130.10");
	assert_string_equal(a.seen, "process 0 systemd /usr/lib/systemd/systemd\ntaint 0\n");
	assert_string_equal(a.kernel, "6.1.0-57-amd64");
	assert_false(a.lease);
	assert_true(a.clock_ns == 1796000000000000000ull);
}

static void cut_line(char *text, const char *start)
{
	char *cut = strstr(text, start);

	assert_non_null(cut);
	memmove(cut, strchr(cut, '\n') + 1, strlen(strchr(cut, '\n')));
}

static void test_ready_and_seen(void **state)
{
	char system[32], seen[BEGIN_SEEN_MAX], *many;
	struct error e = ERROR_INIT;

	assert_ok(ready_parse("system running\ndone\n", system, sizeof(system), &e), &e);
	assert_string_equal(system, "running");
	assert_fails(ready_parse("system running\n", system, sizeof(system), &e), EBADMSG, &e, "not understood");
	assert_fails(ready_parse("system \ndone\n", system, sizeof(system), &e), EBADMSG, &e, "not understood");
	assert_fails(ready_parse("", system, sizeof(system), &e), EBADMSG, &e, "not understood");
	assert_ok(seen_parse("seen a b\nseen c\ndone\n", seen, &e), &e);
	assert_string_equal(seen, "a b\nc\n");
	assert_fails(seen_parse("seen a b\n", seen, &e), EBADMSG, &e, "no last line");
	assert_fails(seen_parse("done\n", seen, &e), EBADMSG, &e, "empty");
	assert_fails(seen_parse("seen a\ngeneration 1\ndone\n", seen, &e), EBADMSG, &e, "no business");
	many = calloc(1, 2 * BEGIN_SEEN_MAX);
	assert_non_null(many);
	for (size_t i = 0; i + 8 < 2 * BEGIN_SEEN_MAX; i += 7)
		memcpy(many + i, "seen a\n", 7);
	assert_fails(seen_parse(many, seen, &e), EBADMSG, &e, "no last line");
	free(many);
}

#define CAPTURED "module ext4\nmount / ext4\nport tcp [::]:22\nprocess 0 a /a\nspace 1000000 5000\ntaint 0\nuser root 0\n"

static void test_listing(void **state)
{
	static const struct {
		const char *now, *same, *no_more; /* words of the error; NULL: none */
	} cases[] = {
		{CAPTURED, NULL, NULL},
		{"module ext4\nmodule loop\nmount / ext4\nport tcp [::]:22\nprocess 0 a /a\nspace 1000000 5000\ntaint 0\nuser root 0\n",
			"a kernel module, 'loop', was not there", NULL},
		{"module ext4\nmount / ext4\nport tcp [::]:22\nspace 1000000 5000\ntaint 0\nuser root 0\n",
			"a process, '0 a /a', is missing", NULL},
		{"module ext4\nmount / ext4\nport tcp [::]:22\nprocess 0 a /a\nprocess 0 x /usr/bin/x\nspace 1000000 5000\n"
		 "taint 0\nuser root 0\n",
			"a process, '0 x /usr/bin/x', was not there", "a process, '0 x /usr/bin/x', was not there"},
		{"module ext4\nmount / ext4\nport tcp [::]:22\nprocess 0 a /a\nspace 1000000 5000\ntaint 4096\nuser root 0\n",
			"kernel taint", "kernel taint, '4096'"},
		{"module ext4\nmount / ext4\nport tcp [::]:22\nprocess 0 a /a\nspace 990000 4900\ntaint 0\nuser root 0\n", NULL,
			NULL},
		{"module ext4\nmount / ext4\nport tcp [::]:22\nprocess 0 a /a\nspace 500000 5000\ntaint 0\nuser root 0\n",
			"488 MiB", "488 MiB"},
		{"module ext4\nmount / ext4\nport tcp [::]:22\nprocess 0 a /a\nspace 1000000 100\ntaint 0\nuser root 0\n",
			"100 inodes", "100 inodes"},
		{"module ext4\nmount / ext4\nnews\nport tcp [::]:22\nprocess 0 a /a\nspace 1000000 5000\ntaint 0\nuser root 0\n",
			"something, 'news'", "something, 'news'"},
		{CAPTURED "user toor 0\n", "a user, 'toor 0'", "a user, 'toor 0'"},
		{"", "is missing", NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (int rule = 0; rule < LISTING_RULE_COUNT; rule++) {
			const char *words = rule == LISTING_SAME ? cases[i].same : cases[i].no_more;
			struct error e = ERROR_INIT;

			if (words)
				assert_fails(listing_compare(CAPTURED, cases[i].now, (enum listing_rule)rule, &e), EBADMSG, &e,
					words);
			else
				assert_ok(listing_compare(CAPTURED, cases[i].now, (enum listing_rule)rule, &e), &e);
		}
}

/* The listing that nft prints for these very rules: comments in order, hooks there. */
static void test_guard_listing(void **state)
{
	struct hostconf other = conf, thin = conf;
	struct error e = ERROR_INIT;
	char *rules, *without;

	assert_ok(guard_render(&conf, &rules, &e), &e);
	assert_ok(guard_listing_check(&conf, rules, &e), &e);
	(void)str_copy(other.net_subnet, "192.168.131");
	assert_fails(guard_listing_check(&other, rules, &e), EPERM, &e, "rule 1 ");
	assert_fails(guard_listing_check(&conf, "table inet boxery_boxery {\n}\n", &e), EPERM, &e,
		"not hooked in");
	/* Beside nwfilter there are fewer, and neither is taken for the other. */
	thin.net_filter = NET_FILTER_NWFILTER;
	assert_ok(guard_render(&thin, &without, &e), &e);
	assert_ok(guard_listing_check(&thin, without, &e), &e);
	assert_fails(guard_listing_check(&conf, without, &e), EPERM, &e, "not hooked in");
	assert_fails(guard_listing_check(&thin, rules, &e), EPERM, &e, "rule 1 ");
	cut_line(rules, "\t\tip daddr { 0.0.0.0/8");
	assert_fails(guard_listing_check(&conf, rules, &e), EPERM, &e, "rule 20 ");
	memcpy(strstr(without, "table inet boxery_boxery {\n\tset"), "flags dormant", strlen("flags dormant"));
	assert_fails(guard_listing_check(&thin, without, &e), EPERM, &e, "dormant");
	free(rules);
	free(without);
}

/* In a network of its own, so that nobody else changes rules and nothing of this machine is changed. */
static void test_nft_generation(void **state)
{
	struct nft_generation a, b;
	struct error e = ERROR_INIT;
	CLEANUP_FD int changes = -1;
	struct pollfd p = {.events = POLLIN};

	if (unshare(CLONE_NEWNET) < 0)
		skip();
	assert_ok(nft_changes_open(&changes, &e), &e);
	p.fd = changes;
	assert_ok(nft_generation_get(&a, &e), &e);
	assert_ok(nft_generation_get(&b, &e), &e);
	assert_true(nft_generation_equal(&a, &b));
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_ok(guard_nft_rules("table inet one {\n\tchain c {\n\t\tdrop\n\t}\n}\n", &e), &e);
	assert_ok(nft_generation_get(&b, &e), &e);
	assert_false(nft_generation_equal(&a, &b));
	assert_int_equal(b.number, a.number + 1);
	assert_int_equal(poll(&p, 1, 0), 1);
	nft_changes_drain(changes);
	assert_int_equal(poll(&p, 1, 0), 0);
	/* A transaction that fails changes nothing. */
	assert_fails(guard_nft_rules("delete table inet two\n", &e), EIO, &e, "");
	assert_ok(nft_generation_get(&a, &e), &e);
	assert_true(nft_generation_equal(&a, &b));
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	assert_ok(nft_generation_get(&b, &e), &e);
	assert_true(a.netns != b.netns);
}

/* Without nft there are no listings: then only what was found good before can be. */
static int guard_seen_good(struct host *h)
{
	CLEANUP_FREE char *path = strdup(getenv("PATH"));
	int r;

	(void)setenv("PATH", "/nowhere", 1);
	r = guard_active(h, NULL);
	(void)setenv("PATH", path, 1);
	return r;
}

/* A change of our own beside the guard does not make it looked at anew, one of somebody else's does. */
static void test_guard_seen(void **state)
{
	static const char other[] = "table inet other {\n}\n", spoilt[] = "flush table inet boxery_boxery\n";
	struct test_folder *f = *state;
	struct host h = {.conf = conf, .image_fd = f->fd, .report_fd = -1};
	struct error e = ERROR_INIT;
	struct slot s;

	if (unshare(CLONE_NEWNET) < 0)
		skip();
	h.conf.net_filter = NET_FILTER_NFT;
	h.conf.net_isolation = true;
	assert_int_equal(mkdirat(f->fd, "run", 0700), 0);
	assert_ok(slot_derive(&conf, 3, &s, &e), &e);
	assert_ok(rate_set(&h, &s, 1000, &e), &e); /* nothing is known yet, and nothing is afterwards */
	assert_true(guard_seen_good(&h) < 0);
	assert_ok(guard_install(&h, &e), &e);
	assert_int_equal(guard_seen_good(&h), 0);
	assert_ok(rate_set(&h, &s, 2000, &e), &e);
	assert_int_equal(guard_seen_good(&h), 0);
	assert_ok(rate_clear(&h, &s, &e), &e);
	assert_int_equal(guard_seen_good(&h), 0);
	assert_ok(guard_nft_rules(other, &e), &e);
	assert_true(guard_seen_good(&h) < 0);
	assert_ok(rate_set(&h, &s, 2000, &e), &e);
	assert_true(guard_seen_good(&h) < 0);
	assert_ok(guard_active(&h, &e), &e);
	assert_int_equal(guard_seen_good(&h), 0);
	/* Nor does it hide that the guard is gone. */
	assert_ok(guard_nft_rules(spoilt, &e), &e);
	assert_ok(rate_clear(&h, &s, &e), &e);
	assert_fails(guard_active(&h, &e), EPERM, &e, "");
}

/* The other filter would leave guests without their proxy: it does not stand in for nft then. */
static void test_a_proxy_needs_nft(void **state)
{
	struct test_folder *f = *state;
	struct host h = {.conf = conf, .image_fd = f->fd, .report_fd = -1};
	struct error e = ERROR_INIT;
	const char *was = getenv("PATH");
	char path[4096] = "";

	(void)str_copy(path, was ? was : "");
	h.conf.net_isolation = true;
	h.conf.net_filter = NET_FILTER_AUTO;
	(void)str_copy(h.conf.guest_proxy, "10.1.2.3");
	h.conf.guest_proxy_port = 3128;
	(void)setenv("PATH", "/nowhere", 1);
	assert_fails(filter_ensure(&h, &e), EOPNOTSUPP, &e, "BOXERY_GUEST_PROXY in host.env needs the filter nft");
	(void)setenv("PATH", path, 1);
	assert_non_null(strstr(e.text, "nft"));
	assert_int_equal(h.conf.net_filter, NET_FILTER_AUTO); /* asked anew the next time */
}

/* A listing as nft -s printed it for slot 0. */
static void test_filter_listing(void **state)
{
	CLEANUP_FREE char *text = NULL;
	struct error e = ERROR_INIT;
	struct slot s, other;
	size_t len;
	char *p, *end;

	assert_ok(file_read(AT_FDCWD, VM_LISTING, 65536, &text, &len, &e), &e);
	assert_ok(slot_derive(&conf, 0, &s, &e), &e);
	assert_ok(slot_derive(&conf, 1, &other, &e), &e);
	assert_ok(nwfilter_listing_check(text, &s, &e), &e);
	assert_fails(nwfilter_listing_check(text, &other, &e), EPERM, &e, "through its chains");
	assert_fails(nwfilter_listing_check("", &s, &e), EPERM, &e, "through its chains");
	/* The tap of one slot with the rules of another address. */
	(void)str_copy(other.tap, s.tap);
	assert_fails(nwfilter_listing_check(text, &other, &e), EPERM, &e, "another MAC or address");
	/* Without one rule. */
	p = strstr(text, "\t\tether type ip ip daddr 10.0.0.0/8");
	assert_non_null(p);
	end = strchr(p, '\n') + 1;
	memmove(p, end, strlen(end) + 1);
	assert_fails(nwfilter_listing_check(text, &s, &e), EPERM, &e, "other rules");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slot),
		cmocka_unit_test(test_slot_longest_name),
		cmocka_unit_test(test_settings),
		cmocka_unit_test_setup_teardown(test_generation, test_folder_setup, test_folder_teardown),
		cmocka_unit_test(test_metadata),
		cmocka_unit_test_setup_teardown(test_hostkey, test_folder_setup, test_folder_teardown),
		cmocka_unit_test(test_key_line),
		cmocka_unit_test(test_begin_render),
		cmocka_unit_test(test_begin_parse),
		cmocka_unit_test(test_ready_and_seen),
		cmocka_unit_test(test_listing),
		cmocka_unit_test(test_guard_listing),
		cmocka_unit_test(test_filter_listing),
		cmocka_unit_test(test_nft_generation),
		cmocka_unit_test_setup_teardown(test_guard_seen, test_folder_setup, test_folder_teardown),
		cmocka_unit_test_setup_teardown(test_a_proxy_needs_nft, test_folder_setup, test_folder_teardown),
	};
	struct error e = ERROR_INIT;

	return secret_init(&e) < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
