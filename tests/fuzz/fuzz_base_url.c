/* BOXERY_GITHUB_URL: whatever passes begins with https:// or is a loopback address, and passes again
 * unchanged. */
#include "fuzz.h"

#include "base/str.h"
#include "github/credential.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	char kept[GITHUB_URL_MAX], again[GITHUB_URL_MAX];
	char *text = malloc(len + 1);
	assert(text);
	if (len)
		memcpy(text, bytes, len);
	text[len] = '\0';
	struct error e = ERROR_INIT;
	if (base_url_check(text, kept, sizeof(kept), &e) == 0) {
		assert(str_starts(kept, "https://") || str_starts(kept, "http://127.") ||
			str_starts(kept, "http://[::1]"));
		assert(!strpbrk(kept, "@?#\\ \r\n\t%"));
		assert(base_url_check(kept, again, sizeof(again), NULL) == 0 && str_equal(kept, again));
	} else {
		assert(e.text[0] != '\0');
	}
	free(text);
	return 0;
}
