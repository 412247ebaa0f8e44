#include "layers/check.h"
#include "base/parse.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static bool made_of(const char *s, const char *set, size_t max)
{
	size_t n = strlen(s);

	return n > 0 && n <= max && strspn(s, set) == n;
}

/* {arch} may stand for Debian's word for the architecture, once. */
int check_package(const char *s, struct error *e)
{
	const char *arch = strstr(s, "{arch}");
	char name[120];

	if (str_format(name, "%.*sx%s", arch ? (int)(arch - s) : 0, s, arch ? arch + strlen("{arch}") : s) == 0 &&
			made_of(name, LOWER DIGITS "+.-", 100) && strchr(LOWER DIGITS, s[0]) && s[1])
		return 0;
	return error_set(e, EBADMSG, "'%.60s' is not the name of a Debian package", s);
}

int check_unit(const char *s, struct error *e)
{
	static const char *const kinds[] = { ".service", ".socket", ".timer", ".target", ".path", ".mount", ".automount" };
	const char *dot = strrchr(s, '.');

	if (dot && dot > s && s[0] != '-' && s[0] != '.' && made_of(s, LOWER UPPER DIGITS "@_.:\\-", 200))
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			if (str_equal(dot, kinds[i]))
				return 0;
	return error_set(e, EBADMSG, "'%.60s' is not the name of a systemd unit (like ssh.service)", s);
}

int check_account(const char *s, struct error *e)
{
	if (made_of(s, LOWER DIGITS "_-", 31) && strchr(LOWER "_", s[0]))
		return 0;
	return error_set(e, EBADMSG, "'%.60s' is not the name of a user or group", s);
}

int check_owner(const char *s, struct error *e)
{
	const char *colon = strchr(s, ':');
	char user[32];

	if (colon && str_format(user, "%.*s", (int)(colon - s), s) == 0 && check_account(user, NULL) == 0 &&
			check_account(colon + 1, NULL) == 0)
		return 0;
	return error_set(e, EBADMSG, "'%.60s' is not USER:GROUP", s);
}

/* A path of plain names: no empty part, no "." or "..", nothing that a shell or tar would take for more than a name. */
static bool plain_path(const char *s)
{
	if (!made_of(s, LOWER UPPER DIGITS "._@+:/-", 400))
		return false;
	while (s) {
		size_t n = strcspn(s, "/");

		if (n == 0 || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.') || s[0] == '-')
			return false;
		s = s[n] ? s + n + 1 : NULL;
	}
	return true;
}

int check_target(const char *s, struct error *e)
{
	if (s[0] == '/' && plain_path(s + 1))
		return 0;
	return error_set(e, EBADMSG, "'%.100s' is not an absolute path of plain names", s);
}

int check_source(const char *s, struct error *e)
{
	if (plain_path(s))
		return 0;
	return error_set(e, EBADMSG, "'%.100s' is not a path below the folder that holds the layers folder", s);
}

int check_version(const char *s, struct error *e)
{
	if (made_of(s, LOWER UPPER DIGITS ".+~_-", 60) && strchr(DIGITS, s[0]))
		return 0;
	return error_set(e, EBADMSG, "'%.60s' is not a version number", s);
}

bool host_is_loopback(const char *host)
{
	struct in_addr a;

	if (str_equal(host, "[::1]") || str_equal(host, "::1"))
		return true;
	return inet_pton(AF_INET, host, &a) == 1 && (ntohl(a.s_addr) >> 24) == 127;
}

static bool loopback_url(const char *after_scheme)
{
	char host[64];
	size_t n = strcspn(after_scheme, after_scheme[0] == '[' ? "/" : ":/");
	const char *close = strchr(after_scheme, ']');

	if (after_scheme[0] == '[' && close && (size_t)(close - after_scheme) < n)
		n = (size_t)(close - after_scheme) + 1;
	return str_format(host, "%.*s", (int)n, after_scheme) == 0 && host_is_loopback(host);
}

int check_url(const char *s, struct error *e)
{
	const char *rest = s;

	if (strlen(s) > 500 || strspn(s, LOWER UPPER DIGITS "-._~:/?[]!$&()*+,;=%{}'") != strlen(s))
		return error_set(e, EBADMSG, "'%.100s' is not a URL", s);
	if (str_starts(s, "http://")) {
		if (!loopback_url(s + strlen("http://")))
			return error_set(e, EBADMSG, "'%.100s': http is allowed only to a loopback address; use https", s);
	} else if (!str_starts(s, "https://") || s[strlen("https://")] == '\0' || s[strlen("https://")] == '/') {
		return error_set(e, EBADMSG, "'%.100s' is not an https URL", s);
	}
	while ((rest = strpbrk(rest, "{}")) != NULL) {
		if (str_starts(rest, "{version}"))
			rest += strlen("{version}");
		else if (str_starts(rest, "{arch}"))
			rest += strlen("{arch}");
		else
			return error_set(e, EBADMSG, "'%.100s': only {version} and {arch} may stand in braces", s);
	}
	return 0;
}

int check_proxy(const char *s, struct error *e)
{
	const char *rest = str_starts(s, "http://") ? s + strlen("http://") : str_starts(s, "https://") ? s + strlen("https://") : "";

	if (strchr(rest, '@'))
		return error_set(e, EBADMSG, "a proxy with a user or a password: every job could read it in the image");
	if (!rest[0] || strlen(s) > 200 || rest[0] == ':' || strspn(rest, LOWER UPPER DIGITS "-.:[]") != strlen(rest))
		return error_set(e, EBADMSG, "'%.100s' is not a proxy; write it like http://HOST:PORT", s);
	return 0;
}

int check_no_proxy(const char *s, struct error *e)
{
	if (!s[0] || strlen(s) > 1000 || strspn(s, LOWER UPPER DIGITS "-._:*/,[]") != strlen(s))
		return error_set(e, EBADMSG, "'%.100s' is not a list of hosts; write it like localhost,.example.org,192.0.2.1", s);
	return 0;
}

int check_sha256(const char *s, struct error *e)
{
	if (strlen(s) == 64 && made_of(s, DIGITS "abcdef", 64))
		return 0;
	return error_set(e, EBADMSG, "'%.70s' is not a SHA-256: 64 digits of 0-9 a-f", s);
}

int check_mode(const char *s, mode_t *ret, struct error *e)
{
	mode_t m = 0;

	if (!made_of(s, "01234567", 5) || strlen(s) < 3)
		return error_set(e, EBADMSG, "'%.60s' is not a mode in octal digits, like \"0644\"", s);
	for (; *s; s++)
		m = m * 8 + (mode_t)(*s - '0');
	if (m > 07777)
		return error_set(e, EBADMSG, "mode %o is larger than 7777", (unsigned)m);
	*ret = m;
	return 0;
}

int check_arch_word(const char *s, struct error *e)
{
	if (made_of(s, LOWER UPPER DIGITS "._-", 30))
		return 0;
	return error_set(e, EBADMSG, "'%.60s' is not a word for an architecture", s);
}
