#include "linux/hostconf.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "base/str.h"
#include "linux/file.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <sys/un.h>

#define SYSTEM_CONFIG "/etc/boxery"

/* An XDG variable that is not an absolute path counts as unset; the specification says so. */
static const char *xdg(const char *variable)
{
	const char *s = getenv(variable);

	return s && s[0] == '/' ? s : NULL;
}

static const char *home(void)
{
	const char *s = getenv("HOME");
	const struct passwd *pw;

	if (s && s[0] == '/')
		return s;
	pw = getpwuid(getuid());
	return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

static bool is_system(void)
{
	const char *s = getenv("BOXERY_SYSTEM");

	if (s && s[0])
		return str_equal(s, "1");
	return !getenv("BOXERY_CONFIG_DIR") && !getenv("XDG_CONFIG_HOME") &&
	       access(SYSTEM_CONFIG "/host.env", F_OK) == 0;
}

/* Absolute, without a trailing '/' or "..": these become parts of file names that are handed to QEMU. */
static int put_path(char *dst, size_t size, const char *what, const char *path, struct error *e)
{
	char text[64];
	size_t n = strlen(path);

	str_show_n(text, sizeof(text), path, n);
	if (path[0] != '/' || strstr(path, "/../") || (n >= 3 && str_equal(path + n - 3, "/..")))
		return error_set(e, EINVAL, "%s: '%s' is not an absolute path without '..'", what, text);
	while (n > 1 && path[n - 1] == '/')
		n--;
	if (n >= size)
		return error_set(e, EINVAL, "%s: '%s...' is longer than %zu bytes", what, text, size - 1);
	memmove(dst, path, n);
	dst[n] = '\0';
	return 0;
}

struct place {
	const char *override, *system, *xdg, *below_home;
};

/* BOXERY_*_DIR, else the system's place, else XDG, else below the home folder. */
static int put_place(char *dst, size_t size, const struct place *p, bool system, struct error *e)
{
	const char *s = getenv(p->override), *h;
	char path[512];
	int r;

	if (s && s[0])
		return put_path(dst, size, p->override, s, e);
	if (system)
		return put_path(dst, size, p->override, p->system, e);
	s = xdg(p->xdg);
	h = home();
	if (s)
		r = str_format(path, "%s/boxery", s);
	else if (p->below_home && h)
		r = str_format(path, "%s/%s/boxery", h, p->below_home);
	else if (p->below_home)
		return error_set(e, EINVAL, "no home folder is known; set HOME or %s", p->override);
	else if (getuid() == 0)
		r = str_format(path, "/run/boxery");
	else
		r = str_format(path, "/run/user/%u/boxery", (unsigned)getuid());
	if (r < 0)
		return error_set(e, EINVAL, "%s: the path is too long", s ? p->xdg : "HOME");
	return put_path(dst, size, p->override, path, e);
}

static int put_text(char *dst, size_t size, const char *what, const char *value, struct error *e)
{
	if (!value[0])
		return error_set(e, EINVAL, "%s: the value is empty", what);
	if (str_copy_n(dst, size, value) < 0)
		return error_set(e, EINVAL, "%s: the value is longer than %zu bytes", what, size - 1);
	return 0;
}

static int put_net_name(char *dst, size_t size, const char *what, const char *value, struct error *e)
{
	int r = name_check(value, what, e);

	if (r < 0)
		return r;
	/* The kernel allows 15 bytes for the bridge virbr-NAME. */
	if (strlen(value) >= size)
		return error_set(e, EINVAL, "%s: '%s' is longer than %zu characters", what, value, size - 1);
	return str_copy_n(dst, size, value);
}

static int put_subnet(char *dst, size_t size, const char *what, const char *value, struct error *e)
{
	const char *s = value;
	unsigned octet[3];
	char text[64];

	str_show_n(text, sizeof(text), value, strlen(value));
	for (unsigned i = 0; i < 3; i++) {
		size_t n = strspn(s, "0123456789");

		octet[i] = 0;
		for (size_t k = 0; k < n && n <= 3; k++)
			octet[i] = octet[i] * 10 + (unsigned)(s[k] - '0');
		if (n == 0 || n > 3 || octet[i] > 255 || (n > 1 && s[0] == '0') ||
			s[n] != (i < 2 ? '.' : '\0'))
			return error_set(e, EINVAL,
				"%s: '%s' is not a /24 written as its first three numbers, like "
				"192.168.130",
				what, text);
		s += n + (i < 2);
	}
	/* Elsewhere are other people's machines, which nothing on this host could reach any more. */
	if (octet[0] != 10 && !(octet[0] == 172 && octet[1] >= 16 && octet[1] <= 31) && !(octet[0] == 192 && octet[1] == 168))
		return error_set(e, EINVAL, "%s: %s.0/24 is not private: it must lie in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16",
			what, text);
	return str_copy_n(dst, size, value);
}

/* Somebody else's machine: not this host, not a guest, not everybody. */
static int put_guest_proxy(struct hostconf *c, const char *what, const char *value, struct error *e)
{
	const char *colon = strrchr(value, ':');
	struct in_addr a;
	uint64_t port;
	char text[64];
	unsigned first;

	str_show_n(text, sizeof(text), value, strlen(value));
	if (!colon || str_format(c->guest_proxy, "%.*s", (int)(colon - value), value) < 0 ||
		inet_pton(AF_INET, c->guest_proxy, &a) != 1)
		return error_set(e, EINVAL, "%s: '%s' is not the address and port of a proxy, like 10.1.2.3:3128", what, text);
	first = ntohl(a.s_addr) >> 24;
	if (first == 0 || first == 127 || first >= 224 || ntohl(a.s_addr) >> 16 == 0xa9fe)
		return error_set(e, EINVAL, "%s: %s is no address of a machine that guests could reach", what, c->guest_proxy);
	if (parse_u64(colon + 1, what, 1, 65535, &port, e) < 0)
		return -EINVAL;
	c->guest_proxy_port = (uint32_t)port;
	return 0;
}

/* What only fits together or not once all is read. */
static int check_guest_proxy(const struct hostconf *c, struct error *e)
{
	size_t n = strlen(c->net_subnet);

	if (!c->guest_proxy[0])
		return 0;
	if (str_starts(c->guest_proxy, c->net_subnet) && c->guest_proxy[n] == '.')
		return error_set(e, EBADMSG, "BOXERY_GUEST_PROXY: %s is in the guests' own network: neither this host nor another guest can be "
			"their proxy", c->guest_proxy);
	if (c->net_filter == NET_FILTER_NWFILTER)
		return error_set(e, EBADMSG, "BOXERY_GUEST_PROXY needs BOXERY_NET_FILTER=nft");
	return 0;
}

/* Which of three words it is. */
static int put_word(const char *const words[static 3], unsigned *ret, const char *what, const char *value, struct error *e)
{
	char text[64];

	for (unsigned i = 0; i < 3; i++)
		if (str_equal(words[i], value)) {
			*ret = i;
			return 0;
		}
	str_show_n(text, sizeof(text), value, strlen(value));
	return error_set(
		e, EINVAL, "%s: '%s' is none of %s, %s and %s", what, text, words[0], words[1], words[2]);
}

static int put_virt(enum virt_mode *ret, const char *what, const char *value, struct error *e)
{
	static const char *const words[] = {[VIRT_AUTO] = "auto", [VIRT_KVM] = "kvm", [VIRT_QEMU] = "qemu"};
	unsigned v;
	int r = put_word(words, &v, what, value, e);

	if (r == 0)
		*ret = (enum virt_mode)v;
	return r;
}

static int put_net_filter(enum net_filter_mode *ret, const char *what, const char *value, struct error *e)
{
	static const char *const words[] = {[NET_FILTER_AUTO] = "auto", [NET_FILTER_NFT] = "nft",
		[NET_FILTER_NWFILTER] = "nwfilter"};
	unsigned v;
	int r = put_word(words, &v, what, value, e);

	if (r == 0)
		*ret = (enum net_filter_mode)v;
	return r;
}

static int on_setting(void *userdata, const char *key, const char *value, struct error *e)
{
	struct hostconf *c = userdata;
	uint64_t v;
	int r;

	if (str_equal(key, "BOXERY_LIBVIRT_URI"))
		return put_text(c->libvirt_uri, sizeof(c->libvirt_uri), key, value, e);
	if (str_equal(key, "BOXERY_IMAGE_DIR"))
		return put_path(c->image_dir, sizeof(c->image_dir), key, value, e);
	if (str_equal(key, "BOXERY_CACHE_DIR"))
		return put_path(c->cache_dir, sizeof(c->cache_dir), key, value, e);
	if (str_equal(key, "BOXERY_NET_ISOLATION"))
		return parse_bool(value, key, &c->net_isolation, e);
	if (str_equal(key, "BOXERY_NET_FILTER"))
		return put_net_filter(&c->net_filter, key, value, e);
	if (str_equal(key, "BOXERY_NET_SUBNET"))
		return put_subnet(c->net_subnet, sizeof(c->net_subnet), key, value, e);
	if (str_equal(key, "BOXERY_NET_NAME"))
		return put_net_name(c->net_name, sizeof(c->net_name), key, value, e);
	if (str_equal(key, "BOXERY_GUEST_PROXY"))
		return put_guest_proxy(c, key, value, e);
	if (str_equal(key, "BOXERY_VIRT"))
		return put_virt(&c->virt, key, value, e);
	if (str_equal(key, "BOXERY_START_TIMEOUT"))
		return parse_duration_ms(value, key, 1000, 24 * 3600 * 1000, &c->start_timeout_ms, e);
	if (str_equal(key, "BOXERY_PARALLEL")) {
		r = parse_u64(value, key, 1, 64, &v, e);
		if (r == 0)
			c->parallel = (uint32_t)v;
		return r;
	}
	if (str_equal(key, "BOXERY_CONSOLE_MAX")) {
		r = parse_size_mib(value, key, 1, 1024, &v, e);
		if (r == 0)
			c->console_max_mib = (uint32_t)v;
		return r;
	}
	if (str_equal(key, "BOXERY_EVIDENCE_MAX")) {
		r = parse_size_mib(value, key, 0, 1024 * 1024, &v, e);
		if (r == 0)
			c->evidence_max_mib = (uint32_t)v;
		return r;
	}
	return error_set(e, EINVAL, "%.100s is not a setting of this file", key);
}

static int put_places(struct hostconf *c, struct error *e)
{
	static const struct place config = {"BOXERY_CONFIG_DIR", SYSTEM_CONFIG, "XDG_CONFIG_HOME", ".config"};
	static const struct place state = {
		"BOXERY_STATE_DIR", "/var/lib/boxery/state", "XDG_STATE_HOME", ".local/state"};
	static const struct place runtime = {"BOXERY_RUNTIME_DIR", "/run/boxery", "XDG_RUNTIME_DIR", NULL};
	bool system = is_system();
	const char *cache = system ? NULL : xdg("XDG_CACHE_HOME");
	char path[512];
	int r;

	r = put_place(c->config_dir, sizeof(c->config_dir), &config, system, e);
	if (r == 0)
		r = put_place(c->state_dir, sizeof(c->state_dir), &state, system, e);
	if (r == 0)
		r = put_place(c->runtime_dir, sizeof(c->runtime_dir), &runtime, system, e);
	if (r == 0 && cache) {
		if (str_format(path, "%s/boxery", cache) < 0)
			return error_set(e, EINVAL, "XDG_CACHE_HOME: the path is too long");
		r = put_path(c->cache_dir, sizeof(c->cache_dir), "XDG_CACHE_HOME", path, e);
	}
	return r;
}

static int read_settings(struct hostconf *c, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	struct error local = ERROR_INIT;
	char path[300];
	size_t len;
	int r;

	r = str_format(path, "%s/host.env", c->config_dir);
	if (r < 0)
		return error_errno(e, -r, "%s", c->config_dir);
	r = file_read(AT_FDCWD, path, ENVFILE_MAX, &data, &len, &local);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return error_set(e, local.code, "%s", local.text);
	r = envfile_parse(path, data, len, on_setting, c, e);
	if (r < 0)
		return r;
	return check_guest_proxy(c, e) < 0 ? error_wrap(e, "%s", path) : 0;
}

int hostconf_load(struct hostconf *ret, struct error *e)
{
	struct hostconf c = {
		.image_dir = "/var/lib/boxery",
		.cache_dir = "/var/cache/boxery",
		.libvirt_uri = "qemu:///system",
		.net_name = "boxery",
		.net_subnet = "192.168.130",
		.net_isolation = true,
		.net_filter = NET_FILTER_AUTO,
		.virt = VIRT_AUTO,
		.parallel = 2,
		.console_max_mib = 8,
		.evidence_max_mib = 2048,
		.start_timeout_ms = 180 * 1000,
	};
	int r;

	r = put_places(&c, e);
	if (r == 0)
		r = read_settings(&c, e);
	if (r < 0)
		return r;
	/* The longest path the kernel takes for a socket is shorter than a path may be. */
	if (str_format_n(c.keeper_socket, sizeof(((struct sockaddr_un *)0)->sun_path), "%s/keeper.sock",
		    c.runtime_dir) < 0)
		return error_set(e, EINVAL,
			"%s/keeper.sock is longer than the 107 bytes a socket's path may have; set "
			"BOXERY_RUNTIME_DIR to a shorter one",
			c.runtime_dir);
	*ret = c;
	return 0;
}
