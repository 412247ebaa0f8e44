/* pool patch: the clean state of pool VMs on another base image. The keeper does it; here images are chosen and waited for. */
#include "base/str.h"
#include "cli/host.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS 2000 /* when no event has come */
#define NAMES_MAX 240

struct patch {
	char *const *names;
	int n_names;
	bool all, wait, cancel;
	const char *pool, *base;
	char image[VM_NAME_MAX];
	struct hostconf conf;
	json_t *wanted; /* names of those that are waited for */
};

static const char *text_of(const json_t *vm, const char *key)
{
	const char *text = json_string_value(json_object_get(vm, key));

	return text ? text : "";
}

static json_t *ask_vms(struct error *e)
{
	json_t *document = NULL, *vms;
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_LIST);
	if (cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, &document, e) < 0)
		return NULL;
	vms = json_incref(json_object_get(document, "vms"));
	json_decref(document);
	if (!json_is_array(vms))
		(void)error_set(e, EPROTO, "the keeper's list cannot be read");
	return vms;
}

static json_t *find_vm(const json_t *vms, const char *name)
{
	json_t *vm;
	size_t i;

	json_array_foreach(vms, i, vm)
	{
		if (str_equal(text_of(vm, "name"), name))
			return vm;
	}
	return NULL;
}

/* One of those that were named, or starts from the clean state of one. */
static bool is_meant(const struct patch *p, const json_t *vm)
{
	if (!text_of(vm, "pool")[0])
		return false;
	if (p->all)
		return !p->pool || str_equal(text_of(vm, "pool"), p->pool);
	for (int i = 0; i < p->n_names; i++)
		if (str_equal(text_of(vm, "name"), p->names[i]) || str_equal(text_of(vm, "clean_of"), p->names[i]))
			return true;
	return false;
}

struct choice {
	const char *like; /* name of an image */
	struct cli_image found, newest;
};

static bool find_like(void *userdata, const struct cli_image *image)
{
	struct choice *c = userdata;

	if (str_equal(image->name, c->like))
		c->found = *image;
	return !c->found.name[0];
}

static bool find_newest(void *userdata, const struct cli_image *image)
{
	struct choice *c = userdata;

	if (str_equal(image->layers, c->found.layers) && strcmp(image->built_at, c->newest.built_at) > 0)
		c->newest = *image;
	return true;
}

/* The newest image of the layers that the VMs are on now. */
static int choose_newest(struct patch *p, struct error *e)
{
	json_t *vms = ask_vms(e), *vm;
	struct choice c = {0};
	char layers[sizeof(c.found.layers)] = "";
	size_t i;

	json_array_foreach(vms, i, vm)
	{
		if (!is_meant(p, vm) || e->code)
			continue;
		c = (struct choice){.like = text_of(vm, "image")};
		cli_images_each(&p->conf, find_like, &c);
		if (!c.found.name[0])
			(void)error_set(e, ENOENT, "the base image of %s, %s, has no manifest any more; say which one is wanted with --base",
					text_of(vm, "name"), c.like);
		else if (layers[0] && !str_equal(layers, c.found.layers))
			(void)error_set(e, EINVAL, "these VMs are on images of different layers; say which one is wanted with --base");
		(void)str_copy(layers, c.found.layers);
	}
	json_decref(vms);
	if (e->code)
		return -e->code;
	if (!c.like)
		return error_set(e, ENOENT, "no such VM is in a pool; 'boxery-host pool ls' lists them");
	cli_images_each(&p->conf, find_newest, &c);
	if (!c.newest.name[0])
		return error_set(e, ENOENT, "no manifest of an image says when it was built; say which one is wanted with --base");
	return str_copy(p->image, c.newest.name);
}

/* Before anything is asked of a VM: a name that is mistyped costs no life. */
static int choose_image(struct patch *p, struct error *e)
{
	struct choice c = {.like = p->base};
	int r;

	if (p->cancel)
		return 0;
	if (!p->base)
		return choose_newest(p, e);
	r = name_check(p->base, "image name", e);
	if (r < 0)
		return r;
	cli_images_each(&p->conf, find_like, &c);
	if (!c.found.name[0])
		return error_set(e, ENOENT, "there is no base image named %s in %s/base; 'boxery-host build-base --name %s' makes it", p->base,
				p->conf.image_dir, p->base);
	return str_copy(p->image, p->base);
}

