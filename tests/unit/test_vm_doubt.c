/* What boxery-vm finds when somebody else has been at its files and domains; clones; grants. */
#include "testing.h"
#include "base/str.h"
#include "linux/file.h"
#include "vm/begin.h"
#include "vm/domain.h"
#include "vm/image.h"
#include "vm/trouble.h"
#include <errno.h>
#include <sys/utsname.h>

static const struct hostconf conf = {.net_name = "boxery", .net_subnet = "192.168.130", .net_isolation = true};

/* As libvirt writes it: one element a line, single quotes. */
#define HEAD                                                                                                 \
	"<domain type='kvm' id='3'>\n  <name>one</name>\n  <metadata>\n    <x><devices><disk><source "      \
	"file='/etc/shadow'/></disk></devices></x>\n  </metadata>\n  <devices>\n"
#define DISK                                                                                                 \
	"    <disk type='file' device='disk'>\n      <driver name='qemu' type='qcow2'/>\n"                  \
	"      <source file='/b/run/one.qcow2' index='1'/>\n      <backingStore type='file' index='2'>\n"   \
	"        <format type='qcow2'/>\n        <source file='/b/images/o&apos;&amp;ne/disk.qcow2'/>\n"    \
	"        <backingStore type='file' index='3'>\n          <format type='qcow2'/>\n"                  \
	"          <source file='/b/base/d/disk.qcow2'/>\n          <backingStore/>\n        </backingStore>\n" \
	"      </backingStore>\n      <target dev='vda' bus='virtio'/>\n    </disk>\n"
#define CARD                                                                                                 \
	"    <interface type='network'>\n      <mac address='52:54:00:b0:0e:0a'/>\n"                        \
	"      <source network='boxery' bridge='virbr-boxery'/>\n      <target dev='boxery-10'/>\n    </interface>\n"
#define TAIL "    <serial type='file'>\n      <source path='/b/console/one.log'/>\n    </serial>\n  </devices>\n</domain>\n"

static const char *const layers[] = {"/b/run/one.qcow2", "/b/images/o'&ne/disk.qcow2", "/b/base/d/disk.qcow2"};

static int check(const char *xml, size_t n, struct error *e)
{
	struct domain_seen seen;
	struct slot slot;
	int r = domain_seen_parse(xml, &seen, e);

	if (r == 0)
		r = slot_derive(&conf, 0, &slot, e);
	return r < 0 ? r : domain_seen_check(&seen, layers, n, &slot, e);
}

static void test_domain_seen(void **state)
{
	struct error e = ERROR_INIT;

	assert_ok(check(HEAD DISK CARD TAIL, 3, &e), &e);
	assert_fails(check(HEAD DISK CARD TAIL, 2, &e), ESTALE, &e, "has 3 layers, not 2");
	assert_fails(check(HEAD CARD TAIL, 3, &e), ESTALE, &e, "has 0 disks");
	assert_fails(check(HEAD DISK DISK CARD TAIL, 3, &e), ESTALE, &e, "has 2 disks");
	assert_fails(check(HEAD DISK TAIL, 3, &e), ESTALE, &e, "has 0 network cards, the first with MAC none");
	assert_fails(check(HEAD DISK CARD CARD TAIL, 3, &e), ESTALE, &e, "has 2 network cards");
	assert_fails(check(HEAD DISK CARD "<hostdev mode='subsystem'>\n</hostdev>\n" TAIL, 3, &e), ESTALE, &e, "<hostdev>");
	assert_fails(check(HEAD DISK CARD "<vsock model='virtio'/>\n" TAIL, 3, &e), ESTALE, &e, "<vsock>");
	assert_fails(check(HEAD DISK CARD TAIL "<qemu:commandline>", 3, &e), ESTALE, &e, "<qemu:");
	assert_fails(check(HEAD "<disk>\n<source dev='/dev/sda'/></disk>" CARD TAIL, 1, &e), ESTALE, &e, "not a file");
	assert_fails(check(HEAD "<disk>\n<source file='/\x1b[31m'/></disk>" CARD TAIL, 1, &e), ESTALE, &e, "\\x1b[31m");
	assert_fails(check("", 3, &e), EBADMSG, &e, "cannot be understood");
	assert_fails(check(HEAD DISK CARD, 3, &e), EBADMSG, &e, "cannot be understood");
	assert_fails(check(HEAD "<disk>\n<source file='/b" CARD TAIL, 3, &e), EBADMSG, &e, "cannot be understood");
}

