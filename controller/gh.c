#include "controller/gh.h"
#include "base/str.h"
#include "controller/clock.h"

#include <errno.h>
#include <string.h>

#define READ_AT_ONCE 16384

static int start(struct gh *g, const char *method, const char *path, bool body, struct error *e)
{
	static const char version[] = "X-GitHub-Api-Version: " GH_API_VERSION;
	const char *argv[20] = {"gh", "api", "--include", "--method", method, "-H", "Accept: application/vnd.github+json", "-H", version};
	size_t n = 9;

	if (body) {
		argv[n++] = "--input";
		argv[n++] = "-";
	}
	argv[n++] = path;
	argv[n] = NULL;
	return process_start(argv, (body ? PROCESS_IN : 0) | PROCESS_OUT | PROCESS_ERR, &g->process, e);
}

int gh_call(struct gh *g, const char *method, const char *path, json_t *body, gh_cb cb, void *userdata, struct error *e)
{
	char *text = NULL;
	int r;

	*g = GH_INIT;
	if (body) {
		text = json_dumps(body, JSON_COMPACT);
		json_decref(body);
		r = text ? link_add(&g->in, text, strlen(text)) : -ENOMEM;
		link_memory_free(text);
		if (r < 0)
			return error_set(e, ENOMEM, "no memory for a request");
	}
	r = start(g, method, path, text != NULL, e);
	if (r < 0) {
		link_buffer_free(&g->in);
		return r == -ENOENT ? error_set(e, ENODEV, "gh, GitHub's command line client, is not on this machine: install it and run "
							   "'gh auth login'") : r;
	}
	g->deadline_ms = clock_now_ms() + GH_TIMEOUT_MS;
	g->cb = cb;
	g->userdata = userdata;
	return 0;
}

bool gh_busy(const struct gh *g)
{
	return g->cb != NULL;
}

static void on_in(void *userdata, int fd)
{
	struct gh *g = userdata;

	if (fd == g->process.in && link_flush(&g->in, fd, NULL) != 1)
		g->process.in = fd_close(fd);
}

static void on_out(void *userdata, int fd)
{
	struct gh *g = userdata;
	char data[READ_AT_ONCE];
	ssize_t n;

	if (fd != g->process.out)
		return;
	n = read(fd, data, sizeof(data));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* An answer that is too long is cut off, and then it is no JSON. */
	if (n <= 0 || g->out.len + (size_t)n > GH_ANSWER_MAX || link_add(&g->out, data, (size_t)n) < 0)
		g->process.out = fd_close(fd);
	link_wipe(data, sizeof(data));
}

static void on_err(void *userdata, int fd)
{
	struct gh *g = userdata;
	char data[1024];
	ssize_t n;

	if (fd != g->process.err)
		return;
	n = read(fd, data, sizeof(data));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		g->process.err = fd_close(fd);
	for (ssize_t i = 0; i < n && g->err_len < sizeof(g->err) - 1; i++)
		g->err[g->err_len++] = data[i];
}

void gh_poll(struct gh *g, struct poller *p)
{
	if (g->in.len)
		poller_add(p, g->process.in, POLLOUT, on_in, g);
	else
		g->process.in = fd_close(g->process.in);
	poller_add(p, g->process.out, POLLIN, on_out, g);
	poller_add(p, g->process.err, POLLIN, on_err, g);
}

void gh_free(struct gh *g)
{
	process_free(&g->process);
	link_buffer_free(&g->in);
	link_buffer_free(&g->out);
	*g = GH_INIT;
}

void gh_tick(struct gh *g)
{
	struct gh_answer a = {0};
	gh_cb cb = g->cb;
	void *userdata = g->userdata;
	bool late = cb && clock_now_ms() >= g->deadline_ms;

	if (!cb || (!late && (g->process.out >= 0 || g->process.err >= 0 || !process_reap(&g->process))))
		return;
	g->err[g->err_len] = '\0';
	if (late) {
		a.fault = GH_NETWORK;
		(void)str_format(a.text, "gh had no answer within %d s", GH_TIMEOUT_MS / 1000);
	} else {
		gh_understand(g->out.data ? g->out.data : "", g->out.len, g->err, g->process.status, &a);
	}
	/* Idle again before the callback, which may call anew. */
	gh_free(g);
	cb(userdata, &a);
	json_decref(a.body);
}
