/* runners.yaml: refused in words with file and line, or within every limit of the header. */
#include "fuzz.h"
#include "manager/config.h"
#include <assert.h>
#include <errno.h>

static void holds(const struct runners_config *c)
{
	char labels[GITHUB_LABELS_MAX];

	assert(c->n_entries >= 1 && c->n_entries <= RUNNERS_ENTRIES_MAX);
	assert(c->poll_interval_ms >= 5000 && c->poll_interval_ms <= 300000);
	for (unsigned i = 0; i < c->n_entries; i++) {
		const struct runners_entry *entry = &c->entries[i];

		assert(scope_any_check(entry->scope, NULL) == 0 && name_valid(entry->pool));
		assert(entry->max >= 1 && entry->max <= 100 && entry->min_ready <= entry->max);
		assert(entry->start_timeout_ms >= 10000 && entry->idle_timeout_ms >= 10000 &&
			entry->job_timeout_ms >= 60000);
		/* The keeper must take a lease of this length. */
		assert(entry->start_timeout_ms + entry->idle_timeout_ms + entry->job_timeout_ms + 60000 <=
			KEEPER_TTL_MAX_MS);
		assert(entry->n_labels >= 1 && entry->n_labels <= RUNNERS_LABELS_MAX);
		for (unsigned l = 0; l < entry->n_labels; l++)
			assert(entry->labels[l][0] && !strpbrk(entry->labels[l], ", \"\\\n\t\x7f"));
		runners_entry_labels(entry, labels);
		assert(labels[0] && strlen(labels) < sizeof(labels));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runners_config *c = NULL;
	struct error e = ERROR_INIT;
	int r = runners_config_parse("fuzz.yaml", (const char *)data, size, &c, &e);

	if (r < 0) {
		assert(r == -EBADMSG && !c && e.code == EBADMSG);
		assert(strncmp(e.text, "fuzz.yaml:", 10) == 0 && !strchr(e.text, '\n') &&
			!strchr(e.text, '\x1b'));
		return 0;
	}
	holds(c);
	(void)runners_config_free(c);
	return 0;
}
