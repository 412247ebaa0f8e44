#include "base/parse.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 64

struct unit {
	const char *suffix;
	uint64_t factor;
};

static const char *shown(const char *s, char buf[static SHOWN_MAX])
{
	str_show_n(buf, SHOWN_MAX, s, strlen(s));
	return buf;
}

/* Digits, then the rest in *ret_rest. false: no digit, or more than 64 bits. */
static bool digits(const char *s, uint64_t *ret, const char **ret_rest)
{
	uint64_t v = 0;
	const char *p = s;

	for (; *p >= '0' && *p <= '9'; p++) {
		uint64_t d = (uint64_t)(*p - '0');

		if (v > (UINT64_MAX - d) / 10)
			return false;
		v = v * 10 + d;
	}
	if (p == s)
		return false;
	*ret = v;
	*ret_rest = p;
	return true;
}

static bool with_unit(const char *s, const struct unit *units, size_t n_units, uint64_t *ret)
{
	const char *rest;
	uint64_t v;

	if (!digits(s, &v, &rest))
		return false;
	for (size_t i = 0; i < n_units; i++) {
		if (strcmp(rest, units[i].suffix) != 0)
			continue;
		if (v > UINT64_MAX / units[i].factor)
			return false;
		*ret = v * units[i].factor;
		return true;
	}
	return false;
}

int parse_u64(const char *s, const char *what, uint64_t min, uint64_t max, uint64_t *ret, struct error *e)
{
	char text[SHOWN_MAX];
	const char *rest;
	uint64_t v;

	if (!digits(s, &v, &rest) || *rest || v < min || v > max)
		return error_set(e, EINVAL, "%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64,
			what, shown(s, text), min, max);
	*ret = v;
	return 0;
}

int parse_bool(const char *s, const char *what, bool *ret, struct error *e)
{
	static const char *const yes[] = {"true", "yes", "on", "1"};
	static const char *const no[] = {"false", "no", "off", "0"};
	char text[SHOWN_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		if (strcmp(s, yes[i]) == 0) {
			*ret = true;
			return 0;
		}
		if (strcmp(s, no[i]) == 0) {
			*ret = false;
			return 0;
		}
	}
	return error_set(e, EINVAL, "%s: '%s' is neither on nor off", what, shown(s, text));
}

static const struct unit duration_units[] = {
	{"", 1000},
	{"s", 1000},
	{"m", 60000},
	{"h", 3600000},
	{"d", 86400000},
};

/* The largest unit that shows the value without a remainder, so that a limit reads as it was meant. */
static const char *duration_text(uint64_t ms, char dst[static SHOWN_MAX])
{
	for (size_t i = ARRAY_SIZE(duration_units); i-- > 1;)
		if (ms % duration_units[i].factor == 0 && (ms > 0 || i == 1)) {
			(void)snprintf(dst, SHOWN_MAX, "%" PRIu64 "%s", ms / duration_units[i].factor,
				duration_units[i].suffix);
			return dst;
		}
	(void)snprintf(dst, SHOWN_MAX, "%" PRIu64 ".%03us", ms / 1000, (unsigned)(ms % 1000));
	return dst;
}

int parse_duration_ms(
	const char *s, const char *what, uint64_t min_ms, uint64_t max_ms, uint64_t *ret, struct error *e)
{
	char text[SHOWN_MAX], lowest[SHOWN_MAX], highest[SHOWN_MAX];
	uint64_t v;

	if (!with_unit(s, duration_units, ARRAY_SIZE(duration_units), &v))
		return error_set(e, EINVAL, "%s: '%s' is not a duration; write it like 90s, 10m, 2h or 1d, from %s to %s",
			what, shown(s, text), duration_text(min_ms, lowest), duration_text(max_ms, highest));
	if (v < min_ms || v > max_ms)
		return error_set(e, EINVAL, "%s: '%s' is not between %s and %s", what, shown(s, text),
			duration_text(min_ms, lowest), duration_text(max_ms, highest));
	*ret = v;
	return 0;
}

int parse_size_mib(
	const char *s, const char *what, uint64_t min, uint64_t max, uint64_t *ret, struct error *e)
{
	static const struct unit units[] = {{"", 1}, {"M", 1}, {"G", 1024}, {"T", 1024 * 1024}};
	char text[SHOWN_MAX];
	uint64_t v;

	if (!with_unit(s, units, ARRAY_SIZE(units), &v))
		return error_set(
			e, EINVAL, "%s: '%s' is not a size; write it like 2048M or 2G", what, shown(s, text));
	if (v < min || v > max)
		return error_set(e, EINVAL, "%s: '%s' is not between %" PRIu64 "M and %" PRIu64 "M", what,
			shown(s, text), min, max);
	*ret = v;
	return 0;
}

static bool is_lower_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_alnum(char c)
{
	return is_lower_alnum(c) || (c >= 'A' && c <= 'Z');
}

bool name_valid(const char *s)
{
	size_t n = strnlen(s, VM_NAME_MAX);

	if (n == 0 || n >= VM_NAME_MAX || s[0] == '-' || s[n - 1] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_lower_alnum(s[i]) && s[i] != '-')
			return false;
	return true;
}

int name_check(const char *s, const char *what, struct error *e)
{
	char text[SHOWN_MAX];

	if (name_valid(s))
		return 0;
	return error_set(e, EINVAL,
		"%s: '%s' is not a name; use 1 to %d of a-z, 0-9 and '-', with no '-' at either end", what,
		shown(s, text), VM_NAME_MAX - 1);
}

#define OWNER_MAX 39 /* characters of a login */

static size_t owner_length(const char *s)
{
	size_t n = 0;

	while (n <= OWNER_MAX && (is_alnum(s[n]) || s[n] == '-'))
		n++;
	return n;
}

int org_check(const char *s, struct error *e)
{
	char text[SHOWN_MAX];
	size_t n = owner_length(s);

	if (n >= 1 && n <= OWNER_MAX && s[n] == '\0')
		return 0;
	return error_set(e, EINVAL, "'%s' is not the name of an organization; it has letters, digits and '-'",
		shown(s, text));
}

bool scope_is_org(const char *s)
{
	return strchr(s, '/') == NULL;
}

int scope_any_check(const char *s, struct error *e)
{
	return scope_is_org(s) && s[0] ? org_check(s, e) : scope_check(s, e);
}

int scope_check(const char *s, struct error *e)
{
	char text[SHOWN_MAX];
	size_t owner = owner_length(s), repo = 0;
	const char *r;

	if (owner >= 1 && owner <= OWNER_MAX && s[owner] == '/') {
		r = s + owner + 1;
		while (repo <= 100 &&
			(is_alnum(r[repo]) || r[repo] == '.' || r[repo] == '_' || r[repo] == '-'))
			repo++;
		if (repo >= 1 && repo <= 100 && r[repo] == '\0' && strcmp(r, ".") != 0 &&
			strcmp(r, "..") != 0)
			return 0;
	}
	return error_set(e, EINVAL, "'%s' is not a repository; write it as OWNER/REPO", shown(s, text));
}

bool parse_json_deep(const char *text, size_t len, unsigned max)
{
	unsigned depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > max)
				return true;
		} else if ((c == '}' || c == ']') && depth > 0) {
			depth--;
		}
	}
	return false;
}
