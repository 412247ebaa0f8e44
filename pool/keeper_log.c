/*
 * The size of keeper.log while the keeper runs. Its children write to the same file, and the watch child does so for as long as
 * we live: so the file is copied and emptied in its place (all of us have it open for appending), not renamed. A line that a
 * child writes between the two is lost. Under systemd, or when somebody else gave us our stderr, the log is not ours to touch.
 */
#include "linux/log.h"
#include "pool/keeper.h"
#include "pool/log_file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

static int copy(int from, int to, off_t size, struct error *e)
{
	while (size > 0) {
		ssize_t n = sendfile(to, from, NULL, (size_t)size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(e, errno, KEEPER_LOG_OLD);
		if (n == 0)
			break;
		size -= n;
	}
	return 0;
}

static int turn_over(const struct keeper *k, off_t size, struct error *e)
{
	CLEANUP_FD int from = openat(k->state_dir, KEEPER_LOG, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP_FD int to = openat(k->state_dir, KEEPER_LOG_OLD, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = from < 0 || to < 0 ? error_errno(e, errno, KEEPER_LOG_OLD) : copy(from, to, size, e);

	/* Also when there was no room for the copy: the log is what may not grow. */
	if (ftruncate(STDERR_FILENO, 0) < 0 && r == 0)
		r = error_errno(e, errno, KEEPER_LOG);
	return r;
}

static int on_log_timer(sd_event_source *s, uint64_t us, void *userdata)
{
	struct keeper *k = userdata;
	struct error e = ERROR_INIT;
	struct stat ours, named;

	if (fstat(STDERR_FILENO, &ours) == 0 && S_ISREG(ours.st_mode) && ours.st_size > KEEPER_LOG_MAX &&
			fstatat(k->state_dir, KEEPER_LOG, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == ours.st_ino &&
			named.st_dev == ours.st_dev) {
		if (turn_over(k, ours.st_size, &e) < 0)
			log_warning("the log was too large and was emptied, but not kept: %s", e.text);
		else
			log_info("the log before this line is in " KEEPER_LOG_OLD);
	}
	keeper_log_watch(k);
	return 0;
}

void keeper_log_watch(struct keeper *k)
{
	struct error e = ERROR_INIT;

	k->log_timer = sd_event_source_disable_unref(k->log_timer);
	if (loop_timer(k->event, &k->log_timer, KEEPER_LOG_CHECK_MS, on_log_timer, k, &e) < 0)
		log_error("%s", e.text);
}
