/* What guests, libvirt and tools say to boxery-vm: the answer to begin, metadata, a domain's description, nft listings, settings. */
#include "fuzz.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "vm/begin.h"
#include "vm/domain.h"
#include "vm/filter.h"
#include "vm/listing.h"
#include "vm/settings.h"
#include <assert.h>
#include <errno.h>

static const struct hostconf conf = {
	.net_name = "boxery", .net_subnet = "192.168.130", .net_isolation = true};

static const char *const layers[] = {"/b/run/one.qcow2", "/b/base/d/disk.qcow2"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error e = ERROR_INIT;
	char name[VM_NAME_MAX];
	char *text = malloc(size + 1);
	static struct begin_answer a;
	static char listed[BEGIN_SEEN_MAX];
	struct domain_seen seen;
	struct settings s;
	struct slot slot;
	uint64_t generation;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	if (begin_parse(text, &a, &e) < 0)
		assert(e.code > 0 && !strchr(e.text, '\n'));
	else
		assert(str_is_terminated(a.host_key, sizeof(a.host_key)));
	if (seen_parse(text, listed, &e) == 0)
		assert(listing_compare(listed, listed, LISTING_SAME, &e) == 0);
	for (int rule = 0; rule < LISTING_RULE_COUNT; rule++)
		if (listing_compare("process 0 a /a\nspace 1 1\n", text, (enum listing_rule)rule, &e) < 0)
			assert(e.code > 0 && !strchr(e.text, '\n'));
	(void)ready_parse(text, name, sizeof(name), &e);
	if (domain_metadata_parse(text, "boxery", name, &generation) == 0)
		assert(name_valid(name));
	if (slot_derive(&conf, 0, &slot, &e) < 0)
		abort();
	if (domain_seen_parse(text, &seen, &e) == 0) {
		assert(str_is_terminated(seen.mac, sizeof(seen.mac)) && str_is_terminated(seen.tap, sizeof(seen.tap)));
		for (size_t i = 0; i < DOMAIN_LAYERS_MAX; i++)
			assert(str_is_terminated(seen.layers[i], sizeof(seen.layers[i])));
		if (domain_seen_check(&seen, layers, ARRAY_SIZE(layers), &slot, &e) < 0)
			assert(e.code > 0 && !strchr(e.text, '\n'));
	}
	(void)nwfilter_listing_check(text, &slot, &e);
	(void)guard_listing_check(&conf, text, &e);
	if (settings_parse("one", "one.env", (const char *)data, size, &s, &e) == 0)
		assert(s.slot < SLOT_COUNT && s.cpus > 0 && name_valid(s.image));
	free(text);
	return 0;
}
