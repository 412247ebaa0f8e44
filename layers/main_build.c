/*
 * boxery-build: base images from layer files.
 *
 * Should: be root, start mmdebstrap and boxery-fetch, write below the image and cache folders.
 * Mustn't: hold a secret, talk to libvirt, to the keeper, or to the network itself.
 */
#include "boxery-config.h"
#include "base/str.h"
#include "layers/build.h"
#include "layers/check.h"
#include "linux/program.h"
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define FOLDERS_MAX 8u
#define DISK_GIB_MAX 4096u

struct options {
	struct build_request build;
	const char *layers, *folders[FOLDERS_MAX];
	size_t n_folders;
	bool check, help;
};

static void usage(FILE *f)
{
	(void)fprintf(f,
			"usage: boxery-build base NAME --image-dir DIR --cache-dir DIR [options]\n"
			"       boxery-build layers [--check] [--layer-dir DIR]... [NAME]...\n"
			"base builds DIR/base/NAME from layers, or says that nothing has changed since it was built:\n"
			"  --layers A,B           layers (default debian,github-runner)\n"
			"  --layer-dir DIR        where layer files are; may be repeated, the first that has a layer counts\n"
			"  --suite SUITE          Debian release (default bookworm)\n"
			"  --mirror URL           Debian mirror\n"
			"  --security-mirror URL  mirror of its security suite (default: the mirror's URL with -security)\n"
			"  --ca FILE              a certificate authority the guest shall trust; may be repeated\n"
			"  --proxy URL            http://HOST:PORT, for the runner and its jobs in the guest\n"
			"  --no-proxy LIST        what they reach without it (default localhost,127.0.0.1,::1)\n"
			"  --disk GIB             size of the disk the guest sees (default 20)\n"
			"  --force                build anew even when nothing has changed\n"
			"  --dry-run              say what would be done\n"
			"layers lists the layers, and with --check reads every file they name.\n");
}

static void on_signal(int number)
{
	(void)number;
	build_cancel();
}

static const char *default_folder(void)
{
	static char folder[512];

	return str_format(folder, "%s/layers", program_data_folder()) == 0 ? folder : "layers";
}

enum { LAYERS = 1, LAYER_FOLDER, IMAGES, CACHE, MIRROR, SECURITY, SUITE, CA, PROXY, NO_PROXY, DISK, FORCE, DRY_RUN, CHECK, HELP };

static int take_option(struct options *o, int c, struct error *e)
{
	struct plan_request *p = &o->build.plan;
	uint64_t n;

	switch (c) {
	case LAYERS:
		o->layers = optarg;
		return 0;
	case LAYER_FOLDER:
		if (o->n_folders == FOLDERS_MAX)
			return error_set(e, EINVAL, "--layer-dir more than %u times", FOLDERS_MAX);
		o->folders[o->n_folders++] = optarg;
		return 0;
	case IMAGES:
		o->build.image_dir = optarg;
		return 0;
	case CACHE:
		o->build.cache_dir = optarg;
		return 0;
	case MIRROR:
		p->mirror = optarg;
		return 0;
	case SECURITY:
		p->security_mirror = optarg;
		return 0;
	case SUITE:
		p->suite = optarg;
		return 0;
	case CA:
		if (p->n_ca_files == PLAN_CA_MAX)
			return error_set(e, EINVAL, "--ca more than %u times", PLAN_CA_MAX);
		p->ca_files[p->n_ca_files++] = optarg;
		return 0;
	case PROXY:
		p->proxy = optarg;
		return 0;
	case NO_PROXY:
		p->no_proxy = optarg;
		return 0;
	case DISK:
		if (parse_u64(optarg, "--disk", 2, DISK_GIB_MAX, &n, e) < 0)
			return -EINVAL;
		p->disk_gib = (uint32_t)n;
		return 0;
	case FORCE:
		o->build.force = true;
		return 0;
	case DRY_RUN:
		o->build.dry_run = true;
		return 0;
	case CHECK:
		o->check = true;
		return 0;
	case HELP:
		o->help = true;
		return 0;
	default:
		return error_set(e, EINVAL, "see boxery-build --help");
	}
}

