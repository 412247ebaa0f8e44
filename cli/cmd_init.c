/*
 * init and doctor. Both look at the same list of things; init also makes the folders and a host.env to start from.
 * What needs libvirt (network, filter, whether a guest really starts with KVM) is asked of the keeper, which asks boxery-vm.
 */
#include "base/str.h"
#include "cli/host.h"
#include "linux/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define RUNNER_AGE_WARN_DAYS 25 /* GitHub: every release has to be installed within 30 */
#define IMAGE_FREE_MIN_MIB 4096 /* a base image, its layers and a few overlays */

static void add_check(json_t *checks, const char *name, bool ok, const char *text)
{
	(void)json_array_append_new(checks, json_pack("{s:s,s:b,s:s}", "name", name, "ok", ok, "text", text));
}

static bool in_path(const char *program)
{
	static const char *const folders[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (str_format(path, "%s/%s", folders[i], program) == 0 && access(path, X_OK) == 0)
			return true;
	return false;
}

static void check_programs(json_t *checks)
{
	static const struct {
		const char *program, *package;
	} needed[] = {
#if defined(__aarch64__)
		{"qemu-system-aarch64", "qemu-system-arm"},
#else
		{"qemu-system-x86_64", "qemu-system-x86"},
#endif
		{"qemu-img", "qemu-utils"},
		{"mmdebstrap", "mmdebstrap"},
		{"nft", "nftables"},
		{"ebtables", "ebtables"},
		{"iptables", "iptables"},
		{"dnsmasq", "dnsmasq-base"},
		{"ssh-keygen", "openssh-client"},
		{"mkfs.ext4", "e2fsprogs"},
	};
	char text[160];

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		bool found = in_path(needed[i].program);

		(void)str_format(text, found ? "found" : "not found; apt-get install %s", needed[i].package);
		add_check(checks, needed[i].program, found, text);
	}
}

static void check_space(json_t *checks, const char *folder)
{
	struct statvfs space;
	char text[512];
	uint64_t mib;

	if (statvfs(folder, &space) < 0) {
		(void)str_format(text, "%s: %s; 'boxery-host init' makes it", folder, strerror(errno));
		add_check(checks, "image folder", false, text);
		return;
	}
	if (access(folder, W_OK) < 0) {
		(void)str_format(text, "%s cannot be written: %s", folder, strerror(errno));
		add_check(checks, "image folder", false, text);
		return;
	}
	mib = (uint64_t)space.f_bavail * space.f_frsize / (1024 * 1024);
	(void)str_format(text, "%s: %llu MiB free%s", folder, (unsigned long long)mib,
			mib < IMAGE_FREE_MIN_MIB ? ", at least 4096 are needed" : "");
	add_check(checks, "image folder", mib >= IMAGE_FREE_MIN_MIB, text);
}

/* GitHub gives a runner no jobs when a newer release has been out for a while; it is asked by `runners check`. */
static bool check_runner(void *userdata, const struct cli_image *image)
{
	json_t *checks = userdata;
	char name[VM_NAME_MAX + 16], text[200];
	struct tm at = {0};
	double days;

	if (!image->runner_version[0] || !strptime(image->built_at, "%Y-%m-%dT%H:%M:%SZ", &at))
		return true;
	days = difftime(time(NULL), timegm(&at)) / 86400;
	(void)str_format(name, "runner in %s", image->name);
	(void)str_format(text, "actions/runner %s, image built %.0f days ago%s", image->runner_version, days < 0 ? 0 : days,
			days > RUNNER_AGE_WARN_DAYS ? "; warning: GitHub wants each release within 30 days; 'boxery-host runners check' asks until when "
						      "it takes this one" : "");
	add_check(checks, name, true, text);
	return true;
}

/* Overlays grow as jobs write. Not a fault: most jobs write little. */
static void check_pool_disks(json_t *checks, const char *folder, const json_t *vms)
{
	uint64_t wanted_mib = 0, free_mib;
	struct statvfs space;
	json_t *vm;
	size_t i, n = 0;
	char text[256];

	json_array_foreach(vms, i, vm)
	{
		if (!json_string_length(json_object_get(vm, "pool")))
			continue;
		wanted_mib += (uint64_t)json_integer_value(json_object_get(vm, "disk_gib")) * 1024;
		n++;
	}
	if (n == 0 || statvfs(folder, &space) < 0)
		return;
	free_mib = (uint64_t)space.f_bavail * space.f_frsize / (1024 * 1024);
	(void)str_format(text, "%zu VMs of pools may write %llu MiB in all, %llu MiB are free%s", n, (unsigned long long)wanted_mib,
			(unsigned long long)free_mib,
			wanted_mib > free_mib ? "; warning: a job that finds the disk full is stopped, and its VM is reset" : "");
	add_check(checks, "pool disks", true, text);
}

static int print_checks(json_t *checks, bool json)
{
	json_t *check;
	size_t i, failed = 0;

	json_array_foreach(checks, i, check)
	{
		char name[64], text[ERROR_TEXT_MAX];
		bool ok = json_is_true(json_object_get(check, "ok"));

		failed += !ok;
		if (!json)
			printf("%-4s %-20s %s\n", ok ? "ok" : "FAIL", json_text(check, "name", name, sizeof(name)),
					json_text(check, "text", text, sizeof(text)));
	}
	if (json) {
		json_t *document = json_pack("{s:O}", "checks", checks);

		if (!document || cli_print_json(document) != EXIT_STATUS_OK)
			failed++;
		json_decref(document);
	} else if (failed) {
		printf("%zu of %zu checks failed; nothing can be served until they pass.\n", failed, json_array_size(checks));
	}
	return failed ? EXIT_STATUS_HOST : EXIT_STATUS_OK;
}

