/* Layer files, their order, what a build is made from, and the script it becomes. Wrong files: tests/golden/layers. */
#include "testing.h"
#include "layers/check.h"
#include "layers/manifest.h"
#include "layers/plan.h"
#include "layers/sha256.h"
#include "base/str.h"
#include <errno.h>

#define SUM_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void write_file(const struct test_folder *f, const char *name, const char *text)
{
	int fd = openat(f->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(close(fd), 0);
}

static char *read_text(const struct test_folder *f, const char *name)
{
	char *text = calloc(1, 65536);
	int fd = openat(f->fd, name, O_RDONLY | O_CLOEXEC);

	assert_non_null(text);
	assert_true(fd >= 0);
	assert_true(read(fd, text, 65535) >= 0);
	(void)close(fd);
	return text;
}

static void test_values(void **state)
{
	static const char text[] = "name: thing\n"
				   "description: a thing\n"
				   "requires: [debian]\n"
				   "packages: [git, g++]\n"
				   "users: [{name: u, uid: 1500, groups: [a, b]}]\n"
				   "files:\n"
				   "- {source: guest/begin, dest: /usr/bin/x, mode: \"4755\", owner: u:u}\n"
				   "- dest: /etc/x\n"
				   "  content: |\n"
				   "    one\n"
				   "    two\n"
				   "units: {enable: [a.service], mask: [b.timer, c.timer]}\n"
				   "download:\n"
				   "  version: 2.0\n"
				   "  url: https://example.org/{version}/{arch}/{version}\n"
				   "  arch: {amd64: x64}\n"
				   "  sha256: {amd64: " SUM_A "}\n"
				   "  dest: /opt/x\n"
				   "run: [\"true\"]\n";
	struct error e = ERROR_INIT;
	struct layer *l = NULL;
	char url[100];

	assert_ok(layer_parse("x.yaml", "thing", text, sizeof(text) - 1, &l, &e), &e);
	assert_string_equal(l->name, "thing");
	assert_string_equal(l->description, "a thing");
	assert_int_equal(l->packages.n, 2);
	assert_string_equal(l->packages.items[1], "g++");
	assert_int_equal(l->n_users, 1);
	assert_int_equal(l->users[0].uid, 1500);
	assert_string_equal(l->users[0].shell, "/bin/bash");
	assert_int_equal(l->users[0].groups.n, 2);
	assert_int_equal(l->n_files, 2);
	assert_int_equal(l->files[0].mode, 04755);
	assert_string_equal(l->files[0].owner, "u:u");
	assert_null(l->files[0].content);
	assert_string_equal(l->files[1].content, "one\ntwo\n");
	assert_int_equal(l->files[1].mode, 0644);
	assert_int_equal(l->files[1].line, 8);
	assert_int_equal(l->mask.n, 2);
	assert_int_equal(l->disable.n, 0);
	assert_int_equal(l->text_len, sizeof(text) - 1);
	assert_ok(layer_download_url(l, LAYER_AMD64, url, sizeof(url), &e), &e);
	assert_string_equal(url, "https://example.org/2.0/x64/2.0");
	assert_string_equal(l->download.arch[LAYER_ARM64], "arm64");
	assert_fails(layer_download_url(l, LAYER_ARM64, url, sizeof(url), &e), EOPNOTSUPP, &e,
			"x.yaml:14: no sha256 for arm64");
	(void)layer_free(l);
	assert_null(layer_free(NULL));
}

static void test_size(void **state)
{
	struct error e = ERROR_INIT;
	struct layer *l = NULL;
	char *big = calloc(1, LAYER_FILE_MAX + 2);

	assert_non_null(big);
	memset(big, '#', LAYER_FILE_MAX + 1);
	assert_fails(layer_parse("x.yaml", NULL, big, LAYER_FILE_MAX + 1, &l, &e), EBADMSG, &e, "larger than 65536");
	memcpy(big, "name: x\n", 8);
	assert_ok(layer_parse("x.yaml", NULL, big, LAYER_FILE_MAX, &l, &e), &e);
	(void)layer_free(l);
	free(big);
}

/* Both are named twice over, and each comes once, what it needs before it. */
static void test_order(void **state)
{
	const struct test_folder *f = *state;
	const char *const folders[] = { f->path }, *const names[] = { "top", "base", "other" };
	struct layer_set set = { .n = 0 };
	struct error e = ERROR_INIT;
	char list[100];

	write_file(f, "base.yaml", "name: base\n");
	write_file(f, "middle.yaml", "name: middle\nrequires: [base]\n");
	write_file(f, "top.yaml", "name: top\nrequires: [middle, base]\n");
	write_file(f, "other.yaml", "name: other\nrequires: [middle]\n");
	assert_ok(layer_set_load(folders, 1, names, 3, &set, &e), &e);
	assert_ok(plan_layer_names(&set, list, sizeof(list), &e), &e);
	assert_string_equal(list, "base,middle,top,other");
	assert_fails(plan_layer_names(&set, list, 10, &e), ENAMETOOLONG, &e, "names of the layers");
	layer_set_free(&set);
	assert_int_equal(set.n, 0);
	write_file(f, "base.yaml", "name: base\nrequires: [top]\n");
	assert_fails(layer_set_load(folders, 1, names, 1, &set, &e), ELOOP, &e, "top requires middle requires base requires top");
	write_file(f, "base.yaml", "name: base\npackages: [UP]\n");
	assert_fails(layer_set_load(folders, 1, names, 1, &set, &e), EBADMSG, &e, "base.yaml:2: packages");
	assert_int_equal(set.n, 0);
}

static void test_too_many(void **state)
{
	const struct test_folder *f = *state;
	const char *const folders[] = { f->path };
	const char *names[LAYERS_MAX + 1];
	char text[LAYERS_MAX + 1][8], body[64], file[16];
	struct layer_set set = { .n = 0 };
	struct error e = ERROR_INIT;

	for (unsigned i = 0; i <= LAYERS_MAX; i++) {
		(void)snprintf(text[i], sizeof(text[i]), "l%u", i);
		(void)snprintf(file, sizeof(file), "l%u.yaml", i);
		(void)snprintf(body, sizeof(body), "name: l%u\n", i);
		write_file(f, file, body);
		names[i] = text[i];
	}
	assert_fails(layer_set_load(folders, 1, names, LAYERS_MAX + 1, &set, &e), E2BIG, &e, "more than 16 layers");
	for (unsigned i = 0; i < LAYERS_MAX; i++) {
		(void)snprintf(file, sizeof(file), "l%u.yaml", i);
		(void)snprintf(body, sizeof(body), "name: l%u\nrequires: [l%u]\n", i, i + 1);
		write_file(f, file, body);
	}
	assert_fails(layer_set_load(folders, 1, names, 1, &set, &e), E2BIG, &e, "more than 16 deep");
}

struct plan_test {
	struct layer_set set;
	struct plan_request q;
	char sum[LAYER_SHA256_MAX];
};

static void load(const struct test_folder *f, struct plan_test *t)
{
	static const char *const names[] = { "one" };
	const char *const folders[] = { f->path };
	struct error e = ERROR_INIT;

	layer_set_free(&t->set);
	t->q.arch = LAYER_AMD64;
	t->q.suite = "bookworm";
	t->q.disk_gib = 20;
	assert_ok(layer_set_load(folders, 1, names, 1, &t->set, &e), &e);
	assert_ok(plan_inputs(&t->q, &t->set, t->sum, &e), &e);
}

/* Each thing that decides how an image comes out changes the sum; nothing else does. */
static void test_inputs(void **state)
{
	const struct test_folder *f = *state;
	struct plan_test t = { .q.suite = NULL };
	char seen[8][LAYER_SHA256_MAX], ca[100], path[100];
	struct error e = ERROR_INIT;
	unsigned n = 0;

	/* Sources lie beside the folder with the layers, which here is the test's folder. */
	(void)snprintf(path, sizeof(path), "name: one\nfiles: [{source: %s/data, dest: /x}]\n", strrchr(f->path, '/') + 1);
	write_file(f, "one.yaml", path);
	write_file(f, "data", "first");
	load(f, &t);
	(void)str_copy(seen[n++], t.sum);
	load(f, &t);
	assert_string_equal(seen[0], t.sum);
	write_file(f, "data", "second");
	load(f, &t);
	(void)str_copy(seen[n++], t.sum);
	t.q.mirror = "http://127.0.0.1/debian";
	load(f, &t);
	(void)str_copy(seen[n++], t.sum);
	t.q.mirror = NULL;
	(void)snprintf(ca, sizeof(ca), "%s/ca.pem", f->path);
	write_file(f, "ca.pem", "-----BEGIN CERTIFICATE-----\nx\n");
	t.q.ca_files[0] = ca;
	t.q.n_ca_files = 1;
	load(f, &t);
	(void)str_copy(seen[n++], t.sum);
	t.q.n_ca_files = 0;
	write_file(f, "one.yaml", "name: one\npackages: [git]\n");
	load(f, &t);
	(void)str_copy(seen[n++], t.sum);
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(seen[i], seen[k]);
	write_file(f, "ca.pem", "-----BEGIN PRIVATE KEY-----\nx\n");
	t.q.n_ca_files = 1;
	assert_fails(plan_inputs(&t.q, &t.set, t.sum, &e), EINVAL, &e, "holds no certificate");
	layer_set_free(&t.set);
}

static void test_packages(void **state)
{
	const struct test_folder *f = *state;
	struct plan_test t = { .q.suite = NULL };
	struct buf b = BUF_INIT(1000);
	struct error e = ERROR_INIT;

	write_file(f, "zero.yaml", "name: zero\npackages: [git, \"linux-image-{arch}\"]\n");
	write_file(f, "one.yaml", "name: one\nrequires: [zero]\npackages: [gi, git-lfs, git]\n");
	load(f, &t);
	t.q.n_ca_files = 1;
	assert_ok(plan_packages(&t.q, &t.set, &b, &e), &e);
	assert_string_equal(b.data, "git,linux-image-amd64,gi,git-lfs,ca-certificates");
	buf_free(&b);
	layer_set_free(&t.set);
}

/* What a layer says comes out as quoted words or as files of their own, never as commands of the script. */
static void test_stage(void **state)
{
	const struct test_folder *f = *state;
	const char *archives[LAYERS_MAX] = { "/cache/it's $(here)" };
	struct plan_test t = { .q.suite = NULL };
	struct error e = ERROR_INIT;
	char *script, *text;

	write_file(f, "one.yaml",
			"name: one\n"
			"users: [{name: u, uid: 1500, groups: [g]}]\n"
			"files: [{content: \"$(touch /tmp/x)\", dest: /etc/x, mode: \"0600\", owner: u:u}]\n"
			"units: {mask: [a.timer], enable: [b.service]}\n"
			"download: {version: 1.0, url: \"https://e.org/\", dest: /opt/x, sha256: {amd64: " SUM_A "}}\n"
			"run: [\"echo 'a' $(b)\"]\n");
	load(f, &t);
	assert_ok(plan_stage(&t.q, &t.set, f->fd, f->path, archives, &e), &e);
	script = read_text(f, "apply");
	assert_non_null(strstr(script, "\nin_image useradd --create-home --user-group --uid '1500' '--shell' '/bin/bash' 'u'\n"));
	assert_non_null(strstr(script, "\nin_image usermod --append --groups 'g' 'u'\n"));
	assert_non_null(strstr(script, "\nput '0600' 'u:u' '/tmp/boxery-test-"));
	assert_non_null(strstr(script, "/file-0' '/etc/x'\n"));
	assert_non_null(strstr(script, "\nunpack '/cache/it'\\''s $(here)' '/opt/x'\n"));
	assert_non_null(strstr(script, "\nin_image systemctl --quiet enable -- 'b.service'\n"));
	assert_non_null(strstr(script, "\nin_image systemctl --quiet mask -- 'a.timer'\n"));
	assert_non_null(strstr(script, "/file-1' 'one'\n"));
	assert_null(strstr(script, "touch"));
	text = read_text(f, "file-0");
	assert_string_equal(text, "$(touch /tmp/x)");
	free(text);
	text = read_text(f, "file-1");
	assert_string_equal(text, "echo 'a' $(b)");
	free(text);
	free(script);
	layer_set_free(&t.set);
}

static void test_manifest(void **state)
{
	const struct test_folder *f = *state;
	struct manifest m = { .disk_size = 5, .disk_file_size = 6 }, back;
	struct error e = ERROR_INIT;

	(void)str_copy(m.arch, "amd64");
	(void)str_copy(m.cmdline, "root=/dev/vda rw a=b");
	(void)str_copy(m.layers, "a,b");
	assert_ok(manifest_write(f->fd, &m, &e), &e);
	assert_ok(manifest_read(f->fd, "m", &back, &e), &e);
	assert_memory_equal(&m, &back, sizeof(m));
	write_file(f, MANIFEST_FILE, "ARCH=amd64\nDISK_SIZE=x\n");
	assert_fails(manifest_read(f->fd, "m", &back, &e), EBADMSG, &e, "m:2: ");
	write_file(f, MANIFEST_FILE, "ARCH=a-word-that-is-too-long\n");
	assert_fails(manifest_read(f->fd, "m", &back, &e), EBADMSG, &e, "m:1: ARCH is too long");
}

static void test_sha256(void **state)
{
	char sum[LAYER_SHA256_MAX];

	/* FIPS 180-2, appendix B.1 */
	assert_int_equal(sha256_text("abc", 3, sum), 0);
	assert_string_equal(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void test_loopback(void **state)
{
	static const char *const yes[] = { "127.0.0.1", "127.1.2.3", "[::1]", "::1" };
	static const char *const no[] = { "localhost", "127.1", "0.0.0.0", "128.0.0.1", "127.0.0.1.example.org", "::", "" };

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		assert_true(host_is_loopback(yes[i]));
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		assert_false(host_is_loopback(no[i]));
}

#define WITH_FOLDER(t) cmocka_unit_test_setup_teardown(t, test_folder_setup, test_folder_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values), cmocka_unit_test(test_size), WITH_FOLDER(test_order), WITH_FOLDER(test_too_many),
		WITH_FOLDER(test_inputs), WITH_FOLDER(test_packages), WITH_FOLDER(test_stage), WITH_FOLDER(test_manifest),
		cmocka_unit_test(test_sha256), cmocka_unit_test(test_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
