/*
 * Waiting for the keeper so that a person can end it: SIGINT, SIGTERM, SIGHUP, or the reader of standard output going away
 * (what a broken ssh connection looks like from here).
 */
#include "base/str.h"
#include "cli/host.h"
#include "linux/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#define LAST_WORD_MS 2000 /* after an interruption: for a reply that is under way already */

int cli_signals(const int *signals, size_t n, int *ret_fd, struct error *e)
{
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < n; i++)
		(void)sigaddset(&set, signals[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return error_errno(e, errno, "cannot block signals");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return error_errno(e, errno, "cannot wait for signals");
	*ret_fd = fd;
	return 0;
}

int cli_subscribe(const struct hostconf *conf, bool start, struct keeper_client **ret, struct error *e)
{
	struct keeper_request r;
	int code = keeper_connect(conf, start, ret, e);

	keeper_request_init(&r, KEEPER_SUBSCRIBE);
	return code < 0 ? code : keeper_call(*ret, &r, -1, CLI_CALL_TIMEOUT_MS, NULL, NULL, NULL, NULL, e);
}

int cli_poll_ms(uint64_t deadline_us)
{
	uint64_t now = clock_boot_us();

	return deadline_us <= now ? 0 : (int)((deadline_us - now + 999) / 1000);
}

/* Reads what has come; 1 with the reply of the request. A refusal of the connection itself has a seq of its own. */
static int receive(struct keeper_client *client, uint32_t seq, struct cli_progress *progress, struct keeper_reply *ret,
		struct error *e)
{
	struct keeper_answer a;
	int code;

	while ((code = keeper_receive(client, &a, e)) == 1) {
		free(a.document);
		if (a.type == KEEPER_PROGRESS && a.seq == seq)
			cli_progress_show(progress, a.progress.text);
		if (a.type != KEEPER_REPLY || (a.seq != seq && a.reply.code == 0))
			continue;
		if (a.reply.code < 0)
			return error_set(e, -a.reply.code, "%s", a.reply.text);
		*ret = a.reply;
		return 1;
	}
	if (code != -EAGAIN)
		return code;
	error_clear(e);
	return 0;
}

int cli_wait_call(struct keeper_client *client, struct keeper_request *r, int signals, uint64_t timeout_ms,
		struct keeper_reply *ret, bool *ret_late, struct error *e)
{
	struct cli_progress progress;
	uint64_t deadline = clock_boot_us() + timeout_ms * 1000;
	bool interrupted = false;
	uint32_t seq = 0;
	int code;

	*ret_late = false;
	cli_progress_begin(&progress);
	code = keeper_send(client, r, -1, &seq, e);
	if (code < 0 && code != -ENOTCONN)
		return code;
	for (;;) {
		struct pollfd p[] = {{.fd = keeper_client_fd(client), .events = POLLIN},
				{.fd = interrupted ? -1 : signals, .events = POLLIN},
				{.fd = interrupted ? -1 : STDOUT_FILENO}};

		code = receive(client, seq, &progress, ret, e);
		if (code != 0) {
			if (!interrupted)
				return code < 0 ? code : 0;
			*ret_late = code > 0;
			return error_set(e, ECANCELED, "interrupted; the wait has ended");
		}
		if (clock_boot_us() >= deadline)
			return interrupted ? error_set(e, ECANCELED, "interrupted; the wait has ended") :
					     error_set(e, ETIMEDOUT, "the keeper has not answered within %llu s",
							     (unsigned long long)(timeout_ms / 1000));
		if (poll(p, ARRAY_SIZE(p), cli_poll_ms(deadline)) <= 0)
			continue;
		if ((p[1].revents & POLLIN) || (p[2].revents & (POLLERR | POLLHUP))) {
			/* The keeper forgets the request at the end of the stream. What it has sent before can still be read. */
			interrupted = true;
			deadline = clock_boot_us() + LAST_WORD_MS * 1000;
			(void)shutdown(keeper_client_fd(client), SHUT_WR);
		}
	}
}
