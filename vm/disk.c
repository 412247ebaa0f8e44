#include "vm/disk.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/spawn.h"
#include <errno.h>
#include <jansson.h>

#define OUTPUT_MAX (64 * 1024)
#define QEMU_IMG_TIMEOUT_MS 30000
#define CONVERT_TIMEOUT_MS (30 * 60 * 1000)

static int qemu_img(const char *const *argv, uint64_t timeout_ms, char **ret_stdout, struct error *e)
{
	struct spawn_options o = SPAWN_OPTIONS_INIT;

	o.program = argv[0];
	o.argv = argv;
	o.search_path = true;
	return spawn_capture(&o, timeout_ms, OUTPUT_MAX, ret_stdout, e);
}

int disk_virtual_size(const char *path, uint64_t *ret, struct error *e)
{
	const char *argv[] = {"qemu-img", "info", "-U", "--output=json", path, NULL};
	CLEANUP_FREE char *out = NULL;
	json_t *root;
	json_int_t size;
	int r;

	r = qemu_img(argv, QEMU_IMG_TIMEOUT_MS, &out, e);
	if (r < 0)
		return error_wrap(e, "%s", path);
	root = json_loads(out, 0, NULL);
	size = json_integer_value(json_object_get(root, "virtual-size"));
	json_decref(root);
	if (size <= 0)
		return error_set(e, EIO, "qemu-img does not say how large %s is", path);
	*ret = (uint64_t)size;
	return 0;
}

int disk_create(const char *path, const char *backing, uint32_t size_gib, struct error *e)
{
	char size[32];
	const char *argv[] = {"qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", backing, path,
		size_gib ? size : NULL, NULL};

	(void)str_format(size, "%uG", size_gib);
	return qemu_img(argv, QEMU_IMG_TIMEOUT_MS, NULL, e);
}

int disk_create_ahead(const char *path, const char *backing, const char *like, struct error *e)
{
	char size[32];
	const char *argv[] = {"qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "qcow2", "-b", backing, path, size, NULL};
	uint64_t bytes;
	int r = disk_virtual_size(like, &bytes, e);

	if (r < 0)
		return r;
	(void)str_format(size, "%llu", (unsigned long long)bytes);
	return qemu_img(argv, QEMU_IMG_TIMEOUT_MS, NULL, e);
}

int disk_layer(const char *from, const char *backing, const char *path, struct error *e)
{
	const char *argv[] = {
		"qemu-img", "convert", "-q", "-O", "qcow2", "-B", backing, "-F", "qcow2", from, path, NULL};

	return qemu_img(argv, CONVERT_TIMEOUT_MS, NULL, e);
}
