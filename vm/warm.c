#include "vm/warm.h"
#include "base/str.h"
#include "linux/file.h"
#include "vm/begin.h"
#include "vm/domain.h"
#include "vm/folder.h"
#include "vm/virt.h"
#include "vm/warm_file.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>

#define CPUINFO_MAX (4 * 1024 * 1024)
#define CPU_HASH_SIZE 8

static const struct {
	const char *key, *words;
} facts[WARM_FACT_COUNT] = {
	[WARM_FORMAT] = {"FORMAT", "its format"},
	[WARM_BASE] = {"BASE_IDENTITY", "the base image"},
	[WARM_CLEAN] = {"CLEAN_IDENTITY", "the clean image"},
	[WARM_VIRT] = {"VIRT", "the kind of virtualisation"},
	[WARM_CPU] = {"CPU", "the CPU"},
	[WARM_CPUS] = {"CPUS", "the number of CPUs"},
	[WARM_MEMORY_MIB] = {"MEMORY_MIB", "the size of the memory"},
	[WARM_QEMU] = {"QEMU", "the version of QEMU"},
	[WARM_EMULATOR] = {"EMULATOR", "the QEMU program"},
	[WARM_EMULATOR_IDENTITY] = {"EMULATOR_IDENTITY", "the file of the QEMU program"},
	[WARM_MACHINE] = {"MACHINE", "the machine type"},
	[WARM_UUID] = {"UUID", "the uuid of the domain"},
	[WARM_MAC] = {"MAC", "the MAC"},
	[WARM_TAP] = {"TAP", "the tap"},
	[WARM_DISK_IDENTITY] = {"DISK_IDENTITY", "the file of its disk"},
	[WARM_OVERLAY_IDENTITY] = {"OVERLAY_IDENTITY", "the file of its empty overlay"},
	[WARM_MEMORY_IDENTITY] = {"MEMORY_IDENTITY", "the file of its memory"},
	[WARM_GUEST_IDENTITY] = {"GUEST_IDENTITY", "the file of its listing"},
	[WARM_DISK_SHA256] = {"DISK_SHA256", "the checksum of its disk"},
	[WARM_MEMORY_SHA256] = {"MEMORY_SHA256", "the checksum of its memory"},
	[WARM_CAPTURED] = {"CAPTURED", "the time of the capture"},
};

static int on_manifest(void *userdata, const char *key, const char *value, struct error *e)
{
	struct warm_image *w = userdata;

	for (size_t i = 0; i < WARM_FACT_COUNT; i++)
		if (str_equal(key, facts[i].key))
			return str_copy(w->fact[i], value) < 0 ? error_set(e, EINVAL, "%s is too long", key) : 0;
	return error_set(e, EINVAL, "%.100s is not a setting of this file", key);
}

int warm_paths(const struct host *h, const char *folder, struct warm_image *w, struct error *e)
{
	int r = HOST_PATH(h, w->disk, e, "%s/disk.qcow2", folder);

	if (r == 0)
		r = HOST_PATH(h, w->overlay, e, "%s/overlay.qcow2", folder);
	if (r == 0)
		r = HOST_PATH(h, w->memory, e, "%s/memory", folder);
	return r < 0 ? r : HOST_PATH(h, w->guest, e, "%s/guest.txt", folder);
}

int warm_load(const struct host *h, const char *vm, struct warm_image *ret, struct error *e)
{
	CLEANUP_FREE struct warm_image *w = calloc(1, sizeof(*w));
	CLEANUP_FREE char *data = NULL;
	struct error local = ERROR_INIT;
	char folder[WARM_FOLDER_MAX], file[WARM_FOLDER_MAX + 16];
	size_t len;
	int r;

	if (!w)
		return error_errno(e, ENOMEM, "memory image of %s", vm);
	warm_folder(vm, folder);
	(void)str_format(file, "%s/manifest.env", folder);
	r = file_read(h->image_fd, file, WARM_MANIFEST_MAX, &data, &len, &local);
	if (r == -ENOENT)
		return error_set(e, ENOENT, "there is no memory image of %s yet", vm);
	if (r < 0)
		return error_set(e, local.code, "%s", local.text);
	r = envfile_parse(file, data, len, on_manifest, w, e);
	for (size_t i = 0; r == 0 && i < WARM_FACT_COUNT; i++)
		if (!w->fact[i][0])
			r = error_set(e, EBADMSG, "%s: %s is missing", file, facts[i].key);
	if (r == 0)
		r = warm_paths(h, folder, w, e);
	if (r == 0)
		*ret = *w;
	return r;
}

int warm_manifest_save(const struct host *h, const char *folder, const struct warm_image *w, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(WARM_MANIFEST_MAX);
	char file[WARM_FOLDER_MAX + 16];
	int r = str_format(file, "%s/manifest.env", folder);

	for (size_t i = 0; r == 0 && i < WARM_FACT_COUNT; i++)
		r = buf_addf(&b, "%s=%s\n", facts[i].key, w->fact[i]);
	if (r < 0)
		return error_errno(e, -r, "manifest of a memory image");
	return file_write_atomic(h->image_fd, file, b.data, b.len, 0644, e);
}

