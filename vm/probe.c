#include "vm/probe.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/file.h"
#include "vm/domain.h"
#include "vm/virt.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define FILE_NAME "virt.env"
#define PROBE_MEMORY_MIB 512
#define PROBE_POLL_MS 100
#define CONSOLE_READ_MAX (256 * 1024)
/* The kernel's own line when it hands over to the initrd: memory, timers, interrupts and user space work by
 * then. */
#define REACHED "Run /init as init process"

struct verdict {
	char boot_id[BOOT_ID_MAX], why[200];
	uint64_t qemu;
	bool kvm;
};

static int on_verdict(void *userdata, const char *key, const char *value, struct error *e)
{
	struct verdict *v = userdata;

	if (str_equal(key, "BOOT_ID"))
		return str_copy(v->boot_id, value);
	if (str_equal(key, "WHY"))
		return str_copy(v->why, value);
	if (str_equal(key, "QEMU"))
		return parse_u64(value, key, 0, UINT64_MAX, &v->qemu, e);
	if (str_equal(key, "KVM"))
		return parse_bool(value, key, &v->kvm, e);
	return error_set(e, EINVAL, "%.100s is not a setting of this file", key);
}

/* true: there is one for this boot and this QEMU. A file that cannot be read is as good as none. */
static bool verdict_load(const struct host *h, const char *boot_id, uint64_t qemu, struct verdict *ret)
{
	CLEANUP_FREE char *data = NULL;
	struct verdict v = {0};
	size_t len;

	if (file_read(h->image_fd, FILE_NAME, ENVFILE_MAX, &data, &len, NULL) < 0 ||
		envfile_parse(FILE_NAME, data, len, on_verdict, &v, NULL) < 0)
		return false;
	if (!str_equal(v.boot_id, boot_id) || v.qemu != qemu || !v.why[0])
		return false;
	*ret = v;
	return true;
}

static int verdict_save(const struct host *h, const struct verdict *v, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(4096);
	int r = buf_addf(&b, "BOOT_ID=%s\nQEMU=%llu\nKVM=%s\nWHY=%s\n", v->boot_id,
		(unsigned long long)v->qemu, v->kvm ? "yes" : "no", v->why);

	if (r < 0)
		return error_errno(e, -r, "virtualisation probe");
	return file_write_atomic(h->image_fd, FILE_NAME, b.data, b.len, 0644, e);
}

/* Waits for the line on the console, or for the end of the guest. true: reached. */
static bool reached(
	const struct host *h, virDomainPtr d, const char *console, char *why, size_t size, uint64_t *ret_ms)
{
	const uint64_t start = clock_boot_us();

	for (;;) {
		CLEANUP_FREE char *text = NULL;
		bool running = virt_runs(d);
		size_t len;

		*ret_ms = (clock_boot_us() - start) / 1000u;
		if (file_read(h->image_fd, console, CONSOLE_READ_MAX, &text, &len, NULL) == 0 &&
			strstr(text, REACHED))
			return true;
		if (!running) {
			(void)str_format_n(why, size, "a guest started with KVM ended after %llu ms",
				(unsigned long long)*ret_ms);
			return false;
		}
		if (*ret_ms >= PROBE_TIMEOUT_MS) {
			(void)str_format_n(why, size, "a guest started with KVM did not come up in %d s",
				PROBE_TIMEOUT_MS / 1000);
			return false;
		}
		host_sleep_ms(PROBE_POLL_MS);
	}
}

static int probe(struct host *h, const struct base_image *base, struct verdict *v, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr old = NULL, d = NULL;
	CLEANUP_FREE char *xml = NULL;
	char name[VM_NAME_MAX], console[VM_PATH_MAX];
	struct domain_spec spec = {.type = virt_type(true),
		.arch = base->arch,
		.kvm = true,
		.cpus = 1,
		.memory_mib = PROBE_MEMORY_MIB,
		.kernel = base->kernel,
		.initrd = base->initrd,
		.cmdline = "panic=-1"};
	struct error local = ERROR_INIT;
	struct life life;
	uint64_t ms = 0;
	int r;

	/* Two hyphens: no VM of the keeper's can have this name by accident, and it is a valid one for
	 * libvirt. */
	(void)str_format(name, "%s--probe", h->conf.net_name);
	r = virt_find(h, name, &old, &life, e);
	if (r == 1)
		r = virt_destroy(h, old, e);
	if (r == 0)
		r = HOST_PATH(h, console, e, "console/.probe.log");
	if (r == 0)
		r = file_write_atomic(h->image_fd, "console/.probe.log", "", 0, 0600, e);
	spec.name = name;
	spec.net_name = h->conf.net_name;
	spec.console = console;
	if (r == 0)
		r = domain_render(&spec, &xml, e);
	if (r < 0)
		return r;
	d = virDomainCreateXML(h->conn, xml, VIR_DOMAIN_NONE);
	if (!d) {
		(void)virt_error(&local, "a guest could not be started with KVM");
		str_show_n(v->why, sizeof(v->why), local.text, strlen(local.text));
		return local.code == ECONNREFUSED ? error_set(e, local.code, "%s", local.text) : 0;
	}
	v->kvm = reached(h, d, "console/.probe.log", v->why, sizeof(v->why), &ms);
	if (v->kvm)
		(void)str_format(
			v->why, "a guest started with KVM came up in %llu ms", (unsigned long long)ms);
	r = virt_destroy(h, d, e);
	(void)file_remove(h->image_fd, "console/.probe.log", true, NULL);
	return r;
}

static int choose_probed(struct host *h, struct virt_choice *ret, struct error *e)
{
	CLEANUP_FD int lock = -1;
	struct base_image base;
	struct verdict v = {0};
	char boot_id[BOOT_ID_MAX];
	unsigned long qemu;
	int r;

	r = clock_boot_id(boot_id, e);
	if (r == 0)
		r = host_lock_shared_parts(h, &lock, e);
	if (r < 0)
		return r;
	if (virConnectGetVersion(h->conn, &qemu) < 0)
		return virt_error(e, "cannot ask for the version of QEMU");
	if (!verdict_load(h, boot_id, qemu, &v)) {
		(void)str_copy(v.boot_id, boot_id);
		v.qemu = qemu;
		if (access("/dev/kvm", F_OK) < 0) {
			(void)str_copy(v.why, "there is no /dev/kvm");
		} else {
			if (base_load_any(h, &base, NULL) < 0) {
				(void)str_copy(
					ret->why, "not known yet: it is found out with the first base image");
				return 0;
			}
			r = probe(h, &base, &v, e);
		}
		if (r == 0)
			r = verdict_save(h, &v, e);
		if (r < 0)
			return error_wrap(e, "virtualisation probe");
	}
	ret->known = true;
	ret->kvm = v.kvm;
	(void)str_copy(ret->why, v.why);
	return 0;
}

const char *virt_type(bool kvm)
{
	return kvm ? "kvm" : "qemu";
}

int virt_choose(struct host *h, struct virt_choice *ret, struct error *e)
{
	struct virt_choice c = {.known = true};
	int r = 0;

	switch (h->conf.virt) {
	case VIRT_KVM:
		c.kvm = true;
		(void)str_copy(c.why, "BOXERY_VIRT=kvm in host.env");
		break;
	case VIRT_QEMU:
		(void)str_copy(c.why, "BOXERY_VIRT=qemu in host.env");
		break;
	case VIRT_AUTO:
		c.known = false;
		r = choose_probed(h, &c, e);
		break;
	}
	if (r == 0)
		*ret = c;
	return r;
}
