#include "boxery-config.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "linux/program.h"
#include "linux/spawn.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

extern char **environ;

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Folder of the running executable; right also after an update has replaced the file itself. */
static int own_folder(char *dst, size_t size)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	if (n < 0)
		return -errno;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return str_copy_n(dst, size, path);
}

int program_path(const char *name, char *dst, size_t size, struct error *e)
{
	char own[PATH_MAX] = "", path[PATH_MAX];
	const char *const folders[] = {own, BOXERY_LIBEXECDIR, BOXERY_BINDIR};

	if (name[0] == '\0' || strchr(name, '/'))
		return error_set(e, EINVAL, "'%s' is not the name of a program", name);
	(void)own_folder(own, sizeof(own));
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		if (!folders[i][0] || str_format(path, "%s/%s", folders[i], name) < 0 || !is_program(path))
			continue;
		if (str_copy_n(dst, size, path) < 0)
			return error_set(e, ENAMETOOLONG, "the path of %s is too long", name);
		return 0;
	}
	return error_set(e, ENOENT, "%s is missing; it should be in %s (is the installation complete?)", name,
		BOXERY_LIBEXECDIR);
}

const char *program_build_folder(void)
{
	static char own[PATH_MAX];
	char mark[PATH_MAX];

	if (own_folder(own, sizeof(own)) == 0 && str_format(mark, "%s/meson-private", own) == 0 && access(mark, F_OK) == 0)
		return own;
	return NULL;
}

const char *program_data_folder(void)
{
	/* Only a build tree may use the source's files: an installed program that runs as root must not look into a folder
	 * that somebody else may make. */
	return program_build_folder() ? BOXERY_SOURCE_DATADIR : BOXERY_DATADIR;
}

int program_search(const char *name, char *dst, size_t size, struct error *e)
{
	const char *p = getenv("PATH");
	char path[PATH_MAX];

	if (strchr(name, '/'))
		return str_copy_n(dst, size, name) < 0 ? error_errno(e, ENAMETOOLONG, "%s", name) : 0;
	if (program_path(name, dst, size, NULL) == 0)
		return 0;
	if (!p)
		p = PROGRAM_DEFAULT_PATH;
	while (*p) {
		size_t n = strcspn(p, ":");

		/* No relative entries: what runs must not depend on the folder a person stands in. */
		if (*p == '/' && str_format(path, "%.*s/%s", (int)n, p, name) == 0 && is_program(path))
			return str_copy_n(dst, size, path) < 0 ? error_errno(e, ENAMETOOLONG, "%s", name) : 0;
		p += n;
		p += *p == ':';
	}
	return error_set(e, ENOENT, "the program %s was not found; install it or correct PATH", name);
}

static bool passed_on(const char *variable)
{
	return str_starts(variable, "HOME=") || str_starts(variable, "PATH=") ||
	       str_starts(variable, "JOURNAL_STREAM=") || str_starts(variable, "BOXERY_") ||
	       str_starts(variable, "XDG_") || str_starts(variable, "CREDENTIALS_DIRECTORY=");
}

char **spawn_environment(void)
{
	static char lang[] = "LANG=C.UTF-8", path[] = "PATH=" PROGRAM_DEFAULT_PATH;
	size_t n = 0, all = 0;
	char **env;

	while (environ && environ[all])
		all++;
	env = calloc(all + 3, sizeof(*env));
	if (!env)
		return NULL;
	for (size_t i = 0; i < all; i++)
		if (passed_on(environ[i]))
			env[n++] = environ[i];
	if (!getenv("PATH"))
		env[n++] = path;
	env[n] = lang;
	return env;
}
