#include "vm/virt.h"
#include "base/str.h"
#include "linux/clock.h"
#include "vm/domain.h"
#include <errno.h>
#include <libvirt/virterror.h>
#include <stdio.h>
#include <string.h>

#define POLL_MS 50

static int code_of(int libvirt_code)
{
	switch (libvirt_code) {
	case VIR_ERR_NO_DOMAIN:
	case VIR_ERR_NO_NETWORK:
	case VIR_ERR_NO_NWFILTER:
	case VIR_ERR_NO_NWFILTER_BINDING:
		return ENOENT;
	case VIR_ERR_RPC:
	case VIR_ERR_NO_CONNECT:
	case VIR_ERR_INVALID_CONN:
		return ECONNREFUSED;
	case VIR_ERR_AGENT_UNRESPONSIVE:
		return EHOSTUNREACH;
	case VIR_ERR_OPERATION_TIMEOUT:
		return ETIMEDOUT;
	case VIR_ERR_AUTH_FAILED:
	case VIR_ERR_ACCESS_DENIED:
		return EACCES;
	case VIR_ERR_CONFIG_UNSUPPORTED:
	case VIR_ERR_NO_SUPPORT:
		return EOPNOTSUPP;
	case VIR_ERR_NO_MEMORY:
		return ENOMEM;
	default:
		return EIO;
	}
}

/* libvirt's last error. This program has one thread. */
static struct {
	int code;
	char words[300];
} kept;

void virt_error_keep(void)
{
	const virError *v = virGetLastError();
	const char *words = v && v->message ? v->message : "no reason given";

	kept.code = v ? v->code : VIR_ERR_OK;
	/* It quotes paths, output of programs, and for agent commands also what the guest answered. One line
	 * of it. */
	str_show_n(kept.words, sizeof(kept.words), words, strcspn(words, "\n"));
}

