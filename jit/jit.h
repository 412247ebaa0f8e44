#ifndef BOXERY_JIT_JIT_H
#define BOXERY_JIT_JIT_H
/*
 * A JIT config: an opaque, single-use secret, one line of base64 (about 4 kB). Who may see its bytes: the process
 * that receives it from GitHub (boxery-github, or `once` on its stdin; at the person's machine gh and boxery) and boxery-deliver. Everyone between passes
 * the sealed memfd on and at most asks for its size. No function prints or compares one.
 */
#include "base/error.h"
#include <stddef.h>

#define JIT_MIN 64
#define JIT_MAX (64 * 1024) /* GitHub's are about 4.1 kB; 64 kB is what the facts page allows for */

/* Size and shape: base64 alphabet only, padded, decodes to a JSON object's first byte '{'. The text names the fault and
 * a position, never a byte of the content. */
int jit_check(const char *data, size_t len, struct error *e);
/* Checks and seals into a memfd; wipes data[len] in every case. */
int jit_seal(char *data, size_t len, int *ret_fd, struct error *e);
/* For those in between: is it a sealed memfd of plausible size? Reads nothing. */
int jit_fd_check(int fd, struct error *e);
#endif
