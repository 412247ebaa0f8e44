#ifndef BOXERY_TESTS_FUZZ_H
#define BOXERY_TESTS_FUZZ_H
/*
 * A fuzz target that is an ordinary test: with libFuzzer (-DWITH_LIBFUZZER, clang -fsanitize=fuzzer) only
 * LLVMFuzzerTestOneInput is there; otherwise main() gives it every file of the folders named, and of each: every
 * prefix of small ones, and a few thousand damaged copies from a fixed seed. The same run every time.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef WITH_LIBFUZZER
#define FUZZ_FILE_MAX 65536u
#define FUZZ_PREFIXES 2000u
#define FUZZ_DAMAGED 300u
static uint32_t fuzz_random_state = 1;

static uint32_t fuzz_random(void)
{
	fuzz_random_state = fuzz_random_state * 1664525u + 1013904223u;
	return fuzz_random_state >> 8;
}

/* A copy of exactly this size, so that a sanitizer sees one byte too far. */
static void fuzz_one(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	if (size)
		memcpy(copy, data, size);
	(void)LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void fuzz_damage(uint8_t *data, size_t size)
{
	static const char words[] = "{}[]:,-#&*!|>'\"%@`\n\t \\\0\x7f\xff\xc3";
	unsigned n = 1 + fuzz_random() % 4;

	while (size && n--) {
		size_t at = fuzz_random() % size;

		if (fuzz_random() % 2)
			data[at] = (uint8_t)words[fuzz_random() % (sizeof(words) - 1)];
		else
			data[at] ^= (uint8_t)(1u << fuzz_random() % 8);
	}
}

static unsigned fuzz_file(const char *path)
{
	static uint8_t data[FUZZ_FILE_MAX], copy[FUZZ_FILE_MAX];
	FILE *f = fopen(path, "rb");
	size_t size;

	if (!f)
		abort();
	size = fread(data, 1, sizeof(data), f);
	(void)fclose(f);
	fuzz_one(data, size);
	for (size_t i = 0; i < size && i < FUZZ_PREFIXES; i++)
		fuzz_one(data, i);
	for (unsigned i = 0; i < FUZZ_DAMAGED; i++) {
		memcpy(copy, data, size);
		fuzz_damage(copy, size);
		fuzz_one(copy, size);
	}
	return 1;
}

int main(int argc, char **argv)
{
	unsigned n = 0;

	for (int i = 1; i < argc; i++) {
		DIR *d = opendir(argv[i]);
		struct dirent *entry;

		if (!d) {
			(void)fprintf(stderr, "no corpus in %s\n", argv[i]);
			return 1;
		}
		while ((entry = readdir(d)) != NULL) {
			char path[4096];
			struct stat st;

			(void)snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
			if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < (off_t)FUZZ_FILE_MAX)
				n += fuzz_file(path);
		}
		(void)closedir(d);
	}
	(void)printf("%u files\n", n);
	return n ? 0 : 1;
}
#endif
#endif
