#include "linux/memfd.h"
#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

int memfd_sealed_new(const char *label, const void *data, size_t len, int *ret_fd, struct error *e)
{
	CLEANUP_FD int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const char *p = data;

	if (fd < 0)
		return error_errno(e, errno, "cannot make a memory file");
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(fd, p + done, len - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_errno(e, n < 0 ? errno : EIO, "cannot fill a memory file");
		done += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return error_errno(e, errno, "cannot seal a memory file");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int memfd_sealed_check(int fd, size_t min, size_t max, size_t *ret_len, struct error *e)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & SEALS) != SEALS)
		return error_set(e, EBADMSG, "a received file is not a sealed memory file");
	if (fstat(fd, &st) < 0)
		return error_errno(e, errno, "cannot look at a received memory file");
	if (st.st_size < 0 || (uint64_t)st.st_size < min || (uint64_t)st.st_size > max)
		return error_set(e, EBADMSG, "a received memory file has %lld bytes, allowed are %zu to %zu",
			(long long)st.st_size, min, max);
	if (ret_len)
		*ret_len = (size_t)st.st_size;
	return 0;
}

int memfd_read(int fd, void *dst, size_t len, struct error *e)
{
	char *p = dst;

	for (size_t done = 0; done < len;) {
		ssize_t n = pread(fd, p + done, len - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(e, errno, "cannot read a file that was handed over");
		if (n == 0)
			return error_set(e, EBADMSG, "a file that was handed over ended early");
		done += (size_t)n;
	}
	return 0;
}
