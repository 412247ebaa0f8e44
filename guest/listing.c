/*
 * What makes up a running system, so that the host can compare it with what was there at the capture: who runs, who listens,
 * what is mounted, who may log in, what the kernel has loaded. Lines without numbers that change by themselves, so that two
 * restores of one image say the same:
 *
 *   module NAME                          process UID COMM EXE     (kernel threads have no exe)
 *   mount POINT TYPE SOURCE ROOT OPTIONS SUPER_OPTIONS            taint N
 *   port tcp|udp ADDRESS:PORT, port unix PATH, port packet|raw    user NAME UID GID HOME SHELL
 *   space KIB INODES                     free on /, for privileged users too
 *
 * A process that runs the same program as its parent is a fork of it (udev's workers) and is not listed beside it.
 */
#include "guest/begin.h"
#include "base/parse.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TABLE_MAX (1024 * 1024)
#define LINES_MAX 2048
#define LINE_MAX_SHOWN 1900 /* with what stands before it in an answer it fits into BEGIN_LINE_MAX of the host */
#define PROCESSES_MAX 1024
#define LISTENING_TCP "0A"
#define LISTENING_UNIX 0x00010000ul
#define RAW_DIR "/proc/net/"

struct lines {
	char *line[LINES_MAX];
	size_t n;
};

static void lines_free(struct lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->line[i]);
}

__attribute__((format(printf, 3, 4))) static int add(struct lines *l, struct error *e, const char *format, ...)
{
	char raw[LINE_MAX_SHOWN], shown[LINE_MAX_SHOWN];
	va_list ap;
	int n;

	if (l->n == LINES_MAX)
		return error_set(e, E2BIG, "more than %d things to list", LINES_MAX);
	va_start(ap, format);
	n = vsnprintf(raw, sizeof(raw), format, ap);
	va_end(ap);
	str_show_n(shown, sizeof(shown), raw, n < (int)sizeof(raw) ? (size_t)n : sizeof(raw) - 1);
	l->line[l->n] = strdup(shown);
	return l->line[l->n] ? (l->n++, 0) : error_errno(e, ENOMEM, "listing");
}

/* Calls one for each line of a file, without its newline. A file that is not there has none. */
static int each_line(const char *path, int (*one)(struct lines *l, char *line, const char *path, struct error *e),
	struct lines *l, struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	char *next;
	int r;

	if (access(path, F_OK) < 0)
		return 0;
	r = read_path(path, &text, TABLE_MAX, e);
	for (char *line = text; r == 0 && *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		r = one(l, line, path, e);
	}
	return r;
}

struct process {
	unsigned pid, parent, uid;
	char comm[32], exe[256];
};

/* 1: one with a program; 0: a kernel thread, or gone meanwhile. */
static int read_process(int proc, const char *name, struct process *ret)
{
	char path[64], stat_text[512];
	struct process p = {.pid = (unsigned)strtoul(name, NULL, 10)};
	CLEANUP_FD int fd = -1;
	struct stat st;
	char *from, *to;
	ssize_t n;

	(void)str_format(path, "%s/exe", name);
	n = readlinkat(proc, path, p.exe, sizeof(p.exe) - 1);
	if (n <= 0)
		return 0;
	(void)str_format(path, "%s/stat", name);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, stat_text, sizeof(stat_text) - 1);
	if (n <= 0 || fstat(fd, &st) < 0)
		return 0;
	stat_text[n] = '\0';
	from = strchr(stat_text, '(');
	to = strrchr(stat_text, ')');
	/* "PID (COMM) STATE PARENT ..." */
	if (!from || !to || to < from || strlen(to) < 5)
		return 0;
	*to = '\0';
	(void)str_copy(p.comm, from + 1);
	p.parent = (unsigned)strtoul(to + 4, NULL, 10);
	p.uid = st.st_uid;
	*ret = p;
	return 1;
}

static bool is_fork(const struct process *all, size_t n, const struct process *p)
{
	for (size_t i = 0; i < n; i++)
		if (all[i].pid == p->parent)
			return all[i].uid == p->uid && str_equal(all[i].exe, p->exe);
	return false;
}

static int add_processes(struct lines *l, struct error *e)
{
	CLEANUP_FREE struct process *all = calloc(PROCESSES_MAX, sizeof(*all));
	CLEANUP_DIR DIR *d = opendir("/proc");
	struct dirent *entry;
	size_t n = 0;
	int r = 0;

	if (!d || !all)
		return error_errno(e, errno, "/proc");
	while ((entry = readdir(d))) {
		uint64_t pid;

		if (parse_u64(entry->d_name, "pid", 1, INT32_MAX, &pid, NULL) < 0 || (pid_t)pid == getpid())
			continue;
		if (n == PROCESSES_MAX)
			return error_set(e, E2BIG, "more than %d processes", PROCESSES_MAX);
		n += (size_t)read_process(dirfd(d), entry->d_name, &all[n]);
	}
	for (size_t i = 0; r == 0 && i < n; i++)
		if (!is_fork(all, n, &all[i]))
			r = add(l, e, "process %u %s %s", all[i].uid, all[i].comm, all[i].exe);
	return r;
}

