#ifndef BOXERY_BASE_STR_H
#define BOXERY_BASE_STR_H
/* Bounded strings. Nothing here truncates silently: too long is -ENAMETOOLONG and the output is untouched. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

bool str_equal(const char *a, const char *b); /* NULL equals only NULL */
bool str_starts(const char *s, const char *prefix);
/* Copies into dst[size]; the sizeof forms below are the usual way to call these. */
int str_copy_n(char *dst, size_t size, const char *src);
int str_format_n(char *dst, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* sizeof, and a compile error for a pointer, whose size would be taken for that of the array behind it. */
#define STR_SIZEOF(dst)                                                                                                \
	(sizeof(dst) + 0 * sizeof(char[__builtin_types_compatible_p(__typeof__(dst), __typeof__(&(dst)[0])) ? -1 : 1]))
#define str_copy(dst, src) str_copy_n((dst), STR_SIZEOF(dst), (src))
#define str_format(dst, ...) str_format_n((dst), STR_SIZEOF(dst), __VA_ARGS__)
/* For text a remote wrote that is only shown: copies what fits (always terminated), control characters and
 * non-ASCII bytes made visible as \xNN. Never fails. */
void str_show_n(char *dst, size_t size, const char *src, size_t len);
/* True when the array holds a terminating NUL: the check for every string that came in a message. */
bool str_is_terminated(const char *s, size_t size);

/* A growing buffer that is born with its maximum. data is NUL-terminated once anything was added. */
struct buf {
	char *data;
	size_t len, max, cap;
};
#define BUF_INIT(maximum) ((struct buf){.max = (maximum)})
int buf_add(struct buf *b, const void *data, size_t len); /* 0, -E2BIG past the maximum, -ENOMEM */
int buf_addf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_free(struct buf *b); /* wipes nothing: secrets have a type of their own */
#define CLEANUP_BUF __attribute__((cleanup(buf_free)))
/* Adds s with the five XML special characters escaped; -EINVAL on a character XML 1.0 does not allow. */
int buf_add_xml(struct buf *b, const char *s);
#endif
