/*
 * boxery-deliver's system call filter, the one it runs with, installed in a child that then does what a
 * broken-into process would want to do: every such call has to kill it with SIGSYS. The same child survives
 * what a delivery needs.
 */
#include "base/cleanup.h"
#include "linux/clock.h"
#include "linux/msg.h"
#include "linux/secret.h"
#include "ssh/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

struct fds {
	int guest, guest_far, result, result_far, other, null;
};

typedef void (*act)(const struct fds *f);

static const char *const nowhere[] = {"/bin/true", NULL};

static void do_openat(const struct fds *f)
{
	(void)openat(AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
}
static void do_socket(const struct fds *f)
{
	(void)socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}
static void do_connect(const struct fds *f)
{
	struct sockaddr a = {.sa_family = AF_UNSPEC};
	(void)connect(f->guest, &a, sizeof(a));
}
static void do_execve(const struct fds *f)
{
	(void)execve(nowhere[0], (char *const *)(uintptr_t)nowhere, NULL);
}
static void do_fork(const struct fds *f)
{
	(void)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}
static void do_kill(const struct fds *f)
{
	(void)syscall(SYS_kill, 1, 0);
}
static void do_ptrace(const struct fds *f)
{
	(void)syscall(SYS_ptrace, PTRACE_ATTACH, 1, 0, 0);
}
static void do_prctl(const struct fds *f)
{
	(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}
static void do_memfd(const struct fds *f)
{
	(void)memfd_create("x", MFD_CLOEXEC);
}
static void do_dup(const struct fds *f)
{
	(void)!dup(f->guest);
}
static void do_setsockopt(const struct fds *f)
{
	int on = 1;
	(void)setsockopt(f->guest, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}
static void do_recvmsg(const struct fds *f)
{
	struct msghdr h = {0};
	(void)recvmsg(f->guest, &h, MSG_DONTWAIT);
}
static void do_read_guest(const struct fds *f)
{
	char c;
	(void)!read(f->guest, &c, 1);
}
static void do_recv_other(const struct fds *f)
{
	char c;
	(void)recv(f->other, &c, 1, MSG_DONTWAIT);
}
static void do_send_other(const struct fds *f)
{
	(void)send(f->other, "x", 1, MSG_DONTWAIT);
}
static void do_send_result(const struct fds *f)
{
	(void)send(f->result, "x", 1, MSG_DONTWAIT);
}
static void do_sendmsg_guest(const struct fds *f)
{
	struct iovec v = {(void *)(uintptr_t) "x", 1};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
	(void)sendmsg(f->guest, &h, MSG_DONTWAIT);
}
static void do_write_other(const struct fds *f)
{
	(void)!write(f->null, "x", 1);
}
static void do_fcntl_dup(const struct fds *f)
{
	(void)fcntl(f->guest, F_DUPFD_CLOEXEC, 0);
}
static void do_fcntl_other(const struct fds *f)
{
	(void)fcntl(f->other, F_SETFL, 0);
}
static void do_mmap_exec(const struct fds *f)
{
	(void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void do_mmap_file(const struct fds *f)
{
	(void)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, f->null, 0);
}
static void do_mprotect_exec(const struct fds *f)
{
	static _Alignas(4096) char page[4096];
	(void)mprotect(page, sizeof(page), PROT_READ | PROT_EXEC);
}
#ifdef __x86_64__
static void do_other_abi(const struct fds *f)
{
	int r = 20; /* getpid of the 32-bit table; allowed by number in the 64-bit one, but not from here */
	__asm__ volatile("int $0x80" : "+a"(r) : : "memory");
}
static void do_x32(const struct fds *f)
{
	(void)syscall(0x40000000 | SYS_getpid);
}
#endif

static void fine(const struct fds *f)
{
	struct {
		struct msg_head head;
		char text[64];
	} m = {.head = {MSG_MAGIC, MSG_VERSION, 1, sizeof(m), 0}};
	struct error e = ERROR_INIT;
	char c;
	CLEANUP(secret_freep) struct secret *s = NULL;

	(void)fcntl(f->guest, F_SETFL, fcntl(f->guest, F_GETFL) | O_NONBLOCK);
	if (send(f->guest, "x", 1, MSG_NOSIGNAL) != 1 || recv(f->guest, &c, 1, 0) != -1 || errno != EAGAIN)
		_exit(1);
	if (msg_send(f->result, &m, NULL, 0, &e) < 0 || clock_boot_us() == 0)
		_exit(2);
	if (syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &(struct timespec){0}) < 0 ||
		syscall(SYS_getrandom, &c, 1, 0) != 1)
		_exit(3);
	for (size_t n = 64; n < 64 * 1024 * 1024; n *= 4) {
		char *p = malloc(n);
		if (!p)
			_exit(4);
		memset(p, 1, n);
		free(p);
	}
	if (secret_new("secret", 6, &s, &e) < 0)
		_exit(5);
}

/* Under valgrind its own system calls would meet the filter. */
static bool no_filter(void)
{
	const char *preload = getenv("LD_PRELOAD");
	return !filter_enforced() || (preload && strstr(preload, "vgpreload"));
}

/* Wait status of a child that does this with the filter on. */
static int run(act a)
{
	int guest[2], result[2], other[2], status;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, guest), 0);
	assert_int_equal(msg_pair(result, NULL), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
	struct fds f = {
		guest[0], guest[1], result[0], result[1], other[0], open("/dev/null", O_RDWR | O_CLOEXEC)};

	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (filter_install(f.guest, f.result, NULL) < 0)
			_exit(99);
		a(&f);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (const int *p = (const int *)&f; p < (const int *)(&f + 1); p++)
		(void)close(*p);
	(void)close(other[1]);
	return status;
}

static void test_allowed(void **state)
{
	if (no_filter())
		skip();
	int status = run(fine);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_forbidden(void **state)
{
	static const struct {
		const char *name;
		act a;
	} acts[] = {
		{"openat", do_openat},
		{"socket", do_socket},
		{"connect", do_connect},
		{"execve", do_execve},
		{"fork", do_fork},
		{"kill", do_kill},
		{"ptrace", do_ptrace},
		{"prctl", do_prctl},
		{"memfd_create", do_memfd},
		{"dup", do_dup},
		{"setsockopt", do_setsockopt},
		{"recvmsg", do_recvmsg},
		{"read from the guest", do_read_guest},
		{"recv from another fd", do_recv_other},
		{"send to another fd", do_send_other},
		{"send to the result socket", do_send_result},
		{"sendmsg to the guest", do_sendmsg_guest},
		{"write to another fd", do_write_other},
		{"fcntl F_DUPFD", do_fcntl_dup},
		{"fcntl on another fd", do_fcntl_other},
		{"executable mmap", do_mmap_exec},
		{"mmap of a file", do_mmap_file},
		{"executable mprotect", do_mprotect_exec},
#ifdef __x86_64__
		{"a 32-bit call", do_other_abi},
		{"an x32 call", do_x32},
#endif
	};

	if (no_filter())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(acts); i++) {
		int status = run(acts[i].a);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("%s was not answered with SIGSYS but with wait status %#x", acts[i].name,
				(unsigned)status);
	}
}

static int setup(void **state)
{
	return secret_init(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allowed),
		cmocka_unit_test(test_forbidden),
	};
	return cmocka_run_group_tests_name("deliver_filter", tests, setup, NULL);
}
