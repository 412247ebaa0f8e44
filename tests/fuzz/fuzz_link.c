/* The link's lines, and what `gh api --include` prints: nothing breaks, what is accepted is a message, and no text is left raw. */
#include "fuzz.h"

#include "controller/gh.h"
#include "controller/place.h"
#include "link/link.h"

#include <assert.h>
#include <errno.h>

static void line(const uint8_t *data, size_t size)
{
	struct link_buffer in = LINK_BUFFER_INIT;
	struct error e = ERROR_INIT;
	enum link_type type;
	json_t *m = NULL;
	int r = link_add(&in, data, size);

	while (r == 0 && (r = link_next(&in, &type, &m, &e)) == 1) {
		char shown[LINK_TEXT_MAX];

		assert(json_is_object(m) && type < LINK_TYPE_COUNT);
		link_shown(m, "text", shown, sizeof(shown));
		for (const char *c = shown; *c; c++)
			assert(*c >= ' ' && *c <= '~');
		assert(link_number(m, "status", 255) <= 255);
		if (type == LINK_HELLO && link_agree(m, "we", "they", &e) > 0)
			assert(link_number(m, "protocol", INT32_MAX) >= LINK_OLDEST);
		json_decref(m);
		r = 0;
	}
	assert(r == 0 || r == -EBADMSG || r == -ENOMEM);
	link_buffer_free(&in);
}

static void answer(const uint8_t *data, size_t size)
{
	struct gh_answer a;

	gh_understand((const char *)data, size, "", 1 << 8, &a);
	assert((a.fault == GH_OK) == (a.text[0] == '\0'));
	for (const char *c = a.text; *c; c++)
		assert(*c >= ' ' && *c <= '~');
	json_decref(a.body);
}

static void url(const uint8_t *data, size_t size)
{
	char text[256];
	struct place p;

	if (size >= sizeof(text))
		return;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	if (place_of_url(text, &p, NULL) == 0)
		assert(scope_check(p.scope, NULL) == 0 && p.hostname[0] != '-' && !strpbrk(p.hostname, " /@\n"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	line(data, size);
	answer(data, size);
	url(data, size);
	return 0;
}
