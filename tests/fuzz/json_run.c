/*
 * Runs a fuzz target over a corpus of JSON or other short texts, instead of fuzz.h's main: flipped bits alone
 * hardly ever leave JSON whole, so pieces of JSON are put in and left out as well. fuzz_x FOLDER [ROUNDS]:
 * each file as it is, its prefixes, and ROUNDS changed copies from a fixed seed. The input of a crash is left
 * in ./fuzz-failed.
 */
#include "fuzz.h"

#include "base/cleanup.h"
#include "linux/secret.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_MAX (256 * 1024)
#define CUTS_MAX 3000 /* files longer than that are cut at this many lengths */

static struct {
	uint8_t bytes[INPUT_MAX + 64];
	size_t len;
} now;

static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint32_t dice(uint32_t sides)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32) % sides;
}

static void on_abort(int signal_number)
{
	int fd = open("fuzz-failed", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd >= 0)
		(void)!write(fd, now.bytes, now.len);
	(void)signal(signal_number, SIG_DFL);
	(void)raise(signal_number);
}

/* The target gets a block of exactly this length, so that reading past it is seen. */
static void try(void)
{
	uint8_t *copy = malloc(now.len ? now.len : 1);
	if (!copy)
		abort();
	memcpy(copy, now.bytes, now.len);
	(void)LLVMFuzzerTestOneInput(copy, now.len);
	free(copy);
}

static void change(void)
{
	static const char *const pieces[] = {"null", "true", "-1", "1e999", "\"\"", "[", "]", "{", "}", ",",
		":", "\\u0000", "\xff", "\xf0\x9f\x98\x80", "18446744073709551616", "9223372036854775807",
		"\"id\":1", "\r\n", "\\", "\"", "/", "@"};
	size_t at = now.len ? dice((uint32_t)now.len) : 0;
	size_t n;

	switch (dice(5)) {
	case 0: /* one bit */
		if (now.len)
			now.bytes[at] ^= (uint8_t)(1u << dice(8));
		break;
	case 1: /* one byte */
		if (now.len)
			now.bytes[at] = (uint8_t)dice(256);
		break;
	case 2: /* something left out */
		n = now.len - at < 16 ? now.len - at : dice(16);
		memmove(now.bytes + at, now.bytes + at + n, now.len - at - n);
		now.len -= n;
		break;
	default: { /* something put in */
		const char *piece = pieces[dice(ARRAY_SIZE(pieces))];
		n = strlen(piece);
		if (now.len + n > INPUT_MAX)
			break;
		memmove(now.bytes + at + n, now.bytes + at, now.len - at);
		memcpy(now.bytes + at, piece, n);
		now.len += n;
		break;
	}
	}
}

static int run_file(int folder, const char *name, unsigned rounds)
{
	static uint8_t original[INPUT_MAX];
	CLEANUP_FD int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd >= 0 ? read(fd, original, sizeof(original)) : -1;
	if (len < 0) {
		perror(name);
		return -1;
	}
	size_t size = (size_t)len, step = size / CUTS_MAX + 1;
	for (size_t cut = 0; cut <= size; cut += step) {
		memcpy(now.bytes, original, cut);
		now.len = cut;
		try();
	}
	for (unsigned i = 0; i < rounds; i++) {
		memcpy(now.bytes, original, size);
		now.len = size;
		for (uint32_t n = 1 + dice(4); n > 0; n--)
			change();
		try();
	}
	memcpy(now.bytes, original, size);
	now.len = size;
	try();
	return 0;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 2000, files = 0;
	CLEANUP_DIR DIR *folder = argc > 1 ? opendir(argv[1]) : NULL;

	if (!folder || secret_init(NULL) < 0) {
		(void)fprintf(stderr, "usage: %s FOLDER [ROUNDS]\n", argv[0]);
		return 2;
	}
	(void)signal(SIGABRT, on_abort);
	(void)signal(SIGSEGV, on_abort);
	for (const struct dirent *d; (d = readdir(folder));) {
		if (d->d_name[0] == '.')
			continue;
		if (run_file(dirfd(folder), d->d_name, rounds) < 0)
			return 1;
		files++;
	}
	(void)printf("%u files, %u changes of each\n", files, rounds);
	return files > 0 ? 0 : 1;
}