static void put(const struct test_folder *f, const char *name, const char *text)
{
	struct error e = ERROR_INIT;

	assert_ok(file_write_atomic(f->fd, name, text, strlen(text), 0644, &e), &e);
}

#define SHA "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* A VM "one" with a clean image, a clone "two" of it, and a base: as VM_NEW and VM_CAPTURE leave them. */
static void make_host(const struct test_folder *f, struct host *h, struct settings *one, struct settings *two)
{
	static const char *const folders[] = {"base", "base/tiny", "vms", "run", "images", "images/one@boxery-clean"};
	char text[1024], path[128], base[IDENTITY_MAX], clean[IDENTITY_MAX];
	struct error e = ERROR_INIT;
	struct utsname u;

	*h = HOST_INIT;
	h->image_fd = f->fd;
	h->conf = conf;
	(void)str_copy(h->conf.image_dir, f->path);
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		assert_int_equal(mkdirat(f->fd, folders[i], 0755), 0);
	assert_int_equal(uname(&u), 0);
	(void)snprintf(text, sizeof(text), "ARCH=%s\nKERNEL=k\nINITRD=i\nCMDLINE=quiet\nDISK_SHA256=" SHA "\n", u.machine);
	put(f, "base/tiny/manifest.env", text);
	put(f, "base/tiny/disk.qcow2", "base");
	put(f, "images/one@boxery-clean/disk.qcow2", "clean");
	put(f, "vms/one.qcow2", "own");
	(void)snprintf(path, sizeof(path), "%s/base/tiny/disk.qcow2", f->path);
	assert_ok(image_identity(path, base, &e), &e);
	(void)snprintf(path, sizeof(path), "%s/images/one@boxery-clean/disk.qcow2", f->path);
	assert_ok(image_identity(path, clean, &e), &e);
	(void)snprintf(text, sizeof(text),
		"IMAGE=tiny\nDISK_IDENTITY=%s\nDISK_SHA256=" SHA "\nBASE_IDENTITY=%s\nBASE_SHA256=" SHA "\n", clean, base);
	put(f, "images/one@boxery-clean/manifest.env", text);
	*one = (struct settings){.name = "one", .slot = 0, .cpus = 1, .memory_mib = 256, .disk_gib = 1, .image = "tiny"};
	(void)str_copy(one->base_identity, base);
	*two = *one;
	(void)str_copy(two->name, "two");
	(void)str_copy(two->clean_of, "one");
	two->slot = 1;
	assert_ok(settings_save(h, one, &e), &e);
	assert_ok(settings_save(h, two, &e), &e);
}

/* The record of a life of "two", on the overlay that lies there now. */
static void make_life(const struct test_folder *f, const struct host *h, uint64_t generation, const char *clean_identity)
{
	struct generation g = {.generation = generation, .base_identity = "1:2:3.4"};
	struct error e = ERROR_INIT;
	struct stat st;

	assert_int_equal(fstatat(f->fd, "run/two.qcow2", &st, 0), 0);
	g.overlay_inode = st.st_ino;
	(void)str_copy(g.clean_identity, clean_identity);
	assert_ok(generation_save(h, "two", &g, &e), &e);
}

