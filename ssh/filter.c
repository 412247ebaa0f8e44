#include "ssh/filter.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifdef BOXERY_SANITIZER
bool filter_enforced(void)
{
	return false;
}

size_t filter_rules(void)
{
	return 0;
}

int filter_install(int guest_fd, int result_fd, struct error *e)
{
	return 0;
}
#else

enum bound { FREE, GUEST, RESULT, STDERR }; /* which fd the first argument has to be */

struct rule {
	int call;
	enum bound bound;
	unsigned n;
	struct scmp_arg_cmp args[2];
};

/* Conditions on an argument: its low half is VALUE; of the bits in MASK exactly those in VALUE are set. */
#define SAME(n_, value_)                                                                                     \
	{                                                                                                    \
		(n_), SCMP_CMP_MASKED_EQ, 0xffffffffu, (value_)                                              \
	}
#define MASKED(n_, mask_, value_)                                                                            \
	{                                                                                                    \
		(n_), SCMP_CMP_MASKED_EQ, (mask_), (value_)                                                  \
	}

static const struct rule rules[] = {
	/* The talk with the guest. */
	{SCMP_SYS(recvfrom), GUEST},
	{SCMP_SYS(sendto), GUEST},
	{SCMP_SYS(poll), FREE},	 /* which fds is behind a pointer; waiting on one gives nothing away */
	{SCMP_SYS(ppoll), FREE}, /* poll on arm64 */
	{SCMP_SYS(fcntl), GUEST, 1, {SAME(1, F_GETFL)}}, /* libssh2 asks for and sets O_NONBLOCK */
	{SCMP_SYS(fcntl), GUEST, 1, {SAME(1, F_SETFL)}},
	/* The result, and a line on stderr before an abort. */
	{SCMP_SYS(sendmsg), RESULT},
	{SCMP_SYS(write), STDERR},
	/* Time: only where the vDSO cannot answer by itself. */
	{SCMP_SYS(clock_gettime), FREE},
	{SCMP_SYS(gettimeofday), FREE},
	{SCMP_SYS(time), FREE},
	/* libcrypto: the ephemeral key and nonces; its generator asks whether the process has forked. */
	{SCMP_SYS(getrandom), FREE},
	{SCMP_SYS(getpid), FREE},
	/* malloc, and libsodium's guarded memory when a secret is wiped. Never executable, never a file. */
	{SCMP_SYS(brk), FREE},
	{SCMP_SYS(mmap), FREE, 2, {MASKED(2, PROT_EXEC, 0), MASKED(3, MAP_ANONYMOUS, MAP_ANONYMOUS)}},
	{SCMP_SYS(mprotect), FREE, 1, {MASKED(2, PROT_EXEC, 0)}},
	{SCMP_SYS(mremap), FREE},
	{SCMP_SYS(munmap), FREE},
	{SCMP_SYS(madvise), FREE},
	{SCMP_SYS(mlock), FREE},
	{SCMP_SYS(munlock), FREE},
	/* pthread_once in libcrypto wakes waiters that a single thread never has. */
	{SCMP_SYS(futex), FREE},
	/* The end. */
	{SCMP_SYS(close), FREE},
	{SCMP_SYS(exit_group), FREE},
	{SCMP_SYS(restart_syscall), FREE}, /* the kernel's own, when a stopped process goes on in poll */
	{SCMP_SYS(rt_sigreturn), FREE},
};

static void context_free(scmp_filter_ctx *c)
{
	if (*c)
		seccomp_release(*c);
}

static int rule_add(scmp_filter_ctx c, const struct rule *rule, int guest_fd, int result_fd)
{
	struct scmp_arg_cmp args[ARRAY_SIZE(rule->args) + 1];
	unsigned n = 0;
	for (; n < rule->n; n++)
		args[n] = rule->args[n];
	if (rule->bound != FREE) {
		int fd = rule->bound == GUEST ? guest_fd : rule->bound == RESULT ? result_fd : STDERR_FILENO;
		args[n++] = (struct scmp_arg_cmp)SAME(0, (scmp_datum_t)fd);
	}
	return seccomp_rule_add_array(c, SCMP_ACT_ALLOW, rule->call, n, args);
}

bool filter_enforced(void)
{
	return true;
}

size_t filter_rules(void)
{
	return ARRAY_SIZE(rules);
}

int filter_install(int guest_fd, int result_fd, struct error *e)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_errno(e, errno, "new privileges cannot be given up");
	CLEANUP(context_free) scmp_filter_ctx c = seccomp_init(SCMP_ACT_KILL_PROCESS);
	if (!c)
		return error_set(e, ENOMEM, "no memory for a system call filter");
	int r = seccomp_attr_set(c, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(rules); i++)
		r = rule_add(c, rules + i, guest_fd, result_fd);
	if (r == 0)
		r = seccomp_load(c);
	if (r < 0)
		return error_errno(e, -r, "the system call filter cannot be installed");
	return 0;
}
#endif
