#include "base/str.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for len more bytes and the NUL. */
static int reserve(struct buf *b, size_t len)
{
	size_t need, cap;
	char *p;

	if (b->max == SIZE_MAX || len > b->max - b->len)
		return -E2BIG;
	need = b->len + len + 1;
	if (need <= b->cap)
		return 0;
	cap = b->cap ? b->cap : 64;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	if (cap > b->max + 1)
		cap = b->max + 1;
	p = realloc(b->data, cap);
	if (!p)
		return -ENOMEM;
	b->data = p;
	b->cap = cap;
	return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
	int r = reserve(b, len);

	if (r < 0)
		return r;
	if (len > 0)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
	return 0;
}

int buf_addf(struct buf *b, const char *format, ...)
{
	va_list ap;
	int n, r;

	va_start(ap, format);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	r = reserve(b, (size_t)n);
	if (r < 0)
		return r;
	va_start(ap, format);
	(void)vsnprintf(b->data + b->len, (size_t)n + 1, format, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

void buf_free(struct buf *b)
{
	free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
}

/* Length of the UTF-8 character at s when XML 1.0 allows it (its production 2, Char), else 0. */
static size_t xml_char(const unsigned char *s)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t c;
	size_t n;

	if (s[0] < 0x80)
		return s[0] >= 0x20 || s[0] == '\t' || s[0] == '\n' || s[0] == '\r';
	if ((s[0] & 0xe0) == 0xc0) {
		n = 2;
		c = s[0] & 0x1f;
	} else if ((s[0] & 0xf0) == 0xe0) {
		n = 3;
		c = s[0] & 0x0f;
	} else if ((s[0] & 0xf8) == 0xf0) {
		n = 4;
		c = s[0] & 0x07;
	} else {
		return 0;
	}
	/* The terminating NUL is no continuation byte, so this stops before it runs past the end. */
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < smallest[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) || c == 0xfffe || c == 0xffff)
		return 0;
	return n;
}

int buf_add_xml(struct buf *b, const char *s)
{
	const size_t before = b->len;
	int r = buf_add(b, "", 0);

	while (r == 0 && *s) {
		size_t n = xml_char((const unsigned char *)s);

		if (n == 0)
			r = -EINVAL;
		else if (*s == '&')
			r = buf_add(b, "&amp;", 5);
		else if (*s == '<')
			r = buf_add(b, "&lt;", 4);
		else if (*s == '>')
			r = buf_add(b, "&gt;", 4);
		else if (*s == '"')
			r = buf_add(b, "&quot;", 6);
		else if (*s == '\'')
			r = buf_add(b, "&apos;", 6);
		else
			r = buf_add(b, s, n);
		s += n;
	}
	if (r < 0 && b->data) {
		b->len = before;
		b->data[before] = '\0';
	}
	return r;
}
