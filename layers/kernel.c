/*
 * A bzImage carries the kernel proper as a compressed ELF file. QEMU can start that file directly (PVH), which saves the
 * decompression: nothing on real hardware, 3 seconds on an emulated CPU. The place of the payload is in the setup header
 * (Linux' Documentation/x86/boot.rst, protocol 2.08): setup_sects 0x1f1, "HdrS" 0x202, version 0x206,
 * payload_offset 0x248 and payload_length 0x24c, counted from the end of the setup sectors. The payload's last four
 * bytes are the size of what was compressed. The kernel's address randomisation is part of the decompressor and lost.
 */
#include "base/str.h"
#include "layers/build.h"
#include "linux/file.h"
#include "linux/spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define IMAGE_MAX (256u << 20)
#define SECTOR 512u

static uint32_t le32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int find_payload(const unsigned char *d, size_t len, size_t *ret_at, size_t *ret_len, struct error *e)
{
	size_t setup, at, n;

	if (len < 0x250 || memcmp(d + 0x202, "HdrS", 4) != 0 || (d[0x206] | d[0x207] << 8) < 0x208)
		return error_set(e, EOPNOTSUPP, "not a bzImage of boot protocol 2.08 or later");
	setup = d[0x1f1] ? d[0x1f1] : 4;
	at = (setup + 1) * SECTOR + le32(d + 0x248);
	n = le32(d + 0x24c);
	if (n < 16 || at > len || n > len - at)
		return error_set(e, EOPNOTSUPP, "the bzImage's header does not fit its size");
	*ret_at = at;
	*ret_len = n;
	return 0;
}

static const char *const *program_for(const unsigned char *payload)
{
	static const char *const xz[] = { "xz", "-dc", "--single-stream", NULL };
	static const char *const zstd[] = { "zstd", "-dcq", NULL };
	static const char *const lz4[] = { "lz4", "-dcq", NULL };
	static const char *const gzip[] = { "gzip", "-dcq", NULL };

	if (memcmp(payload, "\xfd" "7zXZ\0", 6) == 0)
		return xz;
	if (memcmp(payload, "\x28\xb5\x2f\xfd", 4) == 0)
		return zstd;
	if (memcmp(payload, "\x02\x21\x4c\x18", 4) == 0)
		return lz4;
	return memcmp(payload, "\x1f\x8b\x08", 3) == 0 ? gzip : NULL;
}

static int decompress(const unsigned char *payload, size_t len, int out, struct error *e)
{
	CLEANUP_FD int in = memfd_create("kernel", MFD_CLOEXEC);
	CLEANUP_FD int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
	CLEANUP(child_kill) struct child c = CHILD_INIT;
	struct spawn_options o = SPAWN_OPTIONS_INIT;
	int r;

	o.argv = program_for(payload);
	if (!o.argv)
		return error_set(e, EOPNOTSUPP, "the kernel is compressed in a way that is not known here");
	if (in < 0 || quiet < 0 || write(in, payload, len) != (ssize_t)len || lseek(in, 0, SEEK_SET) < 0)
		return error_errno(e, errno ? errno : EIO, "cannot hand over the kernel");
	o.program = o.argv[0];
	o.search_path = true;
	o.stdin_fd = in;
	o.stdout_fd = out;
	o.stderr_fd = quiet; /* each of them complains of the four bytes behind its data; the size is checked below */
	r = spawn(&o, &c, e);
	return r < 0 ? error_set(e, EOPNOTSUPP, "%s is not installed", o.argv[0]) :
		       spawn_wait(&c, BUILD_TOOL_TIMEOUT_MS, NULL, e);
}

int kernel_unpack(const char *bzimage, const char *vmlinux, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	CLEANUP_FD int out = -1;
	const unsigned char *d;
	unsigned char magic[4];
	size_t len, at, n;
	struct stat st;
	int r = file_read(AT_FDCWD, bzimage, IMAGE_MAX, &data, &len, e);

	if (r < 0)
		return r;
	d = (const unsigned char *)data;
	r = find_payload(d, len, &at, &n, e);
	if (r < 0)
		return r;
	out = open(vmlinux, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (out < 0)
		return error_errno(e, errno, "cannot make %s", vmlinux);
	r = decompress(d + at, n, out, e);
	if (r == 0 && (fstat(out, &st) < 0 || st.st_size != (off_t)le32(d + at + n - 4) ||
				      pread(out, magic, 4, 0) != 4 || memcmp(magic, "\x7f" "ELF", 4) != 0))
		r = error_set(e, EOPNOTSUPP, "what is in the bzImage is not a whole ELF file");
	if (r < 0)
		(void)unlink(vmlinux);
	return r;
}
