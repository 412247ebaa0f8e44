/* VMs that are not in a pool: new, ls, start, stop, rm. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int cmd_new(int argc, char **argv)
{
	uint64_t cpus = 0, memory = 0, disk = 0;
	const char *image = "debian-12";
	struct option_list layers = {0};
	const struct cli_option options[] = {
		{"image", OPTION_TEXT, &image, "IMAGE", "base image made by build-base (default debian-12)", 0, 0},
		{"layers", OPTION_LIST, &layers, "L[,L...]", "use the base image built from exactly these layers", 0, 0},
		{"cpus", OPTION_NUMBER, &cpus, "N", "virtual CPUs, 1 to 64 (default 2)", 1, 64},
		{"memory", OPTION_SIZE_MIB, &memory, "SIZE", "memory, for example 2G (default 2048M)", 128, 1024 * 1024},
		{"disk", OPTION_SIZE_MIB, &disk, "SIZE", "disk, whole GiB, at least the image's (default 20G)", 1024,
				16 * 1024 * 1024},
	};
	const struct cli_usage usage = {"boxery-host new", "NAME",
			"Makes a VM from a base image. It gets an address, a MAC and a tap of its own; its host key is made\n"
			"anew on this host at every start.",
			options, ARRAY_SIZE(options), 1, 1};
	char joined[1024], chosen[VM_NAME_MAX];
	struct keeper_request r;
	struct hostconf conf;
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_NEW);
	if (cli_set_name(&r, argv[first], &e) < 0)
		return cli_fail(&e);
	if (layers.n && (hostconf_load(&conf, &e) < 0 || cli_join(&layers, joined, sizeof(joined), &e) < 0 ||
					cli_image_of_layers(&conf, joined, chosen, sizeof(chosen), &e) < 0))
		return cli_fail(&e);
	if (layers.n)
		image = chosen;
	if (name_check(image, "image name", &e) < 0)
		return cli_fail(&e);
	if (disk % 1024) {
		(void)error_set(&e, EINVAL, "--disk: whole GiB only, for example 20G");
		return cli_fail(&e);
	}
	(void)str_copy(r.image, image);
	r.cpus = (uint32_t)cpus;
	r.memory_mib = (uint32_t)memory;
	r.disk_gib = (uint32_t)(disk / 1024);
	return cli_do(&r, CLI_WORK_TIMEOUT_MS, argv[first]);
}

int cmd_ls(int argc, char **argv)
{
	bool json = false;
	const struct cli_option options[] = {
		{"json", OPTION_FLAG, &json, NULL, "machine-readable: {\"vms\":[...]}", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host ls", "", "Lists every VM, in a pool or not.", options,
			ARRAY_SIZE(options), 0, 0};
	static const char *const titles[] = {"NAME", "STATE", "POOL", "ADDRESS", "CPUS", "MEMORY", "LIFE", "IMAGE"};
	static const char *const keys[] = {"name", "state", "pool", "address", "cpus", "memory_mib", "generation", "image"};
	CLEANUP(table_freep) struct table *table = table_new(ARRAY_SIZE(titles), titles);
	struct keeper_request r;
	struct error e = ERROR_INIT;
	json_t *document = NULL, *vm;
	size_t i;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, KEEPER_LIST);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, &e) < 0)
		return cli_fail(&e);
	if (json) {
		code = cli_print_json(document);
	} else {
		json_array_foreach(json_object_get(document, "vms"), i, vm)
		{
			char scratch[ARRAY_SIZE(keys)][128];
			const char *cells[ARRAY_SIZE(keys)];

			for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
				cells[k] = json_text(vm, keys[k], scratch[k], sizeof(scratch[k]));
			table_add(table, cells);
		}
		table_print(table);
		code = EXIT_STATUS_OK;
	}
	json_decref(document);
	return code;
}

static int simple(int argc, char **argv, const struct cli_usage *usage, enum keeper_type type, const bool *force)
{
	struct keeper_request r;
	struct keeper_reply reply;
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	keeper_request_init(&r, type);
	if (force && *force)
		r.flags |= KEEPER_FLAG_FORCE;
	if (cli_set_name(&r, argv[first], &e) < 0 || cli_call(&r, CLI_WORK_TIMEOUT_MS, &reply, NULL, &e) < 0)
		return cli_fail(&e);
	if (reply.address[0])
		printf("%s %s\n", argv[first], reply.address);
	return EXIT_STATUS_OK;
}

int cmd_start(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host start", "NAME",
			"Starts a VM that is not in a pool and waits until it answers. Prints its name and address.", NULL, 0,
			1, 1};

	return simple(argc, argv, &usage, KEEPER_START, NULL);
}

int cmd_stop(int argc, char **argv)
{
	const struct cli_usage usage = {"boxery-host stop", "NAME", "Shuts a VM down that is not in a pool.", NULL, 0, 1,
			1};

	return simple(argc, argv, &usage, KEEPER_STOP, NULL);
}

int cmd_rm(int argc, char **argv)
{
	bool force = false;
	const struct cli_option options[] = {
		{"force", OPTION_FLAG, &force, NULL, "also when it runs", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host rm", "NAME",
			"Removes a VM that is not in a pool, with its disk. 'pool rm' removes one that is.", options,
			ARRAY_SIZE(options), 1, 1};

	return simple(argc, argv, &usage, KEEPER_REMOVE, &force);
}
