#ifndef BOXERY_TESTS_UNIT_PROBE_H
#define BOXERY_TESTS_UNIT_PROBE_H
/* A test that needs a child program is that program itself: run again with the name of a probe as its argument. */
#include "base/cleanup.h"
#include "linux/spawn.h"
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

extern char **environ;

static inline const char *probe_self(void)
{
	static char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[n > 0 ? n : 0] = '\0';
	return path;
}

/* "0 1 2 3 ", without the fd that does the listing. */
static inline int probe_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	const struct dirent *entry;
	bool open[64] = { false };

	if (!d)
		return 1;
	while ((entry = readdir(d))) {
		unsigned fd;

		if (sscanf(entry->d_name, "%u", &fd) == 1 && fd < 64 && (int)fd != dirfd(d))
			open[fd] = true;
	}
	(void)closedir(d);
	for (unsigned i = 0; i < 64; i++)
		if (open[i])
			printf("%u ", i);
	return 0;
}

static inline int probe_inodes(void)
{
	struct stat st;

	for (int i = 3; i < 8 && fstat(i, &st) == 0; i++)
		printf("%llu ", (unsigned long long)st.st_ino);
	return 0;
}

static inline int probe_signals(void)
{
	char line[200];
	FILE *f = fopen("/proc/self/status", "re");

	if (!f)
		return 1;
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, "SigBlk:", 7) == 0 || strncmp(line, "SigIgn:", 7) == 0 ||
				strncmp(line, "SigCgt:", 7) == 0)
			fputs(line, stdout);
	(void)fclose(f);
	return 0;
}

/* Starts a sleeper the way a service does, tells its pid, and dies without a chance to clean up. */
static inline int probe_parent(void)
{
	const char *argv[] = { "probe", "sleep", NULL };
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	struct child c = CHILD_INIT;
	struct error e = ERROR_INIT;

	o.program = probe_self();
	o.argv = argv;
	if (spawn(&o, &c, &e) < 0)
		return 1;
	printf("%d\n", (int)c.pid);
	(void)fflush(stdout);
	return raise(SIGKILL);
}

/* A grandchild that keeps our stdout and stderr open long after we are gone. */
static inline int probe_orphan(void)
{
	printf("before");
	(void)fflush(stdout);
	if (fork() == 0)
		(void)sleep(20);
	return 0;
}

static inline int probe_run(const char *name)
{
	char text[1000];

	if (strcmp(name, "fds") == 0)
		return probe_fds();
	if (strcmp(name, "inodes") == 0)
		return probe_inodes();
	if (strcmp(name, "signals") == 0)
		return probe_signals();
	if (strcmp(name, "parent") == 0)
		return probe_parent();
	if (strcmp(name, "orphan") == 0)
		return probe_orphan();
	if (strcmp(name, "session") == 0)
		return getsid(0) == getpid() ? 0 : 1;
	if (strcmp(name, "sleep") == 0)
		return (int)sleep(60);
	if (strcmp(name, "status7") == 0)
		return 7;
	if (strcmp(name, "abort") == 0)
		return raise(SIGTERM);
	if (strcmp(name, "cat") == 0) {
		while (fgets(text, sizeof(text), stdin))
			fputs(text, stdout);
		return 0;
	}
	if (strcmp(name, "env") == 0) {
		for (char **v = environ; *v; v++)
			puts(*v);
		return 0;
	}
	if (strcmp(name, "complain") == 0) {
		for (int i = 0; i < 1000; i++)
			(void)fprintf(stderr, "line %d\n", i);
		(void)fprintf(stderr, "the \x1b[31mlast line\n\n");
		return 3;
	}
	if (strcmp(name, "flood") == 0) {
		memset(text, 'x', sizeof(text));
		while (fwrite(text, sizeof(text), 1, stdout) == 1)
			;
	}
	return 99;
}
#endif
