#include "linux/clock.h"
#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"

static uint64_t clock_us(clockid_t id)
{
	struct timespec ts = {0};

	/* Cannot fail for these clocks on a kernel that has pidfds. */
	(void)clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t clock_boot_us(void)
{
	return clock_us(CLOCK_BOOTTIME);
}

uint64_t clock_wall_us(void)
{
	return clock_us(CLOCK_REALTIME);
}

int clock_boot_id(char ret[static BOOT_ID_MAX], struct error *e)
{
	CLEANUP_FD int fd = open(BOOT_ID_FILE, O_RDONLY | O_CLOEXEC);
	char text[BOOT_ID_MAX];
	ssize_t n;

	if (fd < 0)
		return error_errno(e, errno, "cannot open %s", BOOT_ID_FILE);
	n = read(fd, text, sizeof(text));
	if (n < 0)
		return error_errno(e, errno, "cannot read %s", BOOT_ID_FILE);
	if (n < BOOT_ID_MAX - 1 || strspn(text, "0123456789abcdef-") < BOOT_ID_MAX - 1)
		return error_set(e, EIO, "%s does not hold a boot id", BOOT_ID_FILE);
	memcpy(ret, text, BOOT_ID_MAX - 1);
	ret[BOOT_ID_MAX - 1] = '\0';
	return 0;
}

void clock_wall_text(uint64_t wall_us, char *dst, size_t size)
{
	time_t t = (time_t)(wall_us / 1000000u);
	struct tm tm;

	if (size == 0)
		return;
	if (!gmtime_r(&t, &tm) || strftime(dst, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		dst[0] = '\0';
}

int clock_wall_parse(const char *text, uint64_t *ret_s)
{
	struct tm tm = {0};
	const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	time_t t;

	if (end && *end == '.')
		end += 1 + strspn(end + 1, "0123456789");
	if (!end || end[0] != 'Z' || end[1] != '\0')
		return -EINVAL;
	t = timegm(&tm);
	if (t <= 0)
		return -EINVAL;
	*ret_s = (uint64_t)t;
	return 0;
}
