/* Base images as their manifests tell; nothing is asked of the keeper. */
#include "base/str.h"
#include "cli/host.h"
#include "linux/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int take_line(void *userdata, const char *key, const char *value, struct error *e)
{
	struct cli_image *m = userdata;

	if (str_equal(key, "LAYERS") && str_copy(m->layers, value) < 0)
		return error_set(e, EBADMSG, "LAYERS is too long");
	if (str_equal(key, "RUNNER_VERSION") && str_copy(m->runner_version, value) < 0)
		return error_set(e, EBADMSG, "RUNNER_VERSION is too long");
	if (str_equal(key, "BUILT_AT") && str_copy(m->built_at, value) < 0)
		return error_set(e, EBADMSG, "BUILT_AT is too long");
	return 0;
}

void cli_images_each(const struct hostconf *conf, bool (*cb)(void *userdata, const struct cli_image *image), void *userdata)
{
	CLEANUP_DIR DIR *folder = NULL;
	char path[300];
	bool more = true;

	(void)str_format(path, "%s/base", conf->image_dir);
	folder = opendir(path);
	for (struct dirent *entry; folder && more && (entry = readdir(folder));) {
		CLEANUP_FREE char *data = NULL;
		struct cli_image m = {""};
		char file[600];
		size_t len;

		if (!name_valid(entry->d_name) || str_format(file, "%s/%s/manifest.env", path, entry->d_name) < 0)
			continue;
		if (file_read(AT_FDCWD, file, ENVFILE_MAX, &data, &len, NULL) < 0 ||
				envfile_parse(file, data, len, take_line, &m, NULL) < 0)
			continue;
		(void)str_copy(m.name, entry->d_name);
		more = cb(userdata, &m);
	}
}

struct wanted {
	const char *layers;
	char name[VM_NAME_MAX];
};

static bool has_layers(void *userdata, const struct cli_image *image)
{
	struct wanted *w = userdata;

	if (str_equal(image->layers, w->layers))
		(void)str_copy(w->name, image->name);
	return !w->name[0];
}

int cli_image_of_layers(const struct hostconf *conf, const char *layers, char *dst, size_t size, struct error *e)
{
	struct wanted w = {.layers = layers};

	cli_images_each(conf, has_layers, &w);
	if (w.name[0])
		return str_copy_n(dst, size, w.name);
	return error_set(e, ENOENT, "no base image was built from the layers %s; 'boxery-host build-base --layers %s --name NAME' does it",
			layers, layers);
}

int cli_join(const struct option_list *list, char *dst, size_t size, struct error *e)
{
	dst[0] = '\0';
	for (size_t i = 0; i < list->n; i++) {
		size_t used = strlen(dst);

		if (str_format_n(dst + used, size - used, "%s%s", i ? "," : "", list->items[i]) < 0)
			return error_set(e, EINVAL, "--layers: longer than %zu bytes", size - 1);
	}
	return 0;
}
