#include "tests/fault/fake_world.h"
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int world = -1;

void world_open(void)
{
	const char *path = getenv("BOXERY_TEST_WORLD");

	world = path ? open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC) : -1;
	if (world < 0)
		err(1, "BOXERY_TEST_WORLD");
}

bool world_read(const char *path, char *dst, unsigned size)
{
	int fd = openat(world, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, dst, size - 1);
	(void)close(fd);
	if (n < 0)
		return false;
	dst[n] = '\0';
	dst[strcspn(dst, "\n")] = '\0';
	return true;
}

/* Whole or not at all: the watch reads while we write. */
void world_write(const char *path, const char *text)
{
	char fresh[128];
	int fd;

	(void)snprintf(fresh, sizeof(fresh), ".new-%d", getpid());
	fd = openat(world, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, strlen(text)) < 0 || close(fd) < 0 || renameat(world, fresh, world, path) < 0)
		err(1, "%s", path);
}

void world_log(const char *file, const char *format, ...)
{
	char line[1200];
	va_list ap;
	int n, fd = openat(world, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	va_start(ap, format);
	n = vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		err(1, "%s", file);
	(void)close(fd);
}

static bool script_line(const char *path, char *dst, unsigned size)
{
	static const char once[] = "once ";
	const size_t skip = sizeof(once) - 1;

	if (!world_read(path, dst, size))
		return false;
	if (strncmp(dst, once, skip) == 0) {
		(void)unlinkat(world, path, 0);
		memmove(dst, dst + skip, strlen(dst) - skip + 1);
	}
	return true;
}

void world_script(const char *verb, const char *name, char *dst, unsigned size)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "script/%s-%s", verb, name);
	if (script_line(path, dst, size))
		return;
	(void)snprintf(path, sizeof(path), "script/%s", verb);
	if (!script_line(path, dst, size))
		(void)snprintf(dst, size, "ok");
}

uint64_t world_generation(const char *folder, const char *name)
{
	char path[256], line[LINE_MAX_];
	unsigned long long v = 0;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (!world_read(path, line, sizeof(line)) || sscanf(line, "%llu", &v) != 1)
		return 0;
	return v;
}

void pause_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}