/* Under KVM a guest has seen the host's CPU: its name and flags, of the first one. */
static int host_cpu(char ret[static WARM_FACT_MAX], struct error *e)
{
	static const char *const lines[] = {"\nmodel name", "\nmicrocode", "\nflags", "\nFeatures", "\nCPU part"};
	unsigned char hash[crypto_generichash_BYTES];
	CLEANUP_FREE char *text = NULL;
	crypto_generichash_state state;
	char hex[2 * CPU_HASH_SIZE + 1], *end;
	int r = file_read(AT_FDCWD, "/proc/cpuinfo", CPUINFO_MAX, &text, NULL, e);

	if (r < 0)
		return error_wrap(e, "this host's CPU");
	end = strstr(text, "\n\n");
	if (end)
		end[1] = '\0';
	(void)crypto_generichash_init(&state, NULL, 0, sizeof(hash));
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		const char *line = strstr(text, lines[i]);

		if (line)
			(void)crypto_generichash_update(&state, (const unsigned char *)line, strcspn(line + 1, "\n") + 1);
	}
	(void)crypto_generichash_final(&state, hash, sizeof(hash));
	(void)sodium_bin2hex(hex, sizeof(hex), hash, CPU_HASH_SIZE);
	return str_format_n(ret, WARM_FACT_MAX, "host-passthrough %s", hex);
}

int warm_facts_now(struct host *h, const struct warm_want *want, struct warm_image *w, struct error *e)
{
	char uuid[DOMAIN_UUID_SIZE];
	unsigned long qemu;

	if (virConnectGetVersion(h->conn, &qemu) < 0)
		return virt_error(e, "cannot ask for the version of QEMU");
	domain_uuid(h->conf.net_name, want->s->name, uuid);
	(void)str_copy(w->fact[WARM_FORMAT], WARM_FORMAT_NOW);
	(void)str_copy(w->fact[WARM_BASE], want->base->disk_identity);
	(void)str_copy(w->fact[WARM_CLEAN], want->clean->disk_identity);
	(void)str_copy(w->fact[WARM_VIRT], virt_type(want->virt->kvm));
	(void)str_copy(w->fact[WARM_CPU], "maximum");
	(void)str_format(w->fact[WARM_CPUS], "%u", want->cpus);
	(void)str_format(w->fact[WARM_MEMORY_MIB], "%u", want->memory_mib);
	(void)str_format(w->fact[WARM_QEMU], "%lu", qemu);
	(void)str_copy(w->fact[WARM_UUID], uuid);
	(void)str_copy(w->fact[WARM_MAC], want->slot->mac);
	(void)str_copy(w->fact[WARM_TAP], want->slot->tap);
	return want->virt->kvm ? host_cpu(w->fact[WARM_CPU], e) : 0;
}

static int compare_fact(const struct warm_image *then, enum warm_fact i, const char *now, struct error *e)
{
	if (str_equal(then->fact[i], now))
		return 0;
	return error_set(e, ESTALE, "%s of its memory image is another (%.80s then, %.80s now)", facts[i].words, then->fact[i],
		now);
}

static int compare_file(const struct warm_image *then, enum warm_fact i, const char *path, struct error *e)
{
	char now[IDENTITY_MAX];
	int r = image_identity(path, now, e);

	return r < 0 ? r : compare_fact(then, i, now, e);
}

int warm_check(const struct host *h, const char *vm, const struct warm_image *w, struct error *e)
{
	(void)h;
	return compare_file(w, WARM_DISK_IDENTITY, w->disk, e) < 0 ? error_wrap(e, "memory image of %s", vm) : 0;
}

int warm_fits(struct host *h, const struct warm_want *want, const struct warm_image *w, struct error *e)
{
	CLEANUP_FREE struct warm_image *now = calloc(1, sizeof(*now));
	int r;

	if (!now)
		return error_errno(e, ENOMEM, "memory image of %s", want->s->name);
	r = warm_facts_now(h, want, now, e);
	for (int i = WARM_FORMAT; r == 0 && i <= WARM_TAP; i++)
		if (i != WARM_EMULATOR && i != WARM_EMULATOR_IDENTITY && i != WARM_MACHINE)
			r = compare_fact(w, (enum warm_fact)i, now->fact[i], e);
	/* Which machine its alias means is decided by this very program. */
	if (r == 0)
		r = compare_file(w, WARM_EMULATOR_IDENTITY, w->fact[WARM_EMULATOR], e);
	if (r == 0)
		r = compare_file(w, WARM_DISK_IDENTITY, w->disk, e);
	if (r == 0)
		r = compare_file(w, WARM_OVERLAY_IDENTITY, w->overlay, e);
	if (r == 0)
		r = compare_file(w, WARM_MEMORY_IDENTITY, w->memory, e);
	return r < 0 ? r : compare_file(w, WARM_GUEST_IDENTITY, w->guest, e);
}

int warm_read_listing(const struct warm_image *w, char **ret, struct error *e)
{
	return file_read(AT_FDCWD, w->guest, BEGIN_SEEN_MAX, ret, NULL, e);
}

int warm_drop(const struct host *h, const char *vm, struct error *e)
{
	char folder[WARM_FOLDER_MAX];

	warm_folder(vm, folder);
	return folder_drop(h, folder, e);
}

int warm_sweep(const struct host *h, const char *vm, struct error *e)
{
	char folder[WARM_FOLDER_MAX];

	warm_folder_new(vm, folder);
	return folder_drop(h, folder, e);
}
