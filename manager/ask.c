/*
 * `runners check`: the same boxery-github that the service would run is started and asked about each repository, and about the
 * versions of actions/runner in use. The token stays where it is.
 */
#include "manager/ask.h"
#include "base/str.h"
#include "linux/clock.h"
#include "linux/msg.h"
#include "manager/github_child.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RUNS_UNTIL "runs until " /* github/answers.h */
#define DAY_LEN 10                /* 2026-11-05 */
#define ANSWER_TIMEOUT_MS (2 * GITHUB_REQUEST_TIMEOUT_MS)

static int ask(int fd, enum github_type type, const struct runners_entry *entry, const char *text, struct github_reply *ret,
	struct error *e)
{
	/* One question at a time: its answer is the next message. */
	struct github_request q = {.head = MSG_HEAD(type, struct github_request, 1)};
	size_t sizes[GITHUB_TYPE_COUNT] = {[GITHUB_REPLY] = sizeof(*ret)}, n_fds = 0;
	int fds[MSG_FDS_MAX], r;

	if (entry) {
		(void)str_copy(q.scope, entry->scope);
		(void)str_copy(q.group, entry->group);
	}
	if (text)
		(void)str_copy(q.text, text);
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

static int say(const char *about, const struct error *e)
{
	(void)fprintf(stderr, "boxery-runners: %s%s%s\n", str_starts(e->text, about) ? "" : about,
		str_starts(e->text, about) ? "" : ": ", e->text);
	return error_exit_status(e);
}

/* "runs until 2026-11-05..." somewhere in GitHub's answer, and that day is over. */
static bool has_ended(const char *dates)
{
	const char *until = strstr(dates, RUNS_UNTIL);
	char now[32];

	clock_wall_text(clock_wall_us(), now, sizeof(now));
	return until && strlen(until) >= sizeof(RUNS_UNTIL) - 1 + DAY_LEN && strncmp(until + sizeof(RUNS_UNTIL) - 1, now, DAY_LEN) <= 0;
}

/* entry: one that can be served, since GitHub is asked on behalf of a repository or an organization. */
static int ask_runner(int fd, const struct runners_entry *entry, const char *item)
{
	const char *version = strchr(item, '=') + 1;
	struct github_reply reply = {0};
	struct error e = ERROR_INIT;
	char about[160];

	(void)str_format(about, "actions/runner %.32s in image %.*s", version, (int)(version - 1 - item), item);
	if (ask(fd, GITHUB_DEPRECATION, entry, version, &reply, &e) == -ENOENT) {
		(void)printf("%s: GitHub knows nothing of this version\n", about);
		return EXIT_STATUS_OK;
	}
	if (e.code == 0 && has_ended(reply.text))
		(void)error_set(&e, EACCES,
			"GitHub gives it no jobs any more (%s): put a newer release into the layer github-runner, and build the image anew", reply.text);
	if (e.code)
		return say(about, &e);
	(void)printf("%s: %s\n", about, reply.text[0] ? reply.text : "no end is set");
	return EXIT_STATUS_OK;
}

int ask_github(const struct runners_config *c, const struct ask_runners *runners)
{
	CLEANUP(child_kill) struct child child = CHILD_INIT;
	CLEANUP_FD int fd = -1;
	struct github_reply reply = {0};
	struct error e = ERROR_INIT;
	const struct runners_entry *good = NULL;
	int status = EXIT_STATUS_OK, code;

	if (github_child_start(&child, &fd, &e) < 0 || ask(fd, GITHUB_HELLO, NULL, NULL, &reply, &e) < 0) {
		(void)fprintf(stderr, "boxery-runners: %s\n", e.text);
		return error_exit_status(&e);
	}
	(void)printf("GitHub: %s\n", reply.text);
	for (unsigned i = 0; i < c->n_entries; i++) {
		const char *repo = c->entries[i].scope;

		e = ERROR_INIT;
		if (ask(fd, scope_is_org(repo) ? GITHUB_GROUP : GITHUB_REPOSITORY, &c->entries[i], NULL, &reply, &e) == 0 &&
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
			good = &c->entries[i];
			continue;
		}
		code = say(repo, &e);
		if (status == EXIT_STATUS_OK)
			status = code;
	}
	for (size_t i = 0; good && i < runners->n; i++) {
		code = ask_runner(fd, good, runners->items[i]);
		if (status == EXIT_STATUS_OK)
			status = code;
	}
	return status;
}
