/* The client of the keeper's socket against a server that is this test itself: what it says is in the socket beforehand. */
#include "tests/unit/testing.h"
#include "base/str.h"
#include "pool/client.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

struct world {
	struct hostconf conf;
	struct keeper_client *client;
	int listen_fd, server;
	char shown[256];
};

static int setup(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct world *w = calloc(1, sizeof(*w));
	void *folder = NULL;

	if (!w || test_folder_setup(&folder) < 0)
		return -1;
	struct test_folder *f = folder;
	(void)str_format(w->conf.runtime_dir, "%s", f->path);
	(void)str_format(w->conf.keeper_socket, "%s/keeper.sock", f->path);
	(void)str_copy(a.sun_path, w->conf.keeper_socket);
	(void)close(f->fd);
	free(f);
	w->server = -1;
	w->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(w->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(w->listen_fd, 4) < 0)
		return -1;
	if (keeper_connect(&w->conf, false, &w->client, NULL) < 0)
		return -1;
	w->server = accept(w->listen_fd, NULL, NULL);
	*state = w;
	return w->server < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	(void)keeper_client_free(w->client);
	(void)fd_close(w->server);
	(void)fd_close(w->listen_fd);
	(void)unlink(w->conf.keeper_socket);
	(void)rmdir(w->conf.runtime_dir);
	free(w);
	return 0;
}

static void say_reply(struct world *w, uint32_t seq, int code, const char *text, int document)
{
	struct keeper_reply r = {.head = MSG_HEAD(KEEPER_REPLY, struct keeper_reply, seq), .code = -code};

	(void)str_copy(r.text, text);
	(void)str_copy(r.name, "one");
	assert_int_equal(msg_send(w->server, &r, &document, document >= 0, NULL), 0);
}

static void say_progress(struct world *w, uint32_t seq, const char *text)
{
	struct keeper_progress p = {.head = MSG_HEAD(KEEPER_PROGRESS, struct keeper_progress, seq)};

	(void)str_copy(p.text, text);
	assert_int_equal(msg_send(w->server, &p, NULL, 0, NULL), 0);
}

static void say_event(struct world *w, bool unended)
{
	struct keeper_event v = {.head = MSG_HEAD(KEEPER_EVENT, struct keeper_event, 0), .generation = 7};

	(void)str_copy(v.name, "one");
	if (unended)
		memset(v.text, 'x', sizeof(v.text));
	assert_int_equal(msg_send(w->server, &v, NULL, 0, NULL), 0);
}

static void show(void *userdata, const char *text)
{
	struct world *w = userdata;
	size_t n = strlen(w->shown);

	(void)snprintf(w->shown + n, sizeof(w->shown) - n, "%s;", text);
}

static int call(struct world *w, uint64_t timeout_ms, struct keeper_reply *reply, char **document, struct error *e)
{
	struct keeper_request r;

	keeper_request_init(&r, KEEPER_LIST);
	return keeper_call(w->client, &r, -1, timeout_ms, show, w, reply, document, e);
}

static void test_call(void **state)
{
	struct world *w = *state;
	struct keeper_reply reply;
	struct error e = ERROR_INIT;
	struct keeper_request got;
	CLEANUP_FREE char *document = NULL;
	CLEANUP_FD int fd = -1;

	assert_int_equal(msg_document("{\"vms\":[]}", 10, &fd, NULL), 0);
	say_event(w, false);
	say_progress(w, 1, "half");
	say_progress(w, 9, "not mine");
	say_reply(w, 9, EIO, "not mine either", -1);
	say_progress(w, 1, "done");
	say_reply(w, 1, 0, "", fd);
	assert_ok(call(w, 1000, &reply, &document, &e), &e);
	assert_string_equal(w->shown, "half;done;");
	assert_string_equal(reply.name, "one");
	assert_string_equal(document, "{\"vms\":[]}");
	assert_int_equal(recv(w->server, &got, sizeof(got), MSG_DONTWAIT), sizeof(got));
	assert_int_equal(got.head.type, KEEPER_LIST);
	/* The next request has the next number. */
	say_reply(w, 2, ENOENT, "there is no VM 'x'", -1);
	assert_fails(call(w, 1000, &reply, NULL, &e), ENOENT, &e, "no VM 'x'");
}

