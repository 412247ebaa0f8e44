/*
 * `runners check`: the same boxery-github that the service would run is started and asked about each repository. The
 * token stays where it is.
 */
#include "manager/ask.h"
#include "base/str.h"
#include "linux/msg.h"
#include "manager/github_child.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_TIMEOUT_MS (2 * GITHUB_REQUEST_TIMEOUT_MS)

static int ask(int fd, enum github_type type, const struct runners_entry *entry, struct github_reply *ret, struct error *e)
{
	/* One question at a time: its answer is the next message. */
	struct github_request q = {.head = MSG_HEAD(type, struct github_request, 1)};
	size_t sizes[GITHUB_TYPE_COUNT] = {[GITHUB_REPLY] = sizeof(*ret)}, n_fds = 0;
	int fds[MSG_FDS_MAX], r;

	if (entry) {
		(void)str_copy(q.scope, entry->scope);
		(void)str_copy(q.group, entry->group);
	}
	r = msg_send(fd, &q, NULL, 0, e);
	if (r == 0)
		r = msg_recv_timeout(fd, ANSWER_TIMEOUT_MS, sizes, ARRAY_SIZE(sizes), ret, sizeof(*ret), fds, &n_fds, e);
	if (r == 0)
		return error_set(e, ECONNRESET, "boxery-github ended without an answer");
	if (r < 0)
		return r;
	for (size_t i = 0; i < n_fds; i++)
		(void)fd_close(fds[i]);
	if (!str_is_terminated(ret->text, sizeof(ret->text)))
		return error_set(e, EBADMSG, "boxery-github sent an unterminated text");
	return ret->code < 0 ? error_set(e, -ret->code, "%s", ret->text) : 0;
}

int ask_repositories(const struct runners_config *c)
{
	CLEANUP(child_kill) struct child child = CHILD_INIT;
	CLEANUP_FD int fd = -1;
	struct github_reply reply = {0};
	struct error e = ERROR_INIT;
	int status = EXIT_STATUS_OK;

	if (github_child_start(&child, &fd, &e) < 0 || ask(fd, GITHUB_HELLO, NULL, &reply, &e) < 0) {
		(void)fprintf(stderr, "boxery-runners: %s\n", e.text);
		return error_exit_status(&e);
	}
	(void)printf("GitHub: %s\n", reply.text);
	for (unsigned i = 0; i < c->n_entries; i++) {
		const char *repo = c->entries[i].scope;

		e = ERROR_INIT;
		if (ask(fd, scope_is_org(repo) ? GITHUB_GROUP : GITHUB_REPOSITORY, &c->entries[i], &reply, &e) == 0 &&
			!reply.is_private)
			(void)error_set(&e, EACCES,
				scope_is_org(repo)
					? "%s: public repositories can use its runner group; boxery serves private ones only, since "
					  "anybody could run code through a fork"
					: "%s is public; boxery serves private repositories only, since anybody could run code through "
					  "a fork",
				repo);
		if (e.code == 0) {
			(void)printf("%s: private, can be served\n", repo);
			continue;
		}
		(void)fprintf(stderr, "boxery-runners: %s%s%s\n", str_starts(e.text, repo) ? "" : repo,
			str_starts(e.text, repo) ? "" : ": ", e.text);
		if (status == EXIT_STATUS_OK)
			status = error_exit_status(&e);
	}
	return status;
}
