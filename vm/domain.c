#include "vm/domain.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* What differs between the two architectures GitHub has runners for. */
static const struct machine {
	const char *arch, *machine, *features, *console;
	/* Of the host's CPU left out under KVM: a guest that starts guests has more of KVM within its reach. */
	const char *passthrough_but;
	/* For the guest's kernel under emulation. It counts timer ticks early in a boot and panics when none came, as on a
	 * broken board; on a busy host QEMU just had no turn. With KVM it knows where it is and does not look. */
	const char *emulated;
	bool has_genid; /* tells the guest's kernel that its memory was restored */
} machines[] = {
	{"x86_64", "q35", "<acpi/><apic/>", "ttyS0",
		"<feature policy='disable' name='vmx'/><feature policy='disable' name='svm'/>", " no_timer_check", true},
	{"aarch64", "virt", "<acpi/><gic/>", "ttyAMA0", "", "", false},
};

static const struct machine *machine_of(const char *arch)
{
	for (size_t i = 0; i < ARRAY_SIZE(machines); i++)
		if (str_equal(machines[i].arch, arch))
			return &machines[i];
	return NULL;
}

void domain_uuid(const char *net_name, const char *name, char ret[static DOMAIN_UUID_SIZE])
{
	unsigned char h[16];
	crypto_generichash_state state;

	(void)crypto_generichash_init(&state, NULL, 0, sizeof(h));
	(void)crypto_generichash_update(&state, (const unsigned char *)net_name, strlen(net_name) + 1);
	(void)crypto_generichash_update(&state, (const unsigned char *)name, strlen(name));
	(void)crypto_generichash_final(&state, h, sizeof(h));
	/* Version 8, "custom", of RFC 9562. */
	(void)snprintf(ret, DOMAIN_UUID_SIZE, "%02x%02x%02x%02x-%02x%02x-8%01x%02x-8%01x%02x-%02x%02x%02x%02x%02x%02x", h[0],
		h[1], h[2], h[3], h[4], h[5], h[6] & 15u, h[7], h[8] & 15u, h[9], h[10], h[11], h[12], h[13], h[14],
		h[15]);
}

/* <tag>text</tag>, or attr='text': the two shapes in which a value that is not ours to choose is put in. */
static int add_element(struct buf *b, const char *tag, const char *text)
{
	int r = buf_addf(b, "<%s>", tag);

	if (r == 0)
		r = buf_add_xml(b, text);
	return r < 0 ? r : buf_addf(b, "</%s>\n", tag);
}

static int add_attribute(struct buf *b, const char *name, const char *text)
{
	int r = buf_addf(b, " %s='", name);

	if (r == 0)
		r = buf_add_xml(b, text);
	return r < 0 ? r : buf_addf(b, "'");
}

static int add_head(struct buf *b, const struct domain_spec *s, const struct machine *m)
{
	char uuid[DOMAIN_UUID_SIZE];
	int r = buf_addf(b, "<domain type='%s'>\n", s->type);

	domain_uuid(s->net_name, s->name, uuid);
	if (r == 0)
		r = add_element(b, "name", s->name);
	if (r == 0)
		r = add_element(b, "uuid", uuid);
	/* Always the same one here: libvirt compares it with that of the memory image, and then makes another by itself. */
	if (r == 0 && m->has_genid)
		r = add_element(b, "genid", uuid);
	if (r == 0)
		r = buf_addf(b, "<metadata><vm xmlns='" DOMAIN_METADATA_URI "'");
	if (r == 0)
		r = add_attribute(b, "name", s->name);
	if (r == 0)
		r = buf_addf(b, " generation='%llu'", (unsigned long long)s->generation);
	if (r == 0)
		r = add_attribute(b, "net", s->net_name);
	if (r == 0)
		r = buf_addf(b, "/></metadata>\n<memory unit='MiB'>%u</memory>\n<vcpu>%u</vcpu>\n",
			s->memory_mib, s->cpus);
	return r;
}

static int add_os(struct buf *b, const struct domain_spec *s, const struct machine *m)
{
	int r = buf_addf(b, "<os>\n<type arch='%s' machine='%s'>hvm</type>\n", m->arch, m->machine);

	if (r == 0)
		r = add_element(b, "kernel", s->kernel);
	if (r == 0)
		r = add_element(b, "initrd", s->initrd);
	if (r == 0)
		r = buf_addf(b, "<cmdline>");
	if (r == 0)
		r = buf_add_xml(b, s->cmdline);
	if (r == 0)
		r = buf_addf(b, " console=%s%s systemd.hostname=", m->console, s->kvm ? "" : m->emulated);
	if (r == 0)
		r = buf_add_xml(b, s->name);
	if (r == 0)
		r = buf_addf(b, "</cmdline>\n</os>\n<features>%s</features>\n", m->features);
	/* Under emulation `maximum` has RDRAND; without it the guest's first random bytes cost a second. */
	if (r == 0)
		r = buf_addf(b, "<cpu mode='%s'>%s</cpu>\n<clock offset='utc'/>\n",
			s->kvm ? "host-passthrough" : "maximum", s->kvm ? m->passthrough_but : "");
	if (r == 0)
		r = buf_addf(b, "<on_poweroff>destroy</on_poweroff>\n<on_reboot>destroy</on_reboot>\n"
				"<on_crash>destroy</on_crash>\n");
	return r;
}