static int parse_options(int argc, char **argv, struct options *o, struct error *e)
{
	static const struct option options[] = {
		{ "layers", required_argument, NULL, LAYERS }, { "layer-dir", required_argument, NULL, LAYER_FOLDER },
		{ "image-dir", required_argument, NULL, IMAGES }, { "cache-dir", required_argument, NULL, CACHE },
		{ "mirror", required_argument, NULL, MIRROR }, { "security-mirror", required_argument, NULL, SECURITY },
		{ "suite", required_argument, NULL, SUITE }, { "ca", required_argument, NULL, CA },
		{ "proxy", required_argument, NULL, PROXY }, { "no-proxy", required_argument, NULL, NO_PROXY },
		{ "disk", required_argument, NULL, DISK }, { "force", no_argument, NULL, FORCE },
		{ "dry-run", no_argument, NULL, DRY_RUN }, { "check", no_argument, NULL, CHECK },
		{ "help", no_argument, NULL, HELP }, { NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		int r = take_option(o, c, e);

		if (r < 0)
			return r;
	}
	if (o->n_folders == 0)
		o->folders[o->n_folders++] = default_folder();
	return 0;
}

/* Splits A,B in place. */
static int split(char *text, const char **names, size_t *ret_n, struct error *e)
{
	size_t n = 0;

	for (char *p = text; p; n++) {
		char *comma = strchr(p, ',');

		if (n == LAYERS_MAX)
			return error_set(e, E2BIG, "--layers: more than %u", LAYERS_MAX);
		names[n] = p;
		if (comma)
			*comma++ = '\0';
		p = comma;
	}
	*ret_n = n;
	return 0;
}

static int check_mirror(const char *url, const char *option, struct error *e)
{
	/* apt verifies what it gets by signatures, so plain http is as good as it is for Debian itself. */
	if (!url || ((str_starts(url, "http://") || str_starts(url, "https://") || str_starts(url, "file:/")) &&
				    !strpbrk(url, " \t\r\n[]")))
		return 0;
	return error_set(e, EINVAL, "%s: '%.100s' is not the URL of a mirror", option, url);
}

static int check_proxies(const struct plan_request *p, struct error *e)
{
	if (p->no_proxy && !p->proxy)
		return error_set(e, EINVAL, "--no-proxy is for --proxy");
	if (p->proxy && check_proxy(p->proxy, e) < 0)
		return error_wrap(e, "--proxy");
	return p->no_proxy && check_no_proxy(p->no_proxy, e) < 0 ? error_wrap(e, "--no-proxy") : 0;
}

static int run_base(struct options *o, const char *name, struct error *e)
{
	CLEANUP_LAYER_SET struct layer_set set = { .n = 0 };
	struct plan_request *p = &o->build.plan;
	const char *names[LAYERS_MAX];
	char list[512];
	size_t n;
	int r = name_check(name, "image name", e);

	if (r < 0)
		return r;
	if (!o->build.image_dir || !o->build.cache_dir)
		return error_set(e, EINVAL, "--image-dir and --cache-dir are needed; see boxery-build --help");
	if (name_check(p->suite, "--suite", e) < 0 || check_mirror(p->mirror, "--mirror", e) < 0 ||
			check_mirror(p->security_mirror, "--security-mirror", e) < 0 || check_proxies(p, e) < 0)
		return -e->code;
	if (str_copy(list, o->layers) < 0)
		return error_set(e, EINVAL, "--layers: too long");
	r = layer_arch_host(&p->arch, e);
	if (r == 0)
		r = split(list, names, &n, e);
	if (r == 0)
		r = layer_set_load(o->folders, o->n_folders, names, n, &set, e);
	if (r < 0)
		return r;
	o->build.name = name;
	o->build.layers = &set;
	p->layer_list = o->layers;
	return build_base(&o->build, e);
}

static int show_layer(const struct options *o, const char *name, struct error *e)
{
	CLEANUP_LAYER_SET struct layer_set set = { .n = 0 };
	char sum[LAYER_SHA256_MAX];
	int r = layer_set_load(o->folders, o->n_folders, &name, 1, &set, e);

	if (r == 0 && o->check)
		r = plan_inputs(&o->build.plan, &set, sum, e);
	if (r < 0)
		return r;
	(void)printf("%-18s %-12s %s\n", name, set.items[set.n - 1]->download.version ? set.items[set.n - 1]->download.version : "-",
			set.items[set.n - 1]->description ? set.items[set.n - 1]->description : "");
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int show_folder(const struct options *o, const char *folder, struct error *e)
{
	struct dirent **entries = NULL;
	int n = scandir(folder, &entries, NULL, by_name), r = 0;

	if (n < 0)
		return error_errno(e, errno, "cannot read %s", folder);
	for (int i = 0; i < n; i++) {
		char *dot = strrchr(entries[i]->d_name, '.');

		if (r == 0 && dot && str_equal(dot, ".yaml")) {
			*dot = '\0';
			r = show_layer(o, entries[i]->d_name, e);
		}
		free(entries[i]);
	}
	free(entries);
	return r;
}

static int run_layers(struct options *o, char *const *names, size_t n, struct error *e)
{
	int r = layer_arch_host(&o->build.plan.arch, e);

	for (size_t i = 0; r == 0 && i < n; i++)
		r = show_layer(o, names[i], e);
	for (size_t i = 0; r == 0 && n == 0 && i < o->n_folders; i++)
		r = show_folder(o, o->folders[i], e);
	return r;
}

int main(int argc, char **argv)
{
	struct options o = { .layers = "debian,github-runner" };
	struct sigaction sa = { .sa_handler = on_signal };
	struct error e = ERROR_INIT;
	int r, rest;

	o.build.plan.suite = "bookworm";
	o.build.plan.disk_gib = BUILD_DISK_GIB_DEFAULT;
	r = parse_options(argc, argv, &o, &e);
	rest = argc - optind;
	(void)sigaction(SIGINT, &sa, NULL);
	(void)sigaction(SIGTERM, &sa, NULL);
	if (r == 0 && o.help) {
		usage(stdout);
		return EXIT_STATUS_OK;
	}
	if (r < 0)
		;
	else if (rest == 2 && str_equal(argv[optind], "base"))
		r = run_base(&o, argv[optind + 1], &e);
	else if (rest >= 1 && str_equal(argv[optind], "layers"))
		r = run_layers(&o, argv + optind + 1, (size_t)rest - 1, &e);
	else
		r = error_set(&e, EINVAL, "what is asked for is 'base NAME' or 'layers'; see boxery-build --help");
	if (r < 0) {
		(void)fflush(stdout);
		(void)fprintf(stderr, "boxery-build: %s\n", e.text);
		return error_exit_status(&e);
	}
	return EXIT_STATUS_OK;
}
