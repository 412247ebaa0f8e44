#include "controller/hosts.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_NAME "controller.json"

static int folder_of(char dst[static PATH_MAX], struct error *e)
{
	const char *own = getenv("BOXERY_CONFIG_DIR"), *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int r;

	if (own && own[0])
		r = str_format_n(dst, PATH_MAX, "%s", own);
	else if (xdg && xdg[0])
		r = str_format_n(dst, PATH_MAX, "%s/boxery", xdg);
	else if (home && home[0])
		r = str_format_n(dst, PATH_MAX, "%s/.config/boxery", home);
	else
		return error_set(e, ENOENT, "HOME is not set");
	return r < 0 ? error_set(e, ENAMETOOLONG, "the configuration folder's path is too long") : 0;
}

int hosts_load(json_t **ret, struct error *e)
{
	char folder[PATH_MAX], path[PATH_MAX];
	CLEANUP_FD int fd = -1;
	json_error_t fault;
	json_t *document;
	struct stat st;

	if (folder_of(folder, e) < 0 || str_format(path, "%s/" FILE_NAME, folder) < 0)
		return e->code ? -e->code : error_set(e, ENAMETOOLONG, "%s: too long", folder);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would be waited for */
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
		*ret = json_object();
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(e, errno, "cannot read %s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(e, EBADMSG, "%s is no regular file: remove it, 'boxery setup HOST' makes a new one", path);
	document = json_loadfd(fd, JSON_REJECT_DUPLICATES, &fault);
	if (!json_is_object(document)) {
		json_decref(document);
		return error_set(e, EBADMSG, "%s:%d: not what 'boxery setup' writes (%s)", path, fault.line, fault.text);
	}
	*ret = document;
	return 0;
}

static int make_folders(char *path, struct error *e)
{
	for (char *slash = path + 1;; slash++) {
		char kept = *slash;

		if (kept != '/' && kept != '\0')
			continue;
		*slash = '\0';
		if (mkdir(path, 0700) < 0 && errno != EEXIST && errno != EISDIR)
			return error_errno(e, errno, "cannot make %s", path);
		*slash = kept;
		if (kept == '\0')
			return 0;
	}
}

/* The new name of a file is as durable as its folder is. */
static int sync_folder(const char *folder)
{
	CLEANUP_FD int fd = open(folder[0] ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -1 : fsync(fd);
}

/* Where the file is, and its folder: a link, as those who keep their settings elsewhere make it, stays one. */
static int find_file(char folder[static PATH_MAX], char path[static PATH_MAX], struct error *e)
{
	char real[PATH_MAX];
	struct stat st;

	if (folder_of(folder, e) < 0 || make_folders(folder, e) < 0)
		return -e->code;
	if (str_format_n(path, PATH_MAX, "%s/" FILE_NAME, folder) < 0)
		return error_set(e, ENAMETOOLONG, "%s: too long", folder);
	if (lstat(path, &st) < 0 || !S_ISLNK(st.st_mode))
		return 0;
	if (!realpath(path, real))
		return error_errno(e, errno, "%s is a symbolic link whose file cannot be found", path);
	(void)str_copy_n(path, PATH_MAX, real);
	(void)str_copy_n(folder, PATH_MAX, real);
	*strrchr(folder, '/') = '\0';
	return 0;
}

int hosts_save(json_t *document, struct error *e)
{
	char folder[PATH_MAX], path[PATH_MAX], fresh[PATH_MAX];
	CLEANUP_FD int fd = -1;

	if (find_file(folder, path, e) < 0)
		return -e->code;
	if (str_format(fresh, "%s/" FILE_NAME ".XXXXXX", folder) < 0)
		return error_set(e, ENAMETOOLONG, "%s: too long", folder);
	fd = mkstemp(fresh);
	if (fd < 0)
		return error_errno(e, errno, "cannot write in %s", folder);
	if (json_dumpfd(document, fd, JSON_INDENT(2) | JSON_SORT_KEYS) < 0 || write(fd, "\n", 1) != 1 || fsync(fd) < 0 ||
			rename(fresh, path) < 0) {
		int code = errno;

		(void)unlink(fresh);
		return error_errno(e, code, "cannot write %s", path);
	}
	if (sync_folder(folder) < 0)
		return error_errno(e, errno, "cannot make sure that %s is written", path);
	return 0;
}

/* A lock of POSIX: a home may be on NFS, and there is no flock() everywhere. The file stays, or two could hold two. */
int hosts_lock(int *ret, struct error *e)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char folder[PATH_MAX], path[PATH_MAX];
	CLEANUP_FD int fd = -1;

	if (folder_of(folder, e) < 0 || make_folders(folder, e) < 0)
		return -e->code;
	if (str_format(path, "%s/" FILE_NAME ".lock", folder) < 0)
		return error_set(e, ENAMETOOLONG, "%s: too long", folder);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(e, errno, "cannot write %s", path);
	while (fcntl(fd, F_SETLKW, &whole) < 0)
		if (errno != EINTR)
			return error_errno(e, errno, "cannot lock %s", path);
	*ret = TAKE_FD(fd);
	return 0;
}

int hosts_choose(const char *given, char dst[static FORWARD_HOST_MAX], struct error *e)
{
	const char *host = given ? given : getenv("BOXERY_HOST");
	json_t *document = NULL;
	int r = 0;

	/* A variable that is empty in somebody's script is no wish for the default. */
	if (given && forward_check_host(given, e) < 0)
		return -e->code;
	if (!host || !host[0]) {
		r = hosts_load(&document, e);
		host = json_string_value(json_object_get(document, "default"));
	}
	if (r == 0 && (!host || str_equal(host, HOSTS_THIS_MACHINE)))
		dst[0] = '\0';
	else if (r == 0)
		r = forward_check_host(host, e) < 0 ? -e->code : str_copy_n(dst, FORWARD_HOST_MAX, host);
	json_decref(document);
	return r;
}
