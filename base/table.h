#ifndef BOXERY_BASE_TABLE_H
#define BOXERY_BASE_TABLE_H
/*
 * Enum and string table from one list. STRING_TABLE(prefix, type, names, count) defines prefix_to_string()
 * (NULL out of range) and prefix_from_string() (-EINVAL when unknown), and asserts that the table is whole.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define STRING_TABLE(prefix, type, names, count)                                                                       \
	_Static_assert(sizeof(names) / sizeof((names)[0]) == (count), #prefix ": table and enum differ");              \
	const char *prefix##_to_string(type v)                                                                         \
	{                                                                                                              \
		return (size_t)v < (size_t)(count) ? names[v] : NULL;                                                  \
	}                                                                                                              \
	int prefix##_from_string(const char *s, type *ret)                                                             \
	{                                                                                                              \
		for (size_t i = 0; s && i < (size_t)(count); i++)                                                      \
			if (names[i] && strcmp(names[i], s) == 0) {                                                    \
				*ret = (type)i;                                                                        \
				return 0;                                                                              \
			}                                                                                              \
		return -EINVAL;                                                                                        \
	}                                                                                                              \
	struct prefix##_needs_semicolon
#endif
