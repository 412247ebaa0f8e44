/* Tables for people. */
#include "base/str.h"
#include "cli/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define TABLE_COLUMNS_MAX 12

struct table {
	size_t columns, rows, room;
	char **cells; /* rows * columns */
};

struct table *table_free(struct table *t)
{
	if (!t)
		return NULL;
	for (size_t i = 0; i < t->rows * t->columns; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
	return NULL;
}

struct table *table_new(size_t columns, const char *const *titles)
{
	struct table *t = columns <= TABLE_COLUMNS_MAX ? calloc(1, sizeof(*t)) : NULL;

	if (t) {
		t->columns = columns;
		table_add(t, titles);
	}
	return t;
}

void table_add(struct table *t, const char *const *cells)
{
	if (!t)
		return;
	if (t->rows == t->room) {
		size_t room = t->room ? 2 * t->room : 16;
		char **grown = reallocarray(t->cells, room * t->columns, sizeof(*grown));

		if (!grown)
			return;
		t->cells = grown;
		t->room = room;
	}
	for (size_t i = 0; i < t->columns; i++)
		t->cells[t->rows * t->columns + i] = strdup(cells[i] && cells[i][0] ? cells[i] : "-");
	t->rows++;
}

static size_t terminal_width(void)
{
	struct winsize size;

	return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 0;
}

void table_print(struct table *t)
{
	size_t width[TABLE_COLUMNS_MAX] = {0}, total = terminal_width(), used;

	if (!t)
		return;
	for (size_t i = 0; i < t->rows * t->columns; i++)
		if (t->cells[i] && strlen(t->cells[i]) > width[i % t->columns])
			width[i % t->columns] = strlen(t->cells[i]);
	for (size_t row = 0; row < t->rows; row++) {
		used = 0;
		for (size_t i = 0; i < t->columns; i++) {
			const char *cell = t->cells[row * t->columns + i] ? t->cells[row * t->columns + i] : "";

			if (i + 1 < t->columns) {
				printf("%-*s  ", (int)width[i], cell);
				used += width[i] + 2;
			} else if (total > used) {
				printf("%.*s\n", (int)(total - used), cell);
			} else {
				printf("%s\n", cell);
			}
		}
	}
}

const char *json_text(const json_t *object, const char *key, char *scratch, size_t size)
{
	const json_t *value = json_object_get(object, key);

	scratch[0] = '\0';
	if (json_is_string(value))
		str_show_n(scratch, size, json_string_value(value), json_string_length(value));
	else if (json_is_integer(value))
		(void)str_format_n(scratch, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_real(value))
		(void)str_format_n(scratch, size, "%.3f", json_real_value(value));
	else if (json_is_boolean(value))
		(void)str_format_n(scratch, size, "%s", json_is_true(value) ? "yes" : "no");
	return scratch;
}