static void test_gone(void **state)
{
	struct world *w = *state;
	struct keeper_reply reply;
	struct error e = ERROR_INIT;

	w->server = fd_close(w->server);
	assert_fails(call(w, 1000, &reply, NULL, &e), ENOTCONN, &e, "gone away");
	w->listen_fd = fd_close(w->listen_fd);
	struct keeper_client *other = NULL;
	assert_fails(keeper_connect(&w->conf, false, &other, &e), ENOTCONN, &e, "no keeper answers");
	(void)unlink(w->conf.keeper_socket);
	assert_fails(keeper_connect(&w->conf, false, &other, &e), ENOTCONN, &e, "no keeper answers");
	assert_null(other);
}

static void test_gone_after_the_request(void **state)
{
	struct world *w = *state;
	struct error e = ERROR_INIT;
	struct keeper_request r;
	struct keeper_answer a;
	uint32_t seq;

	keeper_request_init(&r, KEEPER_LIST);
	assert_ok(keeper_send(w->client, &r, -1, &seq, &e), &e);
	w->server = fd_close(w->server); /* unread data: a reset, not an end */
	assert_fails(keeper_receive(w->client, &a, &e), ENOTCONN, &e, "gone away");
}

static void test_refused_connection(void **state)
{
	struct world *w = *state;
	struct keeper_reply reply;
	struct error e = ERROR_INIT;

	say_reply(w, 1, EBUSY, "the keeper has 256 connections", -1);
	w->server = fd_close(w->server);
	assert_fails(call(w, 1000, &reply, NULL, &e), EBUSY, &e, "256 connections");
}

static void test_timeout(void **state)
{
	struct world *w = *state;
	struct keeper_reply reply;
	struct error e = ERROR_INIT;

	say_progress(w, 1, "half");
	assert_fails(call(w, 50, &reply, NULL, &e), ETIMEDOUT, &e, "has not answered");
	assert_string_equal(w->shown, "half;");
	/* The late reply is not taken for the next one's. */
	say_reply(w, 1, EIO, "late", -1);
	say_reply(w, 2, 0, "", -1);
	assert_ok(call(w, 1000, &reply, NULL, &e), &e);
}

static void test_loop(void **state)
{
	struct world *w = *state;
	struct error e = ERROR_INIT;
	struct keeper_answer a = {0};

	assert_int_equal(keeper_receive(w->client, &a, &e), -EAGAIN);
	say_event(w, false);
	say_progress(w, 3, "p");
	say_reply(w, 3, EIO, "no", -1);
	assert_int_equal(keeper_receive(w->client, &a, &e), 1);
	assert_int_equal(a.type, KEEPER_EVENT);
	assert_int_equal(a.event.generation, 7);
	assert_int_equal(keeper_receive(w->client, &a, &e), 1);
	assert_string_equal(a.progress.text, "p");
	assert_int_equal(keeper_receive(w->client, &a, &e), 1);
	assert_int_equal(a.seq, 3);
	assert_int_equal(a.reply.code, -EIO);
	say_event(w, true);
	assert_fails(keeper_receive(w->client, &a, &e), EBADMSG, &e, "without an end");
}

static void test_nonsense(void **state)
{
	struct world *w = *state;
	struct keeper_reply reply;
	struct error e = ERROR_INIT;
	struct keeper_request request;

	keeper_request_init(&request, KEEPER_LIST);
	assert_int_equal(msg_send(w->server, &request, NULL, 0, NULL), 0); /* a request is no answer */
	assert_int_equal(call(w, 1000, &reply, NULL, &e), -EBADMSG);
	assert_int_equal(send(w->server, "x", 1, 0), 1);
	assert_int_equal(call(w, 1000, &reply, NULL, &e), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_call, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gone_after_the_request, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timeout, setup, teardown),
		cmocka_unit_test_setup_teardown(test_loop, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
