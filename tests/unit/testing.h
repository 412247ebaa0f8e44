#ifndef BOXERY_TESTS_UNIT_TESTING_H
#define BOXERY_TESTS_UNIT_TESTING_H
/* cmocka with what it needs first, a folder per test that goes away again, and a check of a failure in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* expression must return -errno `code`, have put it into e, and its text must contain `words`. */
#define assert_fails(expression, code_, e_, words)                                                                     \
	do {                                                                                                           \
		error_clear(e_);                                                                                       \
		assert_int_equal((expression), -(code_));                                                              \
		assert_int_equal((e_)->code, (code_));                                                                 \
		if (!strstr((e_)->text, (words)))                                                                      \
			fail_msg("'%s' does not contain '%s'", (e_)->text, (words));                                   \
	} while (0)

#define assert_ok(expression, e_)                                                                                      \
	do {                                                                                                           \
		int r_ = (expression);                                                                                 \
		if (r_ < 0)                                                                                            \
			fail_msg("%s: %d: %s", #expression, r_, (e_)->text);                                           \
	} while (0)

struct test_folder {
	char path[64];
	int fd;
};

static inline int test_folder_setup(void **state)
{
	struct test_folder *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	(void)snprintf(f->path, sizeof(f->path), "/tmp/boxery-test-XXXXXX");
	if (!mkdtemp(f->path))
		return -1;
	f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = f;
	return f->fd < 0 ? -1 : 0;
}

static inline int test_folder_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline int test_folder_teardown(void **state)
{
	struct test_folder *f = *state;
	int r = nftw(f->path, test_folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);

	(void)close(f->fd);
	free(f);
	return r;
}

static inline unsigned test_count_entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n - 2;
}

static inline unsigned test_count_fds(void)
{
	return test_count_entries("/proc/self/fd");
}
#endif
