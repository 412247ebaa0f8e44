#include "vm/settings.h"
#include "base/str.h"
#include "linux/file.h"
#include "vm/slot.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define CPUS_MAX 256
#define MEMORY_MAX_MIB (4u * 1024 * 1024)
#define DISK_MAX_GIB (64u * 1024)

static int put_u32(
	uint32_t *ret, const char *key, const char *value, uint64_t min, uint64_t max, struct error *e)
{
	uint64_t v;
	int r = parse_u64(value, key, min, max, &v, e);

	if (r == 0)
		*ret = (uint32_t)v;
	return r;
}

static int on_setting(void *userdata, const char *key, const char *value, struct error *e)
{
	struct settings *s = userdata;

	if (str_equal(key, "SLOT"))
		return put_u32(&s->slot, key, value, 0, SLOT_COUNT - 1, e);
	if (str_equal(key, "CPUS"))
		return put_u32(&s->cpus, key, value, 1, CPUS_MAX, e);
	if (str_equal(key, "MEMORY_MIB"))
		return put_u32(&s->memory_mib, key, value, 1, MEMORY_MAX_MIB, e);
	if (str_equal(key, "DISK_GIB"))
		return put_u32(&s->disk_gib, key, value, 1, DISK_MAX_GIB, e);
	if (str_equal(key, "IMAGE")) {
		int r = name_check(value, "IMAGE", e);

		return r < 0 ? r : str_copy(s->image, value);
	}
	if (str_equal(key, "CLEAN_OF")) {
		int r = name_check(value, "CLEAN_OF", e);

		return r < 0 ? r : str_copy(s->clean_of, value);
	}
	if (str_equal(key, "BASE_IDENTITY"))
		return str_copy(s->base_identity, value) < 0 ? error_set(e, EINVAL, "%s is too long", key)
							     : 0;
	return error_set(e, EINVAL, "%.100s is not a setting of this file", key);
}

int settings_parse(const char *name, const char *shown, const char *data, size_t len, struct settings *ret,
	struct error *e)
{
	struct settings s = {.slot = UINT32_MAX};
	int r;

	r = str_copy(s.name, name);
	if (r < 0)
		return error_errno(e, -r, "%s", shown);
	r = envfile_parse(shown, data, len, on_setting, &s, e);
	if (r < 0)
		return r;
	if (s.slot == UINT32_MAX || !s.cpus || !s.memory_mib || !s.disk_gib || !s.image[0] ||
		!s.base_identity[0])
		return error_set(e, EBADMSG,
			"%s: one of SLOT, CPUS, MEMORY_MIB, DISK_GIB, IMAGE and BASE_IDENTITY is "
			"missing",
			shown);
	*ret = s;
	return 0;
}

int settings_load(const struct host *h, const char *name, struct settings *ret, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	struct error local = ERROR_INIT;
	char file[64], shown[VM_PATH_MAX];
	size_t len;
	int r;

	r = name_check(name, "VM name", e);
	if (r == 0)
		r = HOST_PATH(h, shown, e, "vms/%s.env", name);
	if (r < 0)
		return r;
	(void)str_format(file, "vms/%s.env", name);
	r = file_read(h->image_fd, file, ENVFILE_MAX, &data, &len, &local);
	if (r == -ENOENT)
		return error_set(e, ENOENT, "there is no VM named %s", name);
	if (r < 0)
		return error_set(e, local.code, "%s", local.text);
	return settings_parse(name, shown, data, len, ret, e);
}

int settings_save(const struct host *h, const struct settings *s, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(4096);
	char file[64];
	int r;

	r = buf_addf(&b, "SLOT=%u\nCPUS=%u\nMEMORY_MIB=%u\nDISK_GIB=%u\nIMAGE=%s\nBASE_IDENTITY=%s\n",
		s->slot, s->cpus, s->memory_mib, s->disk_gib, s->image, s->base_identity);
	if (r == 0 && s->clean_of[0])
		r = buf_addf(&b, "CLEAN_OF=%s\n", s->clean_of);
	if (r == 0)
		r = str_format(file, "vms/%s.env", s->name);
	if (r < 0)
		return error_errno(e, -r, "settings of %s", s->name);
	return file_write_atomic(h->image_fd, file, b.data, b.len, 0644, e);
}

static int only_env(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 4 && str_equal(d->d_name + n - 4, ".env");
}

