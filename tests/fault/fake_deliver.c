/*
 * A stand-in for boxery-deliver: fds 3 to 6 as in ssh/proto.h. It looks at what it got, and where the real one would have
 * handed the secret over it writes the host key into deliveries.log. Script "deliver": ok, fail CODE TEXT (nothing was handed
 * over), sentfail CODE TEXT (it was), late (it was, no result), noresult, crash, hang, garbage, slow MS.
 */
#include "ssh/proto.h"
#include "tests/fault/fake_world.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct deliver_result res;

static void failed(int code, const char *text)
{
	res.code = -code;
	(void)snprintf(res.text, sizeof(res.text), "%s", text);
}

/* What the keeper promised: nothing but 0 to 6 is open, the secret and the key are there, the socket is connected. */
static void look(void)
{
	char head[32] = "";
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	for (int fd = 7; fd < 256; fd++)
		if (fd != world && fcntl(fd, F_GETFD) >= 0)
			failed(EINVAL, "more files than were promised");
	if (fcntl(4, F_GET_SEALS) < F_SEAL_WRITE || pread(4, head, sizeof(head) - 1, 0) < 16)
		failed(EINVAL, "fd 4 is no sealed secret");
	if (fcntl(5, F_GET_SEALS) < F_SEAL_WRITE || pread(5, head, sizeof(head) - 1, 0) < 16 ||
			strncmp(head, "-----BEGIN OPENSSH PRIVATE KEY", 30) != 0)
		failed(EINVAL, "fd 5 is no key");
	if (getpeername(6, (struct sockaddr *)&peer, &len) < 0 || fcntl(6, F_GETFL) & O_NONBLOCK)
		failed(EINVAL, "fd 6 is no connected, blocking socket");
}

int main(void)
{
	struct deliver_request q;
	char how[LINE_MAX_], text[256] = "";
	unsigned ms = 0;
	int code;

	world_open();
	if (recv(3, &q, sizeof(q), 0) != sizeof(q) || q.head.length != sizeof(q) || q.head.type != DELIVER_REQUEST)
		return 2;
	res.head = MSG_HEAD(DELIVER_RESULT, struct deliver_result, 1);
	world_script("deliver", "", how, sizeof(how));
	look();
	if (sscanf(how, "slow %u", &ms) == 1)
		pause_ms(ms);
	if (strcmp(how, "noresult") == 0)
		return 3;
	if (strcmp(how, "crash") == 0)
		(void)raise(SIGKILL);
	while (strcmp(how, "hang") == 0)
		pause_ms(1000);
	if (strcmp(how, "garbage") == 0) {
		(void)send(3, "nonsense", 8, MSG_NOSIGNAL);
		return 0;
	}
	if (sscanf(how, "fail %d %255[^\n]", &code, text) >= 1)
		failed(code, text);
	if (res.code == 0)
		world_log("deliveries.log", "%s\n", q.host_key);
	if (sscanf(how, "sentfail %d %255[^\n]", &code, text) >= 1)
		failed(code, text);
	if (strcmp(how, "late") == 0)
		return 3;
	res.step = DELIVER_DONE;
	res.total_ms = 1;
	if (res.code == 0)
		(void)snprintf(res.text, sizeof(res.text), "the guest has it");
	return send(3, &res, sizeof(res), MSG_NOSIGNAL) < 0;
}
