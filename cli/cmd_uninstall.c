/*
 * uninstall: everything that boxery has made on this machine goes, in an order in which each step needs nothing that an earlier
 * one took away, so that it can be run again wherever it was cut off: units, VMs, network and rules, the keeper, folders.
 * The keeper does what needs libvirt; the folders are the caller's own.
 */
#include "base/str.h"
#include "cli/host.h"
#include "cli/remains.h"
#include "linux/spawn.h"
#include "manager/proto.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SYSTEMCTL_TIMEOUT_MS 60000
#define UNITS_MAX 8
#define UNITS_TEXT_MAX (64 * 1024)
#define SYSTEM_CONFIG "/etc/boxery"

struct uninstall {
	struct hostconf conf;
	bool force, keep_cache, system;
	char units[UNITS_MAX][64];
	size_t n_units;
	json_t *vms, *leases;
};

/* Without systemd, or without its bus, there are no units. */
static void find_units(struct uninstall *u)
{
	const char *argv[] = {"systemctl", u->system ? "--system" : "--user", "list-unit-files",
		"--no-legend", "--plain", "boxery-*", NULL};
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	CLEANUP_FREE char *text = NULL;
	char *line, *save = NULL;

	o.program = argv[0];
	o.argv = argv;
	o.search_path = true;
	if (spawn_capture(&o, SYSTEMCTL_TIMEOUT_MS, UNITS_TEXT_MAX, &text, NULL) < 0 || !text)
		return;
	for (line = strtok_r(text, "\n", &save); line && u->n_units < UNITS_MAX;
		line = strtok_r(NULL, "\n", &save)) {
		line[strcspn(line, " \t")] = '\0';
		/* Of a template there is nothing to disable. */
		if (str_starts(line, "boxery-") && !strchr(line, '@') &&
			str_format(u->units[u->n_units], "%s", line) == 0)
			u->n_units++;
	}
}

static int disable_units(const struct uninstall *u, struct error *e)
{
	const char *argv[UNITS_MAX + 5] = {
		"systemctl", u->system ? "--system" : "--user", "disable", "--now"};
	struct spawn_options o = SPAWN_OPTIONS_INIT;

	if (u->n_units == 0)
		return 0;
	for (size_t i = 0; i < u->n_units; i++)
		argv[4 + i] = u->units[i];
	o.program = argv[0];
	o.argv = argv;
	o.search_path = true;
	return spawn_capture(&o, SYSTEMCTL_TIMEOUT_MS, UNITS_TEXT_MAX, NULL, e) < 0
		       ? error_wrap(e, "cannot stop and disable the units")
		       : 0;
}

static int ask_lists(struct uninstall *u, struct error *e)
{
	struct keeper_request r;
	int code;

	json_decref(u->vms);
	json_decref(u->leases);
	u->vms = u->leases = NULL;
	keeper_request_init(&r, KEEPER_LIST);
	code = cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &u->vms, e);
	if (code < 0)
		return code;
	keeper_request_init(&r, KEEPER_LEASES);
	return cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &u->leases, e);
}

/* What would be lost: jobs, and what only this host's records can still delete at GitHub. */
static int check_nothing_runs(struct uninstall *u, struct error *e)
{
	json_t *lease;
	size_t i;

	json_array_foreach(json_object_get(u->leases, "leases"), i, lease)
	{
		char vm[64], holder[64], name[128];

		(void)json_text(lease, "vm", vm, sizeof(vm));
		(void)json_text(lease, "holder", holder, sizeof(holder));
		(void)json_text(lease, "runner_name", name, sizeof(name));
		if (u->force)
			continue;
		if (json_is_true(json_object_get(lease, "open")))
			return error_set(e, EBUSY,
				"%s is leased by %s: let it end ('boxery-host lease ls'), or say --force and "
				"lose it",
				vm, holder);
		return error_set(e, EBUSY,
			"the registration of runner %s may still be at GitHub, and only this host knows that "
			"it is to be "
			"deleted: let the runner service work it off, or delete it in the settings of the "
			"repository and say --force",
			name);
	}
	return 0;
}

static int check_no_service(struct error *e)
{
	struct error none = ERROR_INIT;
	json_t *status = NULL;
	int code = cli_runners_call(CONTROL_STATUS, NULL, &status, &none);

	json_decref(status);
	if (code < 0 && none.code == ENOTCONN)
		return 0;
	return error_set(e, EBUSY,
		"the runner service runs: 'boxery-host runners drain --wait' lets its jobs end; then end it");
}

static int show_folder(const struct uninstall *u, enum remains_folder which, struct error *e)
{
	struct remains r;
	int code = remains_look(&u->conf, which, &r, e);

	if (code < 0 || access(r.path, F_OK) < 0)
		return code;
	if (u->keep_cache && which == REMAINS_CACHE) {
		printf("  kept     %s (%" PRIu64 " files, %" PRIu64 " MiB)\n", r.path, r.files,
			r.bytes >> 20);
		return 0;
	}
	printf("  folder   %s (%" PRIu64 " files, %" PRIu64 " MiB)\n", r.path, r.files, r.bytes >> 20);
	if (r.strangers)
		printf("           but not %s%s in it: boxery has not made that\n", r.stranger,
			r.strangers > 1 ? " and others" : "");
	return 0;
}