/* Bytes and operations a second, of reads and writes together. */
static int add_disk_limits(struct buf *b, const struct domain_limits *l)
{
	int r = 0;

	if (!l->disk_mib_per_s && !l->disk_iops)
		return 0;
	r = buf_addf(b, "<iotune>");
	if (r == 0 && l->disk_mib_per_s)
		r = buf_addf(b, "<total_bytes_sec>%llu</total_bytes_sec>",
			(unsigned long long)l->disk_mib_per_s * 1024 * 1024);
	if (r == 0 && l->disk_iops)
		r = buf_addf(b, "<total_iops_sec>%u</total_iops_sec>", l->disk_iops);
	return r < 0 ? r : buf_addf(b, "</iotune>\n");
}

static int add_disk(struct buf *b, const struct domain_spec *s)
{
	/* The overlay of a life that is reset after any doubt need not be flushed for anybody. */
	int r = buf_addf(b,
		"<disk type='file' device='disk'>\n<driver name='qemu' type='qcow2' "
		"discard='unmap'%s/>\n<source",
		s->disposable ? " cache='unsafe'" : "");

	if (r == 0)
		r = add_attribute(b, "file", s->layers[0]);
	if (r == 0)
		r = buf_addf(b, "/>\n");
	for (size_t i = 1; r == 0 && i < s->n_layers; i++) {
		r = buf_addf(b, "<backingStore type='file'><format type='qcow2'/><source");
		if (r == 0)
			r = add_attribute(b, "file", s->layers[i]);
		if (r == 0)
			r = buf_addf(b, "/>\n");
	}
	if (r == 0)
		r = buf_addf(b, "<backingStore/>");
	for (size_t i = 1; r == 0 && i < s->n_layers; i++)
		r = buf_addf(b, "</backingStore>");
	if (r == 0)
		r = buf_addf(b, "\n<target dev='vda' bus='virtio'/>\n");
	if (r == 0)
		r = add_disk_limits(b, &s->limits);
	return r < 0 ? r : buf_addf(b, "</disk>\n");
}

static int add_interface(struct buf *b, const struct domain_spec *s)
{
	int r = buf_addf(b, "<interface type='network'>\n<mac address='%s'/>\n<source", s->slot->mac);

	if (r == 0)
		r = add_attribute(b, "network", s->net_name);
	if (r == 0)
		r = buf_addf(b, "/>\n<target dev='%s'/>\n<model type='virtio'/>\n", s->slot->tap);
	if (r == 0 && s->add_filter)
		r = s->add_filter(b, s->slot);
	if (r == 0)
		r = buf_addf(b, "</interface>\n<channel type='unix'>\n"
				"<target type='virtio' name='org.qemu.guest_agent.0'/>\n</channel>\n");
	return r;
}

static int add_devices(struct buf *b, const struct domain_spec *s)
{
	int r = buf_addf(b, "<devices>\n");

	if (r == 0 && s->n_layers > 0)
		r = add_disk(b, s);
	if (r == 0 && s->slot)
		r = add_interface(b, s);
	if (r == 0)
		r = buf_addf(b, "<serial type='file'>\n<source");
	if (r == 0)
		r = add_attribute(b, "path", s->console);
	if (r == 0)
		r = buf_addf(b, " append='on'/>\n</serial>\n<rng model='virtio'><backend "
				"model='random'>/dev/urandom</backend></rng>\n"
				"<controller type='usb' model='none'/>\n<memballoon "
				"model='none'/>\n</devices>\n</domain>\n");
	return r;
}

int domain_render(const struct domain_spec *s, char **ret_xml, struct error *e)
{
	CLEANUP_BUF struct buf b = BUF_INIT(DOMAIN_XML_MAX);
	const struct machine *m = machine_of(s->arch);
	int r;

	if (!m)
		return error_set(
			e, EOPNOTSUPP, "architecture %s: only x86_64 and aarch64 are known", s->arch);
	r = add_head(&b, s, m);
	if (r == 0)
		r = add_os(&b, s, m);
	if (r == 0)
		r = add_devices(&b, s);
	if (r < 0)
		return error_errno(e, -r, "cannot write the domain of %s", s->name);
	*ret_xml = TAKE_PTR(b.data);
	return 0;
}

/* Copies the value of ` name="..."` or ` name='...'`; values of ours have nothing that XML would escape. */
static int attribute(const char *xml, const char *name, char *dst, size_t size)
{
	const char *p = xml, *end;
	size_t n = strlen(name);

	while ((p = strstr(p, name))) {
		if (p > xml && p[-1] == ' ' && p[n] == '=' && (p[n + 1] == '"' || p[n + 1] == '\''))
			break;
		p += n;
	}
	if (!p)
		return -EINVAL;
	p += n + 1;
	end = strchr(p + 1, *p);
	if (!end || (size_t)(end - p) > size)
		return -EINVAL;
	memcpy(dst, p + 1, (size_t)(end - p) - 1);
	dst[end - p - 1] = '\0';
	return 0;
}

int domain_metadata_parse(
	const char *xml, const char *net_name, char ret_name[static 41], uint64_t *ret_generation)
{
	char name[VM_NAME_MAX], net[32], number[24];
	uint64_t generation;

	if (attribute(xml, "name", name, sizeof(name)) < 0 || attribute(xml, "net", net, sizeof(net)) < 0 ||
		attribute(xml, "generation", number, sizeof(number)) < 0)
		return -EINVAL;
	if (!name_valid(name) || !str_equal(net, net_name) ||
		parse_u64(number, "generation", 0, UINT64_MAX, &generation, NULL) < 0)
		return -EINVAL;
	memcpy(ret_name, name, sizeof(name));
	*ret_generation = generation;
	return 0;
}
