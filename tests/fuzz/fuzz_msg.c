/* A packet as it is: whatever another process sends, msg_recv hands out a whole message of a known type or nothing. */
#include "fuzz.h"
#include "base/cleanup.h"
#include "linux/msg.h"
#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

struct small {
	struct msg_head head;
	char text[8];
};
static const size_t sizes[] = {0, sizeof(struct small), sizeof(struct msg_head), 0, 256};

static void one(int out, int in, const void *data, size_t size)
{
	int fds[MSG_FDS_MAX];
	struct error e = ERROR_INIT;
	char m[256];
	struct msg_head h;
	size_t n;
	int r;

	if (size == 0 || send(out, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		return;
	r = msg_recv(in, sizes, ARRAY_SIZE(sizes), m, sizeof(m), fds, &n, &e);
	assert(r == 1 || (r == -EBADMSG && e.code == EBADMSG && e.text[0]));
	assert(n == 0 && fds[0] == -1);
	if (r == 1) {
		memcpy(&h, m, sizeof(h));
		assert(h.magic == MSG_MAGIC && h.version == MSG_VERSION && h.length == size);
		assert(h.type < ARRAY_SIZE(sizes) && sizes[h.type] == size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msg_head h = {.magic = MSG_MAGIC, .version = MSG_VERSION, .length = (uint32_t)size};
	CLEANUP_FREE char *packet = malloc(size + sizeof(h));
	int pair[2];

	if (!packet || msg_pair(pair, NULL) < 0)
		abort();
	one(pair[0], pair[1], data, size);
	/* And behind a head that is right as far as the first bytes let it be. */
	if (size >= 4) {
		h.type = data[0];
		h.length = data[1] ? (uint32_t)(size + sizeof(h)) : data[2];
		h.version = data[3] ? MSG_VERSION : 0;
		memcpy(packet, &h, sizeof(h));
		memcpy(packet + sizeof(h), data, size);
		one(pair[0], pair[1], packet, size + sizeof(h));
	}
	(void)close(pair[0]);
	(void)close(pair[1]);
	return 0;
}