int virt_error_say(struct error *e, int code, const char *format, ...)
{
	char text[ERROR_TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return error_set(e, code ? code : code_of(kept.code), "%s: libvirt: %s", text, kept.words);
}

static void silent(void *userdata, virErrorPtr error)
{
	(void)userdata;
	(void)error;
}

void virt_init(void)
{
	virSetErrorFunc(NULL, silent);
}

static bool last_error_is(int code)
{
	const virError *v = virGetLastError();

	return v && v->code == code;
}

int virt_mark(const struct host *h, virDomainPtr d, struct life *ret, struct error *e)
{
	CLEANUP_FREE char *xml = NULL;

	xml = virDomainGetMetadata(
		d, VIR_DOMAIN_METADATA_ELEMENT, DOMAIN_METADATA_URI, VIR_DOMAIN_AFFECT_CURRENT);
	if (!xml && (last_error_is(VIR_ERR_NO_DOMAIN_METADATA) || last_error_is(VIR_ERR_NO_DOMAIN)))
		return 0;
	if (!xml)
		return virt_error(e, "cannot read the metadata of domain %s", virDomainGetName(d));
	return domain_metadata_parse(xml, h->conf.net_name, ret->name, &ret->generation) == 0;
}

int virt_life(const struct host *h, virDomainPtr d, struct life *ret, struct error *e)
{
	int r = virt_mark(h, d, ret, e);

	return r == 1 ? str_equal(ret->name, virDomainGetName(d)) : r;
}

int virt_check_devices(virDomainPtr d, const char *const *layers, size_t n_layers, const struct slot *slot,
	struct error *e)
{
	CLEANUP_FREE char *xml = virDomainGetXMLDesc(d, 0);
	struct domain_seen seen;
	int r;

	if (!xml)
		return virt_error(e, "cannot read the description of domain %s", virDomainGetName(d));
	r = domain_seen_parse(xml, &seen, e);
	return r < 0 ? r : domain_seen_check(&seen, layers, n_layers, slot, e);
}

int virt_find(
	const struct host *h, const char *name, virDomainPtr *ret, struct life *ret_life, struct error *e)
{
	CLEANUP(virDomainFreep) virDomainPtr d = virDomainLookupByName(h->conn, name);
	int r;

	if (!d && last_error_is(VIR_ERR_NO_DOMAIN))
		return 0;
	if (!d)
		return virt_error(e, "cannot look for domain %s", name);
	r = virt_life(h, d, ret_life, e);
	if (r < 0)
		return r;
	if (r == 0 && virDomainIsActive(d) < 0 && last_error_is(VIR_ERR_NO_DOMAIN))
		return 0;
	if (r == 0)
		return error_set(e, EEXIST,
			"libvirt has a domain named %s that was not made by boxery (or for another "
			"BOXERY_NET_NAME); it is left alone, choose another name",
			name);
	*ret = TAKE_PTR(d);
	return 1;
}

bool virt_runs(virDomainPtr d)
{
	return virDomainIsActive(d) == 1;
}

int virt_runs_check(virDomainPtr d, struct error *e)
{
	int r = virDomainIsActive(d);

	if (r >= 0 || last_error_is(VIR_ERR_NO_DOMAIN))
		return r > 0;
	if (virConnectIsAlive(virDomainGetConnect(d)) != 1)
		return error_set(e, ECONNREFUSED, "the connection to libvirt broke");
	return virt_error(e, "cannot ask whether domain %s runs", virDomainGetName(d));
}

bool virt_stuck(virDomainPtr d)
{
	int state, reason;

	return virDomainGetState(d, &state, &reason, 0) == 0 && state == VIR_DOMAIN_PAUSED && reason == VIR_DOMAIN_PAUSED_IOERROR;
}

int virt_settle(virDomainPtr d, struct error *e)
{
	const uint64_t until = clock_boot_us() + SETTLE_TIMEOUT_MS * 1000u;
	int state, reason;

	while (virDomainGetState(d, &state, &reason, 0) == 0 && state == VIR_DOMAIN_PAUSED &&
		reason == VIR_DOMAIN_PAUSED_STARTING_UP) {
		if (clock_boot_us() >= until)
			return error_set(e, ETIMEDOUT, "domain %s is still starting up after %d s",
				virDomainGetName(d), SETTLE_TIMEOUT_MS / 1000);
		host_sleep_ms(POLL_MS);
	}
	return 0;
}

int virt_destroy(const struct host *h, virDomainPtr d, struct error *e)
{
	const uint64_t until = clock_boot_us() + DESTROY_TIMEOUT_MS * 1000u;
	char uuid[VIR_UUID_STRING_BUFLEN];

	/* A domain in the middle of an interrupted start refuses to be destroyed; libvirt ends it by itself.
	 */
	(void)virt_settle(d, NULL);
	if (virDomainGetUUIDString(d, uuid) < 0)
		return virt_error(e, "cannot destroy domain %s", virDomainGetName(d));
	for (;;) {
		CLEANUP(virDomainFreep) virDomainPtr again = NULL;

		if (virDomainDestroy(d) < 0 && !last_error_is(VIR_ERR_NO_DOMAIN) &&
			!last_error_is(VIR_ERR_OPERATION_INVALID) && clock_boot_us() >= until)
			return virt_error(e, "cannot destroy domain %s", virDomainGetName(d));
		/* Ours are transient; one that somebody made persistent would be in the way of the next
		 * start. */
		if (virDomainIsPersistent(d) == 1)
			(void)virDomainUndefineFlags(d, VIR_DOMAIN_UNDEFINE_MANAGED_SAVE |
								VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA |
								VIR_DOMAIN_UNDEFINE_NVRAM);
		again = virDomainLookupByUUIDString(h->conn, uuid);
		if (!again && last_error_is(VIR_ERR_NO_DOMAIN))
			return 0;
		if (!again)
			return virt_error(e, "cannot see whether domain %s is gone", virDomainGetName(d));
		if (clock_boot_us() >= until)
			return error_set(e, ETIMEDOUT, "domain %s is still there %d s after it was destroyed",
				virDomainGetName(d), DESTROY_TIMEOUT_MS / 1000);
		host_sleep_ms(POLL_MS);
	}
}