static void test_files(void **state)
{
	struct test_folder *f = *state;
	const struct life life = {.name = "two", .generation = 4};
	struct error e = ERROR_INIT;
	struct clean_image clean;
	struct settings one, two;
	struct host h;

	make_host(f, &h, &one, &two);
	assert_ok(clean_load(&h, "one", &clean, &e), &e);
	assert_ok(trouble_files(&h, &one, NULL, &e), &e);
	assert_ok(trouble_files(&h, &two, NULL, &e), &e);
	put(f, "run/two.qcow2", "overlay");
	make_life(f, &h, 4, clean.disk_identity);
	assert_ok(trouble_files(&h, &two, &life, &e), &e);
	make_life(f, &h, 5, clean.disk_identity);
	assert_fails(trouble_files(&h, &two, &life, &e), ESTALE, &e, "says life 4, but run/two.gen says 5");
	make_life(f, &h, 4, "1:2:3.4");
	assert_fails(trouble_files(&h, &two, &life, &e), ESTALE, &e, "was made again since its guest was started");
	/* Replaced whole: another inode while the old one is held. */
	make_life(f, &h, 4, clean.disk_identity);
	assert_int_equal(linkat(f->fd, "run/two.qcow2", f->fd, "run/held", 0), 0);
	put(f, "run/two.qcow2", "overlay");
	assert_fails(trouble_files(&h, &two, &life, &e), ESTALE, &e, "was replaced by another file");
	assert_int_equal(unlinkat(f->fd, "run/two.qcow2", 0), 0);
	assert_fails(trouble_files(&h, &two, &life, &e), ESTALE, &e, "was deleted");
	assert_ok(trouble_files(&h, &two, NULL, &e), &e);
	put(f, "base/tiny/disk.qcow2", "other");
	assert_fails(trouble_files(&h, &two, NULL, &e), ESTALE, &e, "base image tiny was replaced or changed");
	put(f, "images/one@boxery-clean/disk.qcow2", "soiled");
	assert_fails(trouble_files(&h, &one, NULL, &e), ESTALE, &e, "clean image of one is not the file it was");
	assert_int_equal(unlinkat(f->fd, "images/one@boxery-clean/manifest.env", 0), 0);
	assert_fails(trouble_files(&h, &two, NULL, &e), ENOENT, &e, "one has no clean image");
	/* Without one the origin is a plain VM: its own disk and the base matter. */
	assert_fails(trouble_files(&h, &one, NULL, &e), ESTALE, &e, "base image tiny was replaced or changed");
	assert_int_equal(unlinkat(f->fd, "vms/one.qcow2", 0), 0);
	assert_fails(trouble_files(&h, &one, NULL, &e), ENOENT, &e, "vms/one.qcow2");
}

static void test_clones(void **state)
{
	struct test_folder *f = *state;
	char found[VM_NAME_MAX] = "";
	struct error e = ERROR_INIT;
	struct settings one, two, s;
	struct host h;

	make_host(f, &h, &one, &two);
	assert_int_equal(clean_clone_find(&h, "one", found, &e), 1);
	assert_string_equal(found, "two");
	assert_int_equal(clean_clone_find(&h, "two", found, &e), 0);
	assert_ok(settings_load(&h, "two", &s, &e), &e);
	assert_string_equal(s.clean_of, "one");
	assert_string_equal(clean_name(&h, &s), "one");
	assert_string_equal(clean_name(&h, &one), "one");
	put(f, "vms/bad.env", "CLEAN_OF=../one\n");
	assert_fails(settings_load(&h, "bad", &s, &e), EBADMSG, &e, "is not a name");
	assert_int_equal(clean_clone_find(&h, "one", found, &e), 1);
}

