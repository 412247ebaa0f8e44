/*
 * boxery-github: the only program that holds GitHub's token.
 *
 * Theory of operation. A child of the runner service (or of `runners once`), it answers one request at a time
 * on the socket it was born with, and ends when that closes. It blocks while GitHub thinks: nothing else is
 * its business, and its client has a deadline. The token lives in this process for the time of a request
 * only (an App's installation token until shortly before its end, its key for one signature); it comes from
 * runners.env, goes into the Authorization header for the one origin in the same file, and is in no reply, no
 * error and no line of the log. JIT configs leave as sealed memfds and are wiped here.
 *
 * Stages, each with what it may and what it must not do:
 * - start: memory that wipes itself, not dumpable, no new privileges; the token is not read
 * - serve: read runners.env, speak HTTPS to its origin, reply; between requests nothing is kept but an ETag
 *   cache of what is only read, and the token of an App
 * As "token" it is a command: it stores a credential and ends (store.h).
 */
#include "boxery-config.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "github/app.h"
#include "github/call.h"
#include "github/store.h"
#include "github/wipe.h"
#include "linux/hostconf.h"
#include "linux/log.h"
#include "linux/secret.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define CLIENT_FD 3

static int start(char *path, size_t size, struct cache **ret_cache, struct error *e)
{
	struct stat st;
	struct hostconf conf;

	if (fstat(CLIENT_FD, &st) < 0 || !S_ISSOCK(st.st_mode))
		return error_set(
			e, EINVAL, "there is no socket as fd 3; this program is started by boxery-runners");
	(void)signal(SIGPIPE, SIG_IGN); /* a server that hangs up is an answer, not the end of us */
	/* Ctrl-C in a terminal is for the service, which still has to tidy up through us and then closes the socket. */
	(void)signal(SIGINT, SIG_IGN);
	int r = wipe_install(e);
	if (r >= 0)
		r = secret_init(e);
	if (r >= 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = error_errno(e, errno, "new privileges cannot be given up");
	if (r >= 0)
		r = hostconf_load(&conf, e);
	if (r < 0)
		return r;
	if (str_format_n(path, size, "%s/" CREDENTIAL_ENV_NAME, conf.config_dir) < 0)
		return error_set(e, ENAMETOOLONG, "the path of " CREDENTIAL_ENV_NAME " is too long");
	*ret_cache = cache_new();
	return *ret_cache ? 0 : error_set(e, ENOMEM, "no memory for a cache");
}

static int receive(struct github_request *ret, struct error *e)
{
	size_t sizes[GITHUB_TYPE_COUNT];
	int fds[MSG_FDS_MAX];
	size_t n_fds = 0;

	memcpy(sizes, github_message_sizes, sizeof(sizes));
	sizes[GITHUB_REPLY] = 0;
	int r = msg_recv(CLIENT_FD, sizes, GITHUB_TYPE_COUNT, ret, sizeof(*ret), fds, &n_fds, e);
	for (size_t i = 0; r > 0 && i < n_fds; i++)
		(void)fd_close(fds[i]);
	return r;
}

static int serve(const char *path, struct cache *cache, struct error *e)
{
	for (;;) {
		struct github_request request;
		struct github_reply reply;
		CLEANUP_FD int fd = -1;

		int r = receive(&request, e);
		if (r <= 0)
			return r;
		call_dispatch(path, cache, &request, &reply, &fd);
		r = msg_send(CLIENT_FD, &reply, &fd, fd >= 0 ? 1 : 0, e);
		if (r == -EPIPE || r == -ECONNRESET)
			return 0; /* the client has gone; its wish is over */
		if (r < 0)
			return r;
	}
}

int main(int argc, char **argv)
{
	struct error e = ERROR_INIT;
	char path[512];
	CLEANUP(cache_freep) struct cache *cache = NULL;

	log_open("boxery-github", LOG_INFO);
	if (argc == 2 && str_equal(argv[1], "--version")) {
		(void)printf("boxery-github %s\n", BOXERY_VERSION);
		return EXIT_STATUS_OK;
	}
	if (argc >= 2 && str_equal(argv[1], "token"))
		return store_main(argc - 1, argv + 1);
	if (argc != 1) {
		log_error("takes no arguments but 'token'; it is started by boxery-runners");
		return EXIT_STATUS_USAGE;
	}
	if (start(path, sizeof(path), &cache, &e) >= 0)
		(void)serve(path, cache, &e);
	app_end();
	if (!e.code)
		return EXIT_STATUS_OK;
	log_error("%s", e.text);
	return error_exit_status(&e);
}
