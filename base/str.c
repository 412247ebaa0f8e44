#include "base/str.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

bool str_equal(const char *a, const char *b)
{
	if (!a || !b)
		return a == b;
	return strcmp(a, b) == 0;
}

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

int str_copy_n(char *dst, size_t size, const char *src)
{
	size_t n = strlen(src);

	if (n >= size)
		return -ENAMETOOLONG;
	memmove(dst, src, n + 1);
	return 0;
}

int str_format_n(char *dst, size_t size, const char *format, ...)
{
	va_list ap;
	int n;

	/* Measured first, so that a too long result leaves dst as it was. */
	va_start(ap, format);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n >= size)
		return -ENAMETOOLONG;
	va_start(ap, format);
	(void)vsnprintf(dst, size, format, ap);
	va_end(ap);
	return 0;
}

void str_show_n(char *dst, size_t size, const char *src, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	size_t out = 0;

	if (size == 0)
		return;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)src[i];
		bool plain = c >= 0x20 && c < 0x7f;

		/* Stops before an escape that would be cut in two. */
		if (out + (plain ? 1 : 4) >= size)
			break;
		if (plain) {
			dst[out++] = (char)c;
		} else {
			dst[out++] = '\\';
			dst[out++] = 'x';
			dst[out++] = hex[c >> 4];
			dst[out++] = hex[c & 15];
		}
	}
	dst[out] = '\0';
}

bool str_is_terminated(const char *s, size_t size)
{
	return memchr(s, '\0', size) != NULL;
}