int settings_each(const struct host *h, int (*cb)(void *userdata, const struct settings *s, struct error *e),
	void *userdata, struct error *e)
{
	struct dirent **list = NULL;
	int n, r = 0;

	n = scandirat(h->image_fd, "vms", &list, only_env, alphasort);
	if (n < 0)
		return error_errno(e, errno, "cannot list %s/vms", h->conf.image_dir);
	for (int i = 0; i < n; i++) {
		struct settings s;

		list[i]->d_name[strlen(list[i]->d_name) - 4] = '\0';
		if (r == 0 && name_valid(list[i]->d_name) && settings_load(h, list[i]->d_name, &s, NULL) == 0)
			r = cb(userdata, &s, e);
		free(list[i]);
	}
	free(list);
	return r;
}

static int on_generation(void *userdata, const char *key, const char *value, struct error *e)
{
	struct generation *g = userdata;

	if (str_equal(key, "GENERATION"))
		return parse_u64(value, key, 0, UINT64_MAX, &g->generation, e);
	if (str_equal(key, "HOST_KEY")) {
		g->begun = true;
		return str_copy(g->host_key, value) < 0 ? error_set(e, EINVAL, "%s is too long", key) : 0;
	}
	if (str_equal(key, "KVM"))
		return parse_bool(value, key, &g->kvm, e);
	if (str_equal(key, "DOMAIN_ID"))
		return parse_u64(value, key, 0, UINT32_MAX, &g->domain_id, e);
	if (str_equal(key, "RATED"))
		return parse_bool(value, key, &g->rated, e);
	if (str_equal(key, "PLAIN"))
		return parse_bool(value, key, &g->plain, e);
	if (str_equal(key, "OVERLAY_INODE"))
		return parse_u64(value, key, 0, UINT64_MAX, &g->overlay_inode, e);
	if (str_equal(key, "CLEAN_IDENTITY"))
		return str_copy(g->clean_identity, value) < 0 ? error_set(e, EINVAL, "%s is too long", key) : 0;
	if (str_equal(key, "WARM_IDENTITY"))
		return str_copy(g->warm_identity, value) < 0 ? error_set(e, EINVAL, "%s is too long", key) : 0;
	if (str_equal(key, "STANDBY"))
		return parse_bool(value, key, &g->standby, e);
	if (str_equal(key, "BASE_IDENTITY"))
		return str_copy(g->base_identity, value) < 0 ? error_set(e, EINVAL, "%s is too long", key) : 0;
	return error_set(e, EINVAL, "%.100s is not a setting of this file", key);
}

int generation_load(const struct host *h, const char *name, struct generation *ret, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	struct error local = ERROR_INIT;
	struct generation g = {0};
	char file[64];
	size_t len;
	int r;

	(void)str_format(file, "run/%s.gen", name);
	r = file_read(h->image_fd, file, ENVFILE_MAX, &data, &len, &local);
	if (r < 0 && r != -ENOENT)
		return error_set(e, local.code, "%s", local.text);
	if (r == 0)
		r = envfile_parse(file, data, len, on_generation, &g, e);
	else
		r = 0;
	if (r == 0)
		*ret = g;
	return r;
}

int generation_save(const struct host *h, const char *name, const struct generation *g, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(4096);
	char file[64];
	int r;

	r = buf_addf(&b, "GENERATION=%llu\n", (unsigned long long)g->generation);
	if (r == 0 && g->begun)
		r = buf_addf(&b, "HOST_KEY=%s\nKVM=%s\nDOMAIN_ID=%llu\n", g->host_key, g->kvm ? "yes" : "no",
			(unsigned long long)g->domain_id);
	if (r == 0 && g->rated)
		r = buf_addf(&b, "RATED=yes\n");
	if (r == 0 && g->overlay_inode)
		r = buf_addf(&b, "PLAIN=%s\nOVERLAY_INODE=%llu\nBASE_IDENTITY=%s\n", g->plain ? "yes" : "no",
			(unsigned long long)g->overlay_inode, g->base_identity);
	if (r == 0 && g->overlay_inode && g->clean_identity[0])
		r = buf_addf(&b, "CLEAN_IDENTITY=%s\n", g->clean_identity);
	if (r == 0 && g->overlay_inode && g->warm_identity[0])
		r = buf_addf(&b, "WARM_IDENTITY=%s\n", g->warm_identity);
	if (r == 0 && g->standby)
		r = buf_addf(&b, "STANDBY=yes\nKVM=%s\nDOMAIN_ID=%llu\n", g->kvm ? "yes" : "no",
			(unsigned long long)g->domain_id);
	if (r == 0)
		r = str_format(file, "run/%s.gen", name);
	if (r < 0)
		return error_errno(e, -r, "generation of %s", name);
	return file_write_atomic(h->image_fd, file, b.data, b.len, 0644, e);
}
