/*
 * Reading back what libvirt says a domain is. Not an XML parser: it looks for a few start tags between the last
 * <devices> and its end. libvirt writes its XML from a tree, one element a line, values in single quotes with the
 * five special characters escaped, so no text in it can look like a tag. What cannot be read counts as edited.
 */
#include "base/cleanup.h"
#include "base/parse.h"
#include "vm/domain.h"
#include <errno.h>
#include <string.h>

/* The start of "<tag" in [from, end), or NULL. */
static const char *tag_find(const char *from, const char *end, const char *tag)
{
	size_t n = strlen(tag);
	const char *p = from;

	while ((p = memchr(p, '<', (size_t)(end - p)))) {
		if ((size_t)(end - p) > n + 1 && memcmp(p + 1, tag, n) == 0 && strchr(" />\n", p[n + 1]))
			return p;
		p++;
	}
	return NULL;
}

/* The value of an attribute of the tag that starts at p, unescaped. -ENOENT: it has none. */
static int attribute(const char *p, const char *name, char *dst, size_t size)
{
	static const struct {
		const char *escaped;
		char c;
	} specials[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&apos;", '\''}, {"&quot;", '"'}};
	const char *end = strchr(p, '>');
	size_t n = strlen(name), out = 0;
	char quote;

	for (; end && p < end; p++)
		if (*p == ' ' && strncmp(p + 1, name, n) == 0 && p[n + 1] == '=')
			break;
	if (!end || p >= end || (p[n + 2] != '\'' && p[n + 2] != '"'))
		return -ENOENT;
	quote = p[n + 2];
	for (p += n + 3; *p && *p != quote;) {
		char c = *p;
		size_t step = 1;

		for (size_t i = 0; c == '&' && i < ARRAY_SIZE(specials); i++)
			if (str_starts(p, specials[i].escaped)) {
				c = specials[i].c;
				step = strlen(specials[i].escaped);
				break;
			}
		if (out + 1 >= size)
			return -ENAMETOOLONG;
		dst[out++] = c;
		p += step;
	}
	if (!*p)
		return -EBADMSG;
	dst[out] = '\0';
	return 0;
}

static unsigned count(const char *from, const char *end, const char *tag)
{
	unsigned n = 0;

	for (const char *p = from; (p = tag_find(p, end, tag)); p++)
		n++;
	return n;
}

static int see_disks(struct domain_seen *s, const char *from, const char *end)
{
	for (const char *disk = from; (disk = tag_find(disk, end, "disk")); disk++) {
		const char *close = strstr(disk, "</disk>");

		if (!close || close > end)
			return -EBADMSG;
		s->disks++;
		for (const char *p = disk; (p = tag_find(p, close, "source")); p++) {
			if (s->n_layers < DOMAIN_LAYERS_MAX &&
				attribute(p, "file", s->layers[s->n_layers], sizeof(s->layers[0])) < 0)
				(void)str_copy(s->layers[s->n_layers], "not a file");
			s->n_layers++;
		}
	}
	return 0;
}

static int see_interfaces(struct domain_seen *s, const char *from, const char *end)
{
	for (const char *p = from; (p = tag_find(p, end, "interface")); p++) {
		const char *close = strstr(p, "</interface>"), *mac, *target;
		char text[64];

		if (!close || close > end)
			return -EBADMSG;
		mac = tag_find(p, close, "mac");
		target = tag_find(p, close, "target");
		if (s->interfaces++ > 0)
			continue;
		if (mac && attribute(mac, "address", text, sizeof(text)) == 0)
			str_show_n(s->mac, sizeof(s->mac), text, strlen(text));
		if (target && attribute(target, "dev", text, sizeof(text)) == 0)
			str_show_n(s->tap, sizeof(s->tap), text, strlen(text));
	}
	return 0;
}

/* Before the devices; shown, since it goes into a file. */
static void see_machine(struct domain_seen *s, const char *xml, const char *devices, const char *end)
{
	const char *type = tag_find(xml, devices, "type"), *emulator = tag_find(devices, end, "emulator");
	char text[sizeof(s->emulator)];
	size_t n;

	if (type && attribute(type, "machine", text, sizeof(text)) == 0)
		str_show_n(s->machine, sizeof(s->machine), text, strlen(text));
	if (!emulator)
		return;
	emulator += strlen("<emulator>");
	n = strcspn(emulator, "<");
	str_show_n(s->emulator, sizeof(s->emulator), emulator, n);
}

int domain_seen_parse(const char *xml, struct domain_seen *ret, struct error *e)
{
	/* Ways into the host, or out of the jail, that somebody may have added. */
	static const char *const strange[] = {
		"hostdev", "filesystem", "redirdev", "shmem", "vsock", "graphics", "smartcard", "tpm", "nvram"};
	const char *from = NULL, *end;
	struct domain_seen s = {0};

	/* A guest's metadata, which anybody may have written, comes before the devices. */
	for (const char *p = xml; (p = strstr(p, "<devices>")); p++)
		from = p;
	end = from ? strstr(from, "</devices>") : NULL;
	if (!end || see_disks(&s, from, end) < 0 || see_interfaces(&s, from, end) < 0)
		return error_set(e, EBADMSG, "libvirt's description of it cannot be understood");
	see_machine(&s, xml, from, end);
	for (size_t i = 0; !s.extra[0] && i < ARRAY_SIZE(strange); i++)
		if (count(from, end, strange[i]) > 0)
			(void)str_format(s.extra, "<%s>", strange[i]);
	if (!s.extra[0] && strstr(end, "<qemu:"))
		(void)str_copy(s.extra, "<qemu:...>");
	*ret = s;
	return 0;
}

int domain_seen_check(const struct domain_seen *seen, const char *const *layers, size_t n_layers,
	const struct slot *slot, struct error *e)
{
	if (seen->disks != (n_layers > 0))
		return error_set(e, ESTALE, "its domain was edited: it has %u disks", seen->disks);
	if (seen->n_layers != n_layers)
		return error_set(e, ESTALE, "its domain was edited: its disk has %u layers, not %zu",
			seen->n_layers, n_layers);
	for (size_t i = 0; i < n_layers; i++) {
		char shown[160];

		if (str_equal(seen->layers[i], layers[i]))
			continue;
		str_show_n(shown, sizeof(shown), seen->layers[i], strlen(seen->layers[i]));
		return error_set(e, ESTALE, "its domain was edited: layer %zu of its disk is %s, not %.160s", i,
			shown, layers[i]);
	}
	if (seen->interfaces != 1 || !str_equal(seen->mac, slot->mac) || !str_equal(seen->tap, slot->tap))
		return error_set(e, ESTALE,
			"its domain was edited: it has %u network cards, the first with MAC %s on tap %s, not %s on %s",
			seen->interfaces, seen->mac[0] ? seen->mac : "none", seen->tap[0] ? seen->tap : "none",
			slot->mac, slot->tap);
	if (seen->extra[0])
		return error_set(e, ESTALE, "its domain was edited: it has a device %s", seen->extra);
	return 0;
}
