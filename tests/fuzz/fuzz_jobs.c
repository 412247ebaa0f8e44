/* The lists of jobs and of runners: whoever may open a pull request writes parts of the one, others name their runners. */
#include "fuzz.h"
#include "manager/demand.h"
#include "manager/roster.h"
#include <assert.h>
#include <errno.h>

static void roster(const char *data, size_t size)
{
	struct roster *r = NULL;
	struct roster_view view;
	struct error e = ERROR_INIT;

	if (roster_parse(data, size, &r, &e) < 0) {
		assert(!r && e.code == EBADMSG && !strchr(e.text, '\n'));
		return;
	}
	if (roster_find(r, 0, "boxery-0123abcd-0123456789abcdef", &view) || roster_find(r, 23, "", &view))
		assert(view.id > 0);
	(void)roster_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runners_entry entry;
	struct error e = ERROR_INIT;
	struct jobs *j = NULL;
	struct job_view view;

	roster((const char *)data, size);
	runners_entry_defaults(&entry);
	if (jobs_parse((const char *)data, size, &j, &e) < 0) {
		assert(!j && e.code == EBADMSG && !strchr(e.text, '\n'));
		return 0;
	}
	assert(jobs_wanted(j, &entry) <= size);
	if (jobs_on_runner(j, "boxery-0123abcd-0123456789abcdef", &view))
		for (const char *p = view.name; *p; p++)
			assert(*p >= ' ' && *p <= '~');
	(void)jobs_free(j);
	return 0;
}