static int ask_one(const struct patch *p, const char *name, struct error *e)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_POOL_PATCH);
	(void)str_copy(r.image, p->image);
	if (name && cli_set_name(&r, name, e) < 0)
		return -e->code;
	if (!name)
		r.flags |= KEEPER_FLAG_ALL;
	if (!name && p->pool)
		(void)str_copy(r.pool, p->pool);
	return cli_call(&r, CLI_CALL_TIMEOUT_MS, NULL, NULL, e);
}

static int ask_all(const struct patch *p, struct error *e)
{
	int r = p->all ? ask_one(p, NULL, e) : -EALREADY, done = 0;

	for (int i = 0; i < p->n_names && (i == 0 || r >= 0 || r == -EALREADY); i++) {
		r = ask_one(p, p->names[i], e);
		done += r >= 0;
	}
	if (r != -EALREADY || !done)
		return r;
	/* Of several some were on it already. */
	error_clear(e);
	return 0;
}

/* Those whose patch is asked for now; of each a line when it changes. */
static void tell(struct cli_progress *progress, json_t *told, const json_t *vm, const char *name)
{
	char text[ERROR_TEXT_MAX + 128];
	const char *waits = text_of(vm, "patch_waits"), *before = json_string_value(json_object_get(told, name));

	if (waits[0])
		(void)str_format(text, "%s waits: %s", name, waits);
	else
		(void)str_format(text, "%s is %s%s", name, text_of(vm, "state"),
				json_is_true(json_object_get(vm, "patching")) ? ", being patched" : "");
	if (before && str_equal(before, text))
		return;
	cli_progress_show(progress, text);
	(void)json_object_set_new(told, name, json_string(text));
}

/* How many are not over yet; those that are leave p->wanted, and one that has come to nothing leaves its sentence in *fault. */
static size_t look(struct patch *p, const json_t *vms, struct cli_progress *progress, json_t *told, struct error *fault)
{
	for (size_t i = json_array_size(p->wanted); i-- > 0;) {
		const char *name = json_string_value(json_array_get(p->wanted, i));
		const json_t *vm = find_vm(vms, name);

		if (vm && text_of(vm, "patch")[0] && !str_equal(text_of(vm, "state"), "BROKEN")) {
			tell(progress, told, vm, name);
			continue;
		}
		if (!vm)
			(void)error_set(fault, ENOENT, "%s was removed while it was waited for", name);
		else if (text_of(vm, "patch")[0])
			(void)error_set(fault, EIO, "%s is BROKEN and not patched: %s: %s", name, text_of(vm, "step"), text_of(vm, "reason"));
		else if (!str_equal(text_of(vm, "image"), p->image))
			/* Of several the one that was tried says more than those that were not. */
			(void)(fault->code && str_starts(text_of(vm, "patch_failed"), "not tried")
							? 0
							: error_set(fault, EIO, "%s was not patched and stays on %s: %s", name,
									  text_of(vm, "image"),
									  text_of(vm, "patch_failed")[0] ? text_of(vm, "patch_failed")
													 : "it was taken back"));
		(void)json_array_remove(p->wanted, i);
	}
	return json_array_size(p->wanted);
}

/* Until something has happened, or a while is over. */
static void wait_for_news(const struct hostconf *conf, struct keeper_client **events)
{
	struct keeper_answer a;
	struct error e = ERROR_INIT;
	struct pollfd fd = {.fd = -1, .events = POLLIN};

	if (!*events && cli_subscribe(conf, true, events, &e) < 0)
		*events = NULL; /* the keeper has just gone: the next list starts another */
	if (*events)
		fd.fd = keeper_client_fd(*events);
	(void)poll(&fd, 1, LOOK_MS);
	while (*events) {
		int r = keeper_receive(*events, &a, &e);

		if (r == -EAGAIN)
			break;
		if (r == 1)
			free(a.document);
		else
			*events = keeper_client_free(*events);
	}
}

