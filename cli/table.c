/* Tables for people. Cells are ASCII (json_text makes everything else visible), so a byte is a column of the terminal. */
#include "base/str.h"
#include "cli/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define TABLE_COLUMNS_MAX 16
#define COLUMN_WIDTH_MIN 6 /* a column is not shortened below this; a table that still does not fit is wrapped by the terminal */
#define GAP 2
#define ELLIPSIS "\xe2\x80\xa6"

struct table {
	size_t columns, rows, room;
	char **cells; /* rows * columns */
	bool pinned[TABLE_COLUMNS_MAX], states[TABLE_COLUMNS_MAX];
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

void table_pin(struct table *t, size_t column)
{
	if (t && column < t->columns)
		t->pinned[column] = true;
}

void table_states(struct table *t, size_t column)
{
	if (t && column < t->columns)
		t->states[column] = true;
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

void table_add_list(struct table *t, const json_t *list, const char *const *keys)
{
	json_t *row;
	size_t i;

	json_array_foreach(list, i, row)
	{
		char scratch[TABLE_COLUMNS_MAX][ERROR_TEXT_MAX];
		const char *cells[TABLE_COLUMNS_MAX];

		for (size_t k = 0; t && k < t->columns; k++)
			cells[k] = json_text(row, keys[k], scratch[k], sizeof(scratch[k]));
		table_add(t, cells);
	}
}

bool terminal_size(size_t *ret_columns, size_t *ret_rows)
{
	struct winsize size = {0};

	if (!isatty(STDOUT_FILENO))
		return false;
	(void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	*ret_columns = size.ws_col ? size.ws_col : 80;
	*ret_rows = size.ws_row ? size.ws_row : 24;
	return true;
}

const char *state_colour(const char *state)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	if (!isatty(STDOUT_FILENO) || (no && no[0]) || !term || str_equal(term, "dumb"))
		return "";
	if (str_equal(state, "READY"))
		return "\x1b[32m";
	return str_equal(state, "BROKEN") ? "\x1b[31m" : "";
}

/* Takes from the widest column until the table fits; pinned ones keep what they have. */
static void shrink(const struct table *t, size_t width[static TABLE_COLUMNS_MAX], size_t total)
{
	size_t sum = 0;

	for (size_t i = 0; i < t->columns; i++)
		sum += width[i] + (i ? GAP : 0);
	while (sum > total) {
		size_t widest = t->columns;

		for (size_t i = 0; i < t->columns; i++)
			if (!t->pinned[i] && width[i] > COLUMN_WIDTH_MIN &&
					(widest == t->columns || width[i] > width[widest]))
				widest = i;
		if (widest == t->columns)
			return;
		width[widest]--;
		sum--;
	}
}

static void print_cell(const struct table *t, size_t row, size_t column, size_t width)
{
	const char *cell = t->cells[row * t->columns + column];
	bool last = column + 1 == t->columns;
	const char *colour;
	size_t len;

	cell = cell ? cell : "";
	colour = row && t->states[column] ? state_colour(cell) : "";
	len = strlen(cell);
	printf("%s", colour);
	if (len > width)
		printf("%.*s" ELLIPSIS, (int)width - 1, cell);
	else
		printf("%s", cell);
	printf("%s%*s", colour[0] ? COLOUR_END : "", last || len >= width ? 0 : (int)(width - len), "");
	printf("%*s", last ? 0 : GAP, "");
}

void table_print_rows(struct table *t, size_t max)
{
	size_t width[TABLE_COLUMNS_MAX] = {0}, columns, lines, shown;

	if (!t)
		return;
	for (size_t i = 0; i < t->rows * t->columns; i++)
		if (t->cells[i] && strlen(t->cells[i]) > width[i % t->columns])
			width[i % t->columns] = strlen(t->cells[i]);
	if (terminal_size(&columns, &lines))
		shrink(t, width, columns);
	shown = t->rows > max ? (max ? max - 1 : 0) : t->rows;
	for (size_t row = 0; row < shown; row++) {
		for (size_t i = 0; i < t->columns; i++)
			print_cell(t, row, i, width[i]);
		(void)putchar('\n');
	}
	if (shown < t->rows)
		printf("... and %zu more\n", t->rows - shown);
}

void table_print(struct table *t)
{
	table_print_rows(t, SIZE_MAX);
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