/* "SL: LOCAL:PORT REMOTE:PORT STATE ..."; an address is words of the CPU's own byte order. */
static int on_inet(struct lines *l, char *line, const char *path, struct error *e)
{
	const char *name = path + strlen(RAW_DIR);
	char local[40], address[INET6_ADDRSTRLEN] = "?", port[5], state[3];
	uint32_t word[4];
	bool six;

	if (sscanf(line, " %*u: %39[0-9A-F]:%4[0-9A-F] %*[0-9A-F]:%*[0-9A-F] %2[0-9A-F]", local, port, state) != 3)
		return 0;
	if (str_starts(name, "tcp") && !str_equal(state, LISTENING_TCP))
		return 0;
	six = strlen(local) == 32;
	for (size_t i = 0; i < (six ? 4u : 1u); i++) {
		char part[9] = "";

		memcpy(part, local + 8 * i, 8);
		word[i] = (uint32_t)strtoul(part, NULL, 16);
	}
	(void)inet_ntop(six ? AF_INET6 : AF_INET, word, address, sizeof(address));
	return add(l, e, six ? "port %s [%s]:%lu" : "port %s %s:%lu", name, address, strtoul(port, NULL, 16));
}

/* "Num RefCount Protocol Flags Type St Inode Path" */
static int on_unix(struct lines *l, char *line, const char *path, struct error *e)
{
	char flags[9];
	int at = 0;

	(void)path;
	if (sscanf(line, "%*[0-9a-f]: %*s %*s %8[0-9A-Fa-f] %*s %*s %*s %n", flags, &at) != 1 ||
		!(strtoul(flags, NULL, 16) & LISTENING_UNIX))
		return 0;
	return add(l, e, "port unix %s", at ? line + at : "");
}

static int on_packet(struct lines *l, char *line, const char *path, struct error *e)
{
	(void)path;
	return str_starts(line, "sk ") ? 0 : add(l, e, "port packet");
}

static int on_module(struct lines *l, char *line, const char *path, struct error *e)
{
	(void)path;
	return add(l, e, "module %.*s", (int)strcspn(line, " "), line);
}

/* "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [shared:N ...] - TYPE SOURCE SUPER_OPTIONS" */
static int on_mount(struct lines *l, char *line, const char *path, struct error *e)
{
	char root[256], point[512], options[256], type[64], source[256], super[512];
	const char *rest = strstr(line, " - ");

	(void)path;
	if (!rest || sscanf(line, "%*u %*u %*s %255s %511s %255s", root, point, options) != 3 ||
		sscanf(rest, " - %63s %255s %511s", type, source, super) != 3)
		return error_set(e, EBADMSG, "a mount cannot be read");
	return add(l, e, "mount %s %s %s %s %s %s", point, type, source, root, options, super);
}

/* "NAME:PASSWORD:UID:GID:GECOS:HOME:SHELL" */
static int on_user(struct lines *l, char *line, const char *path, struct error *e)
{
	char *field[7], *rest = line;

	(void)path;
	for (size_t i = 0; i < ARRAY_SIZE(field); i++) {
		field[i] = strsep(&rest, ":");
		if (!field[i])
			return add(l, e, "user ? %s", line);
	}
	return add(l, e, "user %s %s %s %s %s", field[0], field[2], field[3], field[5], field[6]);
}

static int on_taint(struct lines *l, char *line, const char *path, struct error *e)
{
	(void)path;
	return add(l, e, "taint %s", line);
}

static int add_space(struct lines *l, struct error *e)
{
	struct statvfs s;

	if (statvfs("/", &s) < 0)
		return error_errno(e, errno, "free space");
	return add(l, e, "space %llu %llu", (unsigned long long)s.f_bfree * s.f_frsize / 1024, (unsigned long long)s.f_ffree);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static const struct {
	const char *path;
	int (*one)(struct lines *l, char *line, const char *path, struct error *e);
} tables[] = {{RAW_DIR "tcp", on_inet}, {RAW_DIR "tcp6", on_inet}, {RAW_DIR "udp", on_inet}, {RAW_DIR "udp6", on_inet},
	{RAW_DIR "raw", on_inet}, {RAW_DIR "raw6", on_inet}, {RAW_DIR "packet", on_packet}, {RAW_DIR "unix", on_unix},
	{"/proc/self/mountinfo", on_mount}, {"/proc/modules", on_module}, {"/proc/sys/kernel/tainted", on_taint},
	{"/etc/passwd", on_user}};

int listing(struct buf *ret, struct error *e)
{
	CLEANUP(lines_free) struct lines l = {.n = 0};
	int r = add_processes(&l, e);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(tables); i++)
		r = each_line(tables[i].path, tables[i].one, &l, e);
	if (r == 0)
		r = add_space(&l, e);
	if (r < 0)
		return r;
	qsort(l.line, l.n, sizeof(l.line[0]), compare);
	for (size_t i = 0; r == 0 && i < l.n; i++)
		if (i == 0 || !str_equal(l.line[i], l.line[i - 1]))
			r = buf_addf(ret, "%s\n", l.line[i]);
	return r < 0 ? error_set(e, E2BIG, "what is there does not fit into %d bytes", LISTING_MAX) : 0;
}