static int check_all(const struct hostconf *conf, bool json)
{
	json_t *checks = json_array(), *document = NULL, *vms = NULL;
	struct keeper_request r;
	struct error e = ERROR_INIT;
	int status;

	check_programs(checks);
	check_space(checks, conf->image_dir);
	cli_images_each(conf, check_runner, checks);
	keeper_request_init(&r, KEEPER_CHECK);
	if (cli_call(&r, CLI_WORK_TIMEOUT_MS, NULL, &document, &e) < 0) {
		add_check(checks, "keeper", false, e.text);
	} else {
		add_check(checks, "keeper", true, "answers");
		(void)json_array_extend(checks, json_object_get(document, "checks"));
		keeper_request_init(&r, KEEPER_LIST);
		if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &vms, &e) == 0)
			check_pool_disks(checks, conf->image_dir, json_object_get(vms, "vms"));
	}
	status = print_checks(checks, json);
	json_decref(document);
	json_decref(vms);
	json_decref(checks);
	return status;
}

static int prepare(const struct hostconf *conf, struct error *e)
{
	static const char template[] =
			"# boxery's host settings; every key is listed in boxery-host.env(5). Unknown keys are errors.\n"
			"#BOXERY_LIBVIRT_URI=qemu:///system\n"
			"#BOXERY_IMAGE_DIR=/var/lib/boxery\n"
			"#BOXERY_NET_ISOLATION=on\n"
			"#BOXERY_NET_FILTER=auto\n"
			"#BOXERY_NET_SUBNET=192.168.130\n"
			"#BOXERY_VIRT=auto\n"
			"#BOXERY_PARALLEL=2\n";
	const struct {
		const char *parent, *name;
		mode_t mode;
	} folders[] = {
		{conf->config_dir, "", 0700},
		{conf->config_dir, "host-keys", 0755},
		{conf->state_dir, "", 0700},
		{conf->runtime_dir, "", 0700},
		{conf->image_dir, "", 0711},
		{conf->image_dir, "base", 0755},
		{conf->image_dir, "images", 0755},
		{conf->image_dir, "vms", 0711},
		{conf->image_dir, "run", 0711},
		{conf->image_dir, "console", 0700},
		{conf->cache_dir, "", 0755},
	};
	CLEANUP_FD int config = -1;
	char path[512];
	int code;

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		code = str_format(path, "%s%s%s", folders[i].parent, folders[i].name[0] ? "/" : "", folders[i].name);
		if (code < 0)
			return error_set(e, ENAMETOOLONG, "folder path too long: %s/%s", folders[i].parent, folders[i].name);
		code = dir_make(path, folders[i].mode, e);
		if (code < 0)
			return code;
	}
	code = dir_open(AT_FDCWD, conf->config_dir, &config, e);
	if (code < 0)
		return code;
	if (faccessat(config, "host.env", F_OK, 0) == 0)
		return 0;
	return file_write_atomic(config, "host.env", template, sizeof(template) - 1, 0644, e);
}

int cmd_init(int argc, char **argv)
{
	bool json = false;
	const struct cli_option options[] = {
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"checks\":[...]}", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host init", "",
			"Makes boxery's folders and a host.env to start from, then checks this machine like doctor. Safe to repeat.",
			options, ARRAY_SIZE(options), 0, 0};
	struct hostconf conf;
	struct error e = ERROR_INIT;
	int first, status;

	if (!cli_begin(&usage, argc, argv, &first, &conf, &status))
		return status;
	if (prepare(&conf, &e) < 0)
		return cli_fail(&e);
	return check_all(&conf, json);
}

int cmd_doctor(int argc, char **argv)
{
	bool json = false;
	const struct cli_option options[] = {
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"checks\":[...]}", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host doctor", "",
			"Says what this host can do: programs, folders, libvirt, network, filter, and whether guests run with KVM or in\n"
			"software emulation, and why. Exit status 7 when something is missing.",
			options, ARRAY_SIZE(options), 0, 0};
	struct hostconf conf;
	int first, status;

	if (!cli_begin(&usage, argc, argv, &first, &conf, &status))
		return status;
	return check_all(&conf, json);
}

int cmd_paths(int argc, char **argv)
{
	bool json = false;
	const struct cli_option options[] = {
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"config\":FOLDER,...}", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host paths", "", "Prints where boxery keeps what on this machine.", options,
			ARRAY_SIZE(options), 0, 0};
	struct hostconf conf;
	int first, status;

	if (!cli_begin(&usage, argc, argv, &first, &conf, &status))
		return status;
	const struct {
		const char *name, *path;
	} paths[] = {{"config", conf.config_dir}, {"state", conf.state_dir}, {"runtime", conf.runtime_dir},
			{"images", conf.image_dir}, {"cache", conf.cache_dir}};
	json_t *document = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		(void)json_object_set_new(document, paths[i].name, json_string(paths[i].path));
		if (!json)
			printf("%-8s %s\n", paths[i].name, paths[i].path);
	}
	status = json ? cli_print_json(document) : EXIT_STATUS_OK;
	json_decref(document);
	return status;
}
