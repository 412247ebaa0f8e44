#ifndef BOXERY_GUEST_BEGIN_H
#define BOXERY_GUEST_BEGIN_H
/*
 * The program inside the guest that the host's calls run (CONTRACT.md): static, few system calls and no other program in the
 * call that begins a life, because on an emulated CPU each costs.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define RUN_DIR "/run/boxery"
#define INPUT_MAX (16 * 1024)
#define KEYS_MAX 16
#define SEED_SIZE 64
#define LISTING_MAX (16 * 1024) /* as BEGIN_SEEN_MAX on the host */

struct life {
	char *text; /* what the values point into */
	const char *generation, *address, *seed, *host_key, *keys[KEYS_MAX];
	size_t n_keys;
	uint64_t time_ns;
};

/* files.c */
/* A whole small file or pipe, NUL-terminated; what is longer than max is an error. */
int read_all(int fd, char **ret, size_t max, struct error *e);
int read_path(const char *path, char **ret, size_t max, struct error *e);
/* Beside it and renamed, so that a reader sees the old or the new; no sync: nothing of a guest outlives its life. */
int put_file(const char *path, const void *data, size_t len, unsigned mode, struct error *e);
/* The same, but a file that has this text already is left alone. */
int put_text(const char *path, const char *text, struct error *e);

/* secrets.c */
/* Mixes the seed into the kernel's random pool, credits it, and makes the generator take it at once. */
int reseed(const char *base64, struct error *e);
int put_host_key(const char *base64, char *ret_public, size_t size, struct error *e);
int put_authorized_keys(const struct life *l, struct error *e);

/* network.c */
int network_up(const char *address, struct error *e);

/* listing.c */
/* What is there, one line a thing, sorted, each once. At most LISTING_MAX bytes. */
int listing(struct buf *ret, struct error *e);

/* settle.c */
/* For a capture: waits until nothing happens, forgets caches, blanks free memory, lists what is there. Half a minute at most;
 * -EBUSY: what is there still changes. */
int settle(struct buf *ret, struct error *e);
#endif
