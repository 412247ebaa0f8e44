/* Layer files: whatever is in one, it is refused in words or it is what the header promises. */
#include "fuzz.h"
#include "layers/check.h"
#include "layers/layer.h"
#include <assert.h>
#include <errno.h>

static void holds(const struct layer *l)
{
	assert(name_valid(l->name));
	for (size_t i = 0; i < l->packages.n; i++)
		assert(check_package(l->packages.items[i], NULL) == 0);
	for (size_t i = 0; i < l->n_files; i++) {
		assert(check_target(l->files[i].dest, NULL) == 0 && !strstr(l->files[i].dest, "/../"));
		assert(!l->files[i].source != !l->files[i].content);
		assert(l->files[i].mode <= 07777);
		assert(check_owner(l->files[i].owner, NULL) == 0);
	}
	for (size_t i = 0; i < l->n_users; i++)
		assert(l->users[i].uid >= 1000 && check_account(l->users[i].name, NULL) == 0);
	if (l->download.url) {
		char url[1024];

		assert(l->download.sha256[LAYER_AMD64] || l->download.sha256[LAYER_ARM64]);
		if (layer_download_url(l, LAYER_AMD64, url, sizeof(url), NULL) == 0)
			assert(check_url(url, NULL) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error e = ERROR_INIT;
	struct layer *l = NULL;
	int r = layer_parse("fuzz.yaml", NULL, (const char *)data, size, &l, &e);

	if (r < 0) {
		assert(!l && e.code == -r && strncmp(e.text, "fuzz.yaml", 9) == 0 && !strchr(e.text, '\n'));
		return 0;
	}
	holds(l);
	(void)layer_free(l);
	return 0;
}
