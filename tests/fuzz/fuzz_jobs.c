/* The list of jobs: whoever may open a pull request writes parts of it. */
#include "fuzz.h"
#include "manager/demand.h"
#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runners_entry entry;
	struct error e = ERROR_INIT;
	struct jobs *j = NULL;
	struct job_view view;

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