static int show(const struct uninstall *u, struct error *e)
{
	json_t *vm;
	size_t i;
	int code = 0;

	printf("This will be removed from this machine:\n");
	for (i = 0; i < u->n_units; i++)
		printf("  unit     %s is stopped and disabled\n", u->units[i]);
	json_array_foreach(json_object_get(u->vms, "vms"), i, vm)
	{
		char name[64], pool[64], state[32];

		(void)json_text(vm, "pool", pool, sizeof(pool));
		printf("  VM       %s%s%s, %s\n", json_text(vm, "name", name, sizeof(name)),
			pool[0] ? " of pool " : "", pool, json_text(vm, "state", state, sizeof(state)));
	}
	printf("  network  %s, its bridge virbr-%s, its filter and rules\n", u->conf.net_name,
		u->conf.net_name);
	for (int which = 0; code == 0 && which < REMAINS_COUNT; which++)
		code = show_folder(u, (enum remains_folder)which, e);
	return code;
}

static int confirm(bool yes, struct error *e)
{
	char answer[16] = "";

	if (yes)
		return 0;
	if (!isatty(STDIN_FILENO))
		return error_set(e, EINVAL, "nothing was removed: say --yes when nobody can be asked");
	printf("Type yes to remove all of it: ");
	(void)fflush(stdout);
	if (fgets(answer, sizeof(answer), stdin) && str_equal(answer, "yes\n"))
		return 0;
	return error_set(e, ECANCELED, "nothing was removed");
}

static int remove_vm(const struct uninstall *u, const json_t *vm, struct error *e)
{
	char name[64], state[32];
	struct keeper_request r;
	int code;

	(void)json_text(vm, "name", name, sizeof(name));
	(void)json_text(vm, "state", state, sizeof(state));
	keeper_request_init(&r, str_equal(state, "PLAIN") ? KEEPER_REMOVE : KEEPER_POOL_REMOVE);
	r.flags |= KEEPER_FLAG_FORCE;
	code = cli_set_name(&r, name, e);
	if (code == 0)
		code = cli_call(&r, CLI_WORK_TIMEOUT_MS, NULL, NULL, e);
	if (code == -ENOENT)
		return 0;
	if (code == 0)
		printf("VM %s was removed\n", name);
	return code < 0 ? error_wrap(e, "cannot remove %s", name) : 0;
}

/* Those that start from another's clean state first: they keep that one. */
static int remove_vms(const struct uninstall *u, struct error *e)
{
	json_t *vm;
	size_t i;
	int code = 0;

	for (int clones = 1; clones >= 0; clones--)
		json_array_foreach(json_object_get(u->vms, "vms"), i,
			vm) if (code == 0 && (json_string_length(json_object_get(vm, "clean_of")) > 0) ==
						     clones) code = remove_vm(u, vm, e);
	return code;
}

static int remove_all(struct uninstall *u, struct error *e)
{
	struct keeper_request r;
	bool ran;
	int code = disable_units(u, e);

	/* One that is no unit; and one that ended just now may have taken a lease just before. */
	if (code == 0)
		code = check_no_service(e);
	if (code == 0)
		code = ask_lists(u, e);
	if (code == 0)
		code = check_nothing_runs(u, e);
	if (code == 0)
		code = remove_vms(u, e);
	if (code < 0)
		return code;
	keeper_request_init(&r, KEEPER_UNINSTALL);
	r.flags = u->force ? KEEPER_FLAG_FORCE : 0;
	code = cli_call(&r, CLI_WORK_TIMEOUT_MS, NULL, NULL, e);
	if (code == 0)
		printf("network %s and its rules were removed\n", u->conf.net_name);
	if (code == 0)
		code = cli_keeper_end(&u->conf, &ran, e);
	for (int which = 0; code == 0 && which < REMAINS_COUNT; which++)
		if (which != REMAINS_CACHE || !u->keep_cache)
			code = remains_remove(&u->conf, (enum remains_folder)which, e);
	if (code == 0)
		printf("the folders were removed\nWhat is left are the programs, their manual pages and "
		       "units: 'ninja -C build uninstall' "
		       "removes what 'meson install' has put there%s.\n",
			u->system ? ", and 'userdel boxery-github' the user of boxery-github" : "");
	return code;
}

int cmd_uninstall(int argc, char **argv)
{
	struct uninstall u = {0};
	bool yes = false;
	const struct cli_option options[] = {
		{"yes", OPTION_FLAG, &yes, NULL, "do not ask", 0, 0},
		{"force", OPTION_FLAG, &u.force, NULL,
			"also when VMs are leased, registrations are left at GitHub, or files of VMs that are in no list", 0, 0},
		{"keep-cache", OPTION_FLAG, &u.keep_cache, NULL, "leave the downloads for a later build-base",
			0, 0},
	};
	const struct cli_usage usage = {"boxery-host uninstall", "",
		"Removes everything that boxery has made on this machine: VMs, images, network, rules, units "
		"in use, settings, state.\n"
		"Says first what that is, and asks. Refuses while VMs are leased or the runner service runs.",
		options, ARRAY_SIZE(options), 0, 0};
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	code = hostconf_load(&u.conf, &e);
	if (code == 0) {
		u.system = str_equal(u.conf.config_dir, SYSTEM_CONFIG);
		find_units(&u);
		/* What systemd runs is ended by it. */
		code = u.n_units ? 0 : check_no_service(&e);
	}
	if (code == 0)
		code = ask_lists(&u, &e);
	if (code == 0)
		code = check_nothing_runs(&u, &e);
	if (code == 0)
		code = show(&u, &e);
	if (code == 0)
		code = confirm(yes, &e);
	if (code == 0)
		code = remove_all(&u, &e);
	json_decref(u.vms);
	json_decref(u.leases);
	return code < 0 ? cli_fail(&e) : EXIT_STATUS_OK;
}
