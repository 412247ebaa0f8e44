#include "layers/manifest.h"
#include "base/str.h"
#include "linux/file.h"
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

/* Text fields by key; the two numbers are written and read beside them. */
#define FIELD(key, member)                                                                                            \
	{                                                                                                             \
		key, offsetof(struct manifest, member), sizeof(((struct manifest *)0)->member)                        \
	}
static const struct field {
	const char *key;
	size_t offset, size;
} fields[] = {
	FIELD("ARCH", arch), FIELD("SUITE", suite), FIELD("KERNEL", kernel), FIELD("INITRD", initrd),
	FIELD("CMDLINE", cmdline), FIELD("DISK_SHA256", disk_sha256), FIELD("LAYERS", layers),
	FIELD("ALL_LAYERS", all_layers), FIELD("RUNNER_VERSION", runner_version), FIELD("INPUTS", inputs),
	FIELD("BUILT_AT", built_at),
};

int manifest_write(int dirfd, const struct manifest *m, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(ENVFILE_MAX);
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(fields); i++)
		r = buf_addf(&b, "%s=%s\n", fields[i].key, (const char *)m + fields[i].offset);
	if (r == 0)
		r = buf_addf(&b, "DISK_SIZE=%" PRIu64 "\nDISK_FILE_SIZE=%" PRIu64 "\n", m->disk_size, m->disk_file_size);
	if (r < 0)
		return error_errno(e, -r, MANIFEST_FILE);
	return file_write_atomic(dirfd, MANIFEST_FILE, b.data, b.len, 0644, e);
}

static int on_line(void *userdata, const char *key, const char *value, struct error *e)
{
	struct manifest *m = userdata;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (str_equal(key, fields[i].key))
			return str_copy_n((char *)m + fields[i].offset, fields[i].size, value) < 0 ?
					error_set(e, EBADMSG, "%s is too long", key) :
					0;
	if (str_equal(key, "DISK_SIZE"))
		return parse_u64(value, key, 1, UINT64_MAX, &m->disk_size, e);
	if (str_equal(key, "DISK_FILE_SIZE"))
		return parse_u64(value, key, 1, UINT64_MAX, &m->disk_file_size, e);
	return 0;
}

int manifest_read(int dirfd, const char *shown, struct manifest *ret, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	struct manifest m = { .disk_size = 0 };
	size_t len;
	int r = file_read(dirfd, MANIFEST_FILE, ENVFILE_MAX, &data, &len, e);

	if (r == 0)
		r = envfile_parse(shown, data, len, on_line, &m, e);
	if (r == 0)
		*ret = m;
	return r;
}
