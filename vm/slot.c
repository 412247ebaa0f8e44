#include "vm/slot.h"
#include "base/str.h"
#include <errno.h>

int slot_derive(const struct hostconf *conf, uint32_t slot, struct slot *ret, struct error *e)
{
	const unsigned host = slot + SLOT_FIRST_HOST;
	struct slot s;
	int r;

	if (slot >= SLOT_COUNT)
		return error_set(e, EINVAL, "slot %u: a network has the slots 0 to %d", slot, SLOT_COUNT - 1);
	r = str_format(s.address, "%s.%u", conf->net_subnet, host);
	if (r == 0)
		r = str_format(s.gateway, "%s.1", conf->net_subnet);
	if (r == 0)
		r = str_format(s.mac, "52:54:00:b0:0e:%02x", host);
	if (r == 0)
		r = str_format(s.gateway_mac, "52:54:00:b0:0e:01");
	if (r == 0)
		r = str_format(s.tap, "%s-%u", conf->net_name, host);
	if (r == 0)
		r = str_format(s.bridge, "virbr-%s", conf->net_name);
	if (r < 0)
		return error_errno(e, -r, "network %s: a name made from it", conf->net_name);
	*ret = s;
	return 0;
}
