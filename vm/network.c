#include "vm/network.h"
#include "base/str.h"
#include "vm/bridge.h"
#include "vm/slot.h"
#include "vm/virt.h"
#include <errno.h>
#include <libvirt/virterror.h>
#include <stdio.h>
#include <string.h>

DEFINE_CLEANUP(virNetworkPtr, virNetworkFree);

void network_uuid(const char *net_name, enum uuid_kind kind, char ret[static VIR_UUID_STRING_BUFLEN])
{
	unsigned char n[9] = {0};

	memcpy(n, net_name, strnlen(net_name, sizeof(n)));
	(void)snprintf(ret, VIR_UUID_STRING_BUFLEN,
		"b0e7e21a-%02x%02x-50%02x-80%02x-%02x%02x%02x%02x%02x%02x", n[0], n[1], n[2], n[3], n[4],
		n[5], n[6], n[7], n[8], (unsigned)kind);
}

/*
 * Guests are given their addresses by `begin`, so nothing here hands out any: a DHCP server would listen to guests and
 * remember what they say. The name server answers from its upstream only, with nothing of this host's own names.
 */
#define NAME_SERVER_OPTIONS                                                                                  \
	{                                                                                                    \
		"no-hosts", "bogus-priv"                                                                     \
	}

int network_render(const struct hostconf *conf, char **ret_xml, struct error *e)
{
	static const char *const options[] = NAME_SERVER_OPTIONS;
	CLEANUP_BUF struct buf b = BUF_INIT(NETWORK_XML_MAX);
	char uuid[VIR_UUID_STRING_BUFLEN];
	struct slot s;
	int r;

	network_uuid(conf->net_name, UUID_NETWORK, uuid);
	r = slot_derive(conf, 0, &s, e);
	if (r < 0)
		return r;
	r = buf_addf(&b,
		"<network>\n<name>%s</name>\n<uuid>%s</uuid>\n<forward mode='nat'/>\n"
		"<bridge name='%s' stp='off' delay='0'/>\n<mac address='%s'/>\n"
		"<ip address='%s' netmask='255.255.255.0'/>\n"
		"<options xmlns='http://libvirt.org/schemas/network/dnsmasq/1.0'>\n",
		conf->net_name, uuid, s.bridge, s.gateway_mac, s.gateway);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(options); i++)
		r = buf_addf(&b, "<option value='%s'/>\n", options[i]);
	if (r == 0)
		r = buf_addf(&b, "</options>\n</network>\n");
	if (r < 0)
		return error_errno(e, -r, "cannot write the network %s", conf->net_name);
	*ret_xml = TAKE_PTR(b.data);
	return 0;
}

static int check_ours(const struct host *h, virNetworkPtr n, struct error *e)
{
	char uuid[VIR_UUID_STRING_BUFLEN], want[VIR_UUID_STRING_BUFLEN];

	network_uuid(h->conf.net_name, UUID_NETWORK, want);
	if (virNetworkGetUUIDString(n, uuid) < 0)
		return virt_error(e, "cannot look at network %s", h->conf.net_name);
	if (!str_equal(uuid, want))
		return error_set(e, EEXIST,
			"libvirt has a network named %s that was not made by boxery; it is left alone, "
			"set BOXERY_NET_NAME to another name in host.env",
			h->conf.net_name);
	return 0;
}

/* 1: as the settings want it. 0: ours, with other settings. */
static int network_matches(const struct host *h, virNetworkPtr n, struct error *e)
{
	CLEANUP_FREE char *xml = NULL;
	static const char *const options[] = NAME_SERVER_OPTIONS;
	char address[64], mac[64], option[64];
	struct slot s;
	bool named = true;
	int r = check_ours(h, n, e);

	if (r < 0)
		return r;
	xml = virNetworkGetXMLDesc(n, 0);
	if (!xml)
		return virt_error(e, "cannot look at network %s", h->conf.net_name);
	r = slot_derive(&h->conf, 0, &s, e);
	if (r < 0)
		return r;
	(void)str_format(address, "<ip address='%s'", s.gateway);
	(void)str_format(mac, "<mac address='%s'", s.gateway_mac);
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		(void)str_format(option, "value='%s'", options[i]);
		named &= strstr(xml, option) != NULL;
	}
	return strstr(xml, address) && strstr(xml, mac) && named && !strstr(xml, "<dhcp") &&
	       virNetworkIsActive(n) == 1;
}

static int guests_on_network(const struct host *h, struct error *e)
{
	virDomainPtr *all = NULL;
	int n = virConnectListAllDomains(h->conn, &all, VIR_CONNECT_LIST_DOMAINS_ACTIVE), found = 0;

	if (n < 0)
		return virt_error(e, "cannot list the domains");
	for (int i = 0; i < n; i++) {
		struct life life;

		if (virt_life(h, all[i], &life, NULL) == 1)
			found++;
		(void)virDomainFree(all[i]);
	}
	free(all);
	return found;
}

static int destroy(const struct host *h, virNetworkPtr n, struct error *e)
{
	if (virNetworkIsActive(n) == 1 && virNetworkDestroy(n) < 0)
		return virt_error(e, "cannot stop network %s", h->conf.net_name);
	if (virNetworkIsPersistent(n) == 1 && virNetworkUndefine(n) < 0)
		return virt_error(e, "cannot remove network %s", h->conf.net_name);
	return 0;
}

static int find(struct host *h, virNetworkPtr *ret, struct error *e)
{
	const virError *v;

	*ret = virNetworkLookupByName(h->conn, h->conf.net_name);
	if (*ret)
		return 1;
	v = virGetLastError();
	return v && v->code == VIR_ERR_NO_NETWORK
		       ? 0
		       : virt_error(e, "cannot look for network %s", h->conf.net_name);
}

int network_remove(struct host *h, struct error *e)
{
	CLEANUP(virNetworkFreep) virNetworkPtr n = NULL;
	int r = guests_on_network(h, e);

	if (r > 0)
		return error_set(e, EBUSY, "%d VMs of boxery run on network %s and no keeper knows them: end them with 'virsh destroy'", r,
			h->conf.net_name);
	if (r == 0)
		r = find(h, &n, e);
	if (r <= 0)
		return r;
	r = check_ours(h, n, e);
	if (r == 0)
		r = destroy(h, n, e);
	return r < 0 ? r : 1;
}

static int make_sure(struct host *h, struct error *e)
{
	CLEANUP(virNetworkFreep)
	virNetworkPtr n = NULL, made = NULL;
	CLEANUP_FREE char *xml = NULL;
	int r = find(h, &n, e);

	if (r < 0)
		return r;
	if (n) {
		r = network_matches(h, n, e);
		if (r != 0)
			return r < 0 ? r : 0;
		r = guests_on_network(h, e);
		if (r < 0)
			return r;
		if (r > 0)
			return error_set(e, EBUSY,
				"network %s has other settings than host.env and %d running VMs on it; stop "
				"them first",
				h->conf.net_name, r);
		r = destroy(h, n, e);
		if (r < 0)
			return r;
	}
	r = network_render(&h->conf, &xml, e);
	if (r < 0)
		return r;
	made = virNetworkCreateXML(h->conn, xml);
	if (!made)
		return virt_error(
			e, "cannot start network %s (%s.0/24)", h->conf.net_name, h->conf.net_subnet);
	return 0;
}

int network_ensure(struct host *h, struct error *e)
{
	struct slot s;
	int r = make_sure(h, e);

	if (r == 0)
		r = slot_derive(&h->conf, 0, &s, e);
	return r < 0 ? r : bridge_learn_nothing_beside(s.bridge, e);
}
