/* The parsers under all others: KEY=VALUE files, values, names, and what makes text fit for XML and for a terminal. */
#include "fuzz.h"
#include "base/parse.h"
#include "base/str.h"
#include "linux/file.h"
#include <assert.h>
#include <errno.h>

#define TEXT_MAX 65536

static int on_setting(void *userdata, const char *key, const char *value, struct error *e)
{
	assert(key[0] && !strchr(key, '=') && !strchr(key, '\n') && !strchr(value, '\n'));
	++*(unsigned *)userdata;
	return strcmp(value, "bad") == 0 ? error_set(e, EINVAL, "%s is bad", key) : 0;
}

static void check_failed(const struct error *e, int r)
{
	assert(r < 0 && e->code == -r && e->text[0] && !strchr(e->text, '\n') && !strchr(e->text, '\x1b'));
}

static void values(const char *text)
{
	struct error e = ERROR_INIT;
	uint64_t v;
	bool b;
	int r;

	r = parse_u64(text, "x", 5, 500, &v, &e);
	if (r == 0)
		assert(v >= 5 && v <= 500);
	else
		check_failed(&e, r);
	r = parse_duration_ms(text, "x", 1000, 86400000, &v, &e);
	if (r == 0)
		assert(v >= 1000 && v <= 86400000);
	else
		check_failed(&e, r);
	r = parse_size_mib(text, "x", 1, 1024, &v, &e);
	if (r == 0)
		assert(v >= 1 && v <= 1024);
	else
		check_failed(&e, r);
	r = parse_bool(text, "x", &b, &e);
	if (r < 0)
		check_failed(&e, r);
	r = name_check(text, "x", &e);
	if (r == 0)
		assert(strlen(text) < VM_NAME_MAX && !strchr(text, '/') && text[0] != '-' && text[0] != '.');
	else
		check_failed(&e, r);
	r = scope_check(text, &e);
	if (r == 0)
		assert(strlen(text) < SCOPE_MAX && strchr(text, '/') == strrchr(text, '/') &&
			strcmp(strchr(text, '/'), "/..") != 0);
	else
		check_failed(&e, r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error e = ERROR_INIT;
	struct buf b = BUF_INIT(TEXT_MAX);
	char *text = malloc(size + 1), shown[50];
	unsigned n = 0;
	int r;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	r = envfile_parse("x.env", (const char *)data, size, on_setting, &n, &e);
	if (r < 0)
		assert(e.code == -r && strncmp(e.text, "x.env:", 6) == 0 && !strchr(e.text, '\n'));
	values(text);
	r = buf_add_xml(&b, text);
	if (r == 0)
		assert(!strpbrk(b.data, "<>\"'\x1b") && b.len >= strlen(text));
	else
		assert(b.len == 0);
	str_show_n(shown, sizeof(shown), (const char *)data, size);
	for (const char *c = shown; *c; c++)
		assert(*c >= 0x20 && *c < 0x7f);
	buf_free(&b);
	free(text);
	return 0;
}