static void test_generation_record(void **state)
{
	struct test_folder *f = *state;
	struct host h = {.image_fd = f->fd, .report_fd = -1};
	const struct generation g = {.generation = 7, .begun = true, .host_key = "ssh-ed25519 AAAA", .domain_id = 12,
		.rated = true, .overlay_inode = 99, .clean_identity = "1:2:3.4", .base_identity = "5:6:7.8"};
	struct generation back = {0};
	struct error e = ERROR_INIT;

	assert_int_equal(mkdirat(f->fd, "run", 0700), 0);
	assert_ok(generation_save(&h, "one", &g, &e), &e);
	assert_ok(generation_load(&h, "one", &back, &e), &e);
	assert_true(back.begun && back.rated && !back.plain && back.domain_id == 12 && back.overlay_inode == 99);
	assert_string_equal(back.clean_identity, "1:2:3.4");
	assert_string_equal(back.base_identity, "5:6:7.8");
	/* Written by an older version: nothing to compare with. */
	put(f, "run/one.gen", "GENERATION=7\nHOST_KEY=ssh-ed25519 AAAA\nKVM=no\n");
	assert_ok(generation_load(&h, "one", &back, &e), &e);
	assert_true(back.begun && back.domain_id == 0 && back.overlay_inode == 0 && !back.rated);
}

static void test_lock(void **state)
{
	struct test_folder *f = *state;
	struct error e = ERROR_INIT;
	struct settings one, two;
	struct host h;
	int held = -1, tried = -1;

	make_host(f, &h, &one, &two);
	assert_int_equal(host_lock_try(&h, "one", &tried), 0);
	assert_int_equal(tried, -1);
	assert_ok(host_lock(&h, "one", &held, &e), &e);
	assert_int_equal(host_lock_try(&h, "one", &tried), -EBUSY);
	host_lock_sweep(&h, "one");
	(void)close(held);
	assert_int_equal(host_lock_try(&h, "one", &tried), 0);
	assert_true(tried >= 0);
	(void)close(tried);
	host_lock_sweep(&h, "one");
	assert_int_equal(faccessat(f->fd, "run/one.lock", F_OK, 0), 0);
	assert_ok(host_lock(&h, "nobody", &held, &e), &e);
	host_lock_sweep(&h, "nobody");
	assert_int_equal(faccessat(f->fd, "run/nobody.lock", F_OK, 0), 0);
	(void)close(held);
	host_lock_sweep(&h, "nobody");
	assert_int_equal(faccessat(f->fd, "run/nobody.lock", F_OK, 0), -1);
}

static void test_grant(void **state)
{
	struct buf b = BUF_INIT(BEGIN_TEXT_MAX);
	struct error e = ERROR_INIT;

#define KEY "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOy6LJPeQVBIOVlmPvbDHPH"
	assert_ok(grant_render(&b, 5, KEY, &e), &e);
	assert_true(str_starts(b.data, "generation 5\nauthorized_key c3NoLWVkMjU1MTkg"));
	buf_free(&b);
	b = BUF_INIT(BEGIN_TEXT_MAX);
	assert_fails(grant_render(&b, 5, KEY "\n" KEY, &e), EINVAL, &e, "TYPE BASE64");
	assert_fails(grant_render(&b, 5, "no-pty " KEY, &e), EINVAL, &e, "starts with its type");
	assert_fails(grant_render(&b, 5, "", &e), EINVAL, &e, "starts with its type");
	buf_free(&b);
}

static void test_sizes(void **state)
{
	struct error e = ERROR_INIT;

	assert_ok(host_size_check(1, 128, &e), &e);
	assert_fails(host_size_check(1, 127, &e), EINVAL, &e, "would not boot");
	assert_fails(host_size_check(0, 512, &e), EINVAL, &e, "CPUs");
	assert_fails(host_size_check(1, UINT32_MAX, &e), ENOMEM, &e, "does not fit");
	assert_ok(host_free_memory_check(1, &e), &e);
	assert_fails(host_free_memory_check(UINT32_MAX, &e), ENOMEM, &e, "does not fit now");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_domain_seen),
		cmocka_unit_test_setup_teardown(test_files, test_folder_setup, test_folder_teardown),
		cmocka_unit_test_setup_teardown(test_clones, test_folder_setup, test_folder_teardown),
		cmocka_unit_test_setup_teardown(test_generation_record, test_folder_setup, test_folder_teardown),
		cmocka_unit_test_setup_teardown(test_lock, test_folder_setup, test_folder_teardown),
		cmocka_unit_test(test_grant),
		cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