static int wait_for_all(struct patch *p, struct error *e)
{
	CLEANUP(keeper_client_freep) struct keeper_client *events = NULL;
	struct error fault = ERROR_INIT;
	struct cli_progress progress;
	json_t *told = json_object();
	size_t left;

	cli_progress_begin(&progress);
	do {
		json_t *vms = ask_vms(e);

		left = vms && !e->code ? look(p, vms, &progress, told, &fault) : 0;
		json_decref(vms);
		if (e->code == ENOTCONN) { /* one that is killed meanwhile: the next goes on with the patch, and so do we */
			error_clear(e);
			left = 1;
		}
		if (left)
			wait_for_news(&p->conf, &events);
	} while (left);
	json_decref(told);
	if (e->code == 0 && fault.code)
		*e = fault;
	return e->code ? -e->code : 0;
}

static int note_wanted(struct patch *p, struct error *e)
{
	json_t *vms = ask_vms(e), *vm;
	size_t i;

	p->wanted = json_array();
	json_array_foreach(vms, i, vm)
	{
		if (is_meant(p, vm) && (str_equal(text_of(vm, "patch"), p->image) || !str_equal(text_of(vm, "image"), p->image)))
			(void)json_array_append_new(p->wanted, json_string(text_of(vm, "name")));
	}
	json_decref(vms);
	return e->code ? -e->code : 0;
}

static int check_words(const struct patch *p, struct error *e)
{
	if (p->all && p->n_names > 0)
		return error_set(e, EINVAL, "pool patch: --all goes with no names");
	if (!p->all && p->n_names == 0)
		return error_set(e, EINVAL, "pool patch: name the VMs, or say --all; see --help");
	if (p->pool && !p->all)
		return error_set(e, EINVAL, "--pool goes with --all");
	if (p->cancel && (p->base || p->wait))
		return error_set(e, EINVAL, "--cancel goes with neither --base nor --wait");
	return p->pool ? name_check(p->pool, "pool name", e) : 0;
}

static int patch(struct patch *p, struct error *e)
{
	int r = check_words(p, e);

	if (r == 0)
		r = hostconf_load(&p->conf, e);
	if (r == 0)
		r = choose_image(p, e);
	/* Which ones these are is known before, since a fast one may be over when the request is answered. */
	if (r == 0 && p->wait)
		r = note_wanted(p, e);
	if (r == 0)
		r = ask_all(p, e);
	return r == 0 && p->wait ? wait_for_all(p, e) : r;
}

int cmd_pool_patch(int argc, char **argv)
{
	struct patch p = {0};
	const struct cli_option options[] = {
		{"all", OPTION_FLAG, &p.all, NULL, "every VM of the pools, one after the other", 0, 0},
		{"pool", OPTION_TEXT, &p.pool, "POOL", "with --all: only this pool", 0, 0},
		{"base", OPTION_TEXT, &p.base, "IMAGE", "base image (default: the newest of the same layers)", 0, 0},
		{"wait", OPTION_FLAG, &p.wait, NULL, "return when all are READY on it, or one has failed", 0, 0},
		{"cancel", OPTION_FLAG, &p.cancel, NULL, "take back what has not begun", 0, 0},
	};
	const struct cli_usage usage = {"boxery-host pool patch", "NAME... | --all",
			"Makes the clean state of pool VMs anew on another base image. A lease is never interrupted: its VM is patched when it\n"
			"has ended. Of each pool one VM at a time, and not its last READY one. The first start decides: when it fails, the VM\n"
			"goes back to the clean state before. 'pool show NAME' says what it waits for, and why a patch came to nothing.",
			options, ARRAY_SIZE(options), 0, NAMES_MAX};
	struct error e = ERROR_INIT;
	int first, code;

	code = cli_parse(&usage, argc, argv, false, &first, &e);
	if (code != 0)
		return code > 0 ? EXIT_STATUS_OK : cli_fail(&e);
	p.names = argv + first;
	p.n_names = argc - first;
	code = patch(&p, &e);
	json_decref(p.wanted);
	return code < 0 ? cli_fail(&e) : EXIT_STATUS_OK;
}
