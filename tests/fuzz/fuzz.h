#ifndef BOXERY_TESTS_FUZZ_H
#define BOXERY_TESTS_FUZZ_H
/* What a fuzz target defines, by libFuzzer's convention; run.c drives it as an ordinary test. */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);
#endif
