/* Which base image was built from these layers? Answered from the images' manifests; nothing is asked of the keeper. */
#include "base/str.h"
#include "cli/host.h"
#include "linux/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct manifest {
	char layers[1024];
};

static int take_line(void *userdata, const char *key, const char *value, struct error *e)
{
	struct manifest *m = userdata;

	if (str_equal(key, "LAYERS") && str_copy(m->layers, value) < 0)
		return error_set(e, EBADMSG, "LAYERS is too long");
	return 0;
}

int cli_image_of_layers(const struct hostconf *conf, const char *layers, char *dst, size_t size, struct error *e)
{
	CLEANUP_DIR DIR *folder = NULL;
	char path[300];

	if (str_format(path, "%s/base", conf->image_dir) < 0)
		return error_set(e, ENAMETOOLONG, "the image folder's path is too long");
	folder = opendir(path);
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		CLEANUP_FREE char *data = NULL;
		struct manifest m = {""};
		char file[600];
		size_t len;

		if (!name_valid(entry->d_name) || str_format(file, "%s/%s/manifest.env", path, entry->d_name) < 0)
			continue;
		if (file_read(AT_FDCWD, file, ENVFILE_MAX, &data, &len, NULL) < 0 ||
				envfile_parse(file, data, len, take_line, &m, NULL) < 0)
			continue;
		if (str_equal(m.layers, layers))
			return str_copy_n(dst, size, entry->d_name);
	}
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
