/* What the keeper takes from a child of boxery-vm. The source is included, because the keeper is no library. */
#include "tests/unit/testing.h"
#include "pool/keeper_vm_answer.c"
#include "linux/msg.h"
#include <sys/socket.h>

struct pair {
	int fd[2];
};

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	*state = p;
	return p ? msg_pair(p->fd, NULL) : -1;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	(void)fd_close(p->fd[0]);
	(void)fd_close(p->fd[1]);
	free(p);
	return 0;
}

static int exchange(struct pair *p, const void *msg, bool watch, union vm_answer *a)
{
	assert_int_equal(msg_send(p->fd[0], msg, NULL, 0, NULL), 0);
	return vm_answer_receive(p->fd[1], watch, a, NULL);
}

static void test_kinds(void **state)
{
	struct pair *p = *state;
	union vm_answer a;
	struct vm_step step = {.head = MSG_HEAD(VM_STEP, struct vm_step, 1), .step = "begin", .text = "a\033[31mb"};
	struct vm_entry entry = {.head = MSG_HEAD(VM_ENTRY, struct vm_entry, 1), .name = "one", .generation = 4};
	struct vm_event_msg event = {.head = MSG_HEAD(VM_EVENT, struct vm_event_msg, 1), .kind = VM_EVENT_SNAPSHOT};
	struct vm_result result = {.head = MSG_HEAD(VM_RESULT, struct vm_result, 1), .code = -5, .text = "no\n"};

	assert_int_equal(exchange(p, &step, false, &a), 1);
	assert_string_equal(a.step.text, "a\\x1b[31mb");
	assert_int_equal(exchange(p, &entry, true, &a), 1);
	assert_int_equal(exchange(p, &result, false, &a), 1);
	assert_string_equal(a.result.text, "no\\x0a");
	assert_int_equal(exchange(p, &event, true, &a), 1);
	/* Each only where it belongs. */
	assert_int_equal(exchange(p, &event, false, &a), -EBADMSG);
	assert_int_equal(exchange(p, &result, true, &a), 1); /* its last word */
}

static void test_bad_texts(void **state)
{
	struct pair *p = *state;
	union vm_answer a;
	struct vm_step step = {.head = MSG_HEAD(VM_STEP, struct vm_step, 1)};
	struct vm_entry entry = {.head = MSG_HEAD(VM_ENTRY, struct vm_entry, 1), .name = "../one"};
	struct vm_event_msg event = {.head = MSG_HEAD(VM_EVENT, struct vm_event_msg, 1), .name = "A B"};
	struct vm_result result = {.head = MSG_HEAD(VM_RESULT, struct vm_result, 1)};

	memset(step.text, 'x', sizeof(step.text));
	assert_int_equal(exchange(p, &step, false, &a), -EBADMSG);
	assert_int_equal(exchange(p, &entry, false, &a), -EBADMSG);
	memset(entry.name, 'a', sizeof(entry.name));
	assert_int_equal(exchange(p, &entry, false, &a), -EBADMSG);
	entry.name[0] = '\0';
	assert_int_equal(exchange(p, &entry, false, &a), -EBADMSG);
	assert_int_equal(exchange(p, &event, true, &a), -EBADMSG);
	memset(result.host_key, 'x', sizeof(result.host_key));
	assert_int_equal(exchange(p, &result, false, &a), -EBADMSG);
}

/* A text that grows when it is made visible is cut, never overrun. */
static void test_growing_text(void **state)
{
	struct pair *p = *state;
	union vm_answer a;
	struct vm_step step = {.head = MSG_HEAD(VM_STEP, struct vm_step, 1)};

	memset(step.step, 1, sizeof(step.step) - 1);
	memset(step.text, 1, sizeof(step.text) - 1);
	assert_int_equal(exchange(p, &step, false, &a), 1);
	assert_true(strlen(a.step.step) < sizeof(a.step.step));
	assert_true(strlen(a.step.text) < sizeof(a.step.text));
	assert_int_equal(strncmp(a.step.text, "\\x01\\x01", 8), 0);
}

static void test_listing(void **state)
{
	struct listing l = {0};
	struct vm_entry entry = {.name = "one"};

	(void)state;
	for (unsigned i = 0; i < KEEPER_ENTRIES_MAX; i++)
		assert_int_equal(listing_add(&l, &entry), 0);
	assert_int_equal(listing_add(&l, &entry), -E2BIG);
	assert_string_equal(l.entries[KEEPER_ENTRIES_MAX - 1].name, "one");
	listing_free(&l);
	assert_null(l.entries);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_kinds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_texts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_growing_text, setup, teardown),
		cmocka_unit_test(test_listing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
