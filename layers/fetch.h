#ifndef BOXERY_LAYERS_FETCH_H
#define BOXERY_LAYERS_FETCH_H
/*
 * One download into a cache that is keyed by content: CACHE/sha256/HEX. What is there is verified again and used without
 * the network; what is fetched is written beside it (.HEX.part, locked), verified while it comes, synced and renamed.
 * Nothing that was not verified ever has the final name, and a failed download leaves no file.
 *
 * https only, also in redirects; http only when the URL's host is a loopback address, and then without redirects.
 * No credential is ever sent: a URL with user information is refused, .netrc is not read.
 */
#include "base/error.h"
#include "layers/layer.h"
#include <stdint.h>

#define FETCH_SIZE_MAX_DEFAULT (2ull << 30)
#define FETCH_CONNECT_TIMEOUT_S 30
#define FETCH_STALL_S 60            /* less than FETCH_STALL_BYTES a second for this long: given up */
#define FETCH_STALL_BYTES 1024
#define FETCH_TOTAL_TIMEOUT_S 7200
#define FETCH_REDIRECTS_MAX 5
#define FETCH_PROGRESS_AFTER_MS 2000

struct fetch_request {
	const char *url, *sha256, *cache_dir;
	const char *ca_file; /* NULL: the system's */
	uint64_t max_size;   /* 0: FETCH_SIZE_MAX_DEFAULT */
};
struct fetch_result {
	char path[512];
	uint64_t size;
	bool cached; /* it was there; the network was not used */
};
/*
 * -EINVAL: a URL, sum or folder that is not acceptable; -EBADMSG: what came has another sum; -EFBIG: larger than
 * max_size; -ENOTCONN: the server cannot be reached or refused; -ETIMEDOUT; -ECANCELED after fetch_cancel().
 */
int fetch(const struct fetch_request *q, struct fetch_result *ret, struct error *e);
/* From a signal handler: the running download ends within a second. */
void fetch_cancel(void);

/* fetch_http.c: fills fd and the sum. */
int fetch_http(const struct fetch_request *q, int fd, char ret_sha256[static LAYER_SHA256_MAX], uint64_t *ret_size,
		struct error *e);
int fetch_url_check(const char *url, struct error *e);
#endif
