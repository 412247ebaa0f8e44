#ifndef BOXERY_BASE_ERROR_H
#define BOXERY_BASE_ERROR_H
/*
 * One error: an errno value and one sentence for a person. A function that can fail takes a `struct error *`
 * last and returns 0 or -errno. The detail is put in where it is known (error_set), context is added in front on
 * the way up (error_wrap), and the top prints it once. No allocation, so that out-of-memory can be reported too.
 * Every function accepts e == NULL and still returns the code.
 */
#include <stdarg.h>

#define ERROR_TEXT_MAX 512

struct error {
	int code;                  /* positive errno value; 0: no error */
	char text[ERROR_TEXT_MAX]; /* one sentence without a newline; truncated, never overrun */
};

#define ERROR_INIT ((struct error){0})

/* Fills e and returns -code. code is a positive errno value. */
int error_set(struct error *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int error_setv(struct error *e, int code, const char *format, va_list ap) __attribute__((format(printf, 3, 0)));
/* As error_set, with ": " and the system's words for the code at the end. */
int error_errno(struct error *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Puts "context: " in front of the text; returns -e->code (or -EINVAL when e is NULL or empty). */
int error_wrap(struct error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void error_clear(struct error *e);

/*
 * All four return less than 0, whatever the code (one that is not positive counts as EIO). The compiler and the
 * analyser are told, so that after `if (r < 0) return r;` they know the outputs to be set.
 */
static inline int error_is_negative(int r)
{
	if (r >= 0)
		__builtin_unreachable();
	return r;
}
#define error_set(...) error_is_negative(error_set(__VA_ARGS__))
#define error_setv(...) error_is_negative(error_setv(__VA_ARGS__))
#define error_errno(...) error_is_negative(error_errno(__VA_ARGS__))
#define error_wrap(...) error_is_negative(error_wrap(__VA_ARGS__))

/*
 * Exit statuses of every boxery program, documented in the man pages. error_exit_status maps e->code:
 * EINVAL -> USAGE, ENOENT/ESRCH -> NOT_FOUND, EBUSY/EEXIST/EALREADY/ESTALE/EAGAIN -> CONFLICT, EBADMSG -> CONFIG,
 * EACCES/EPERM -> DENIED, ENOSPC/ENOMEM/ENODEV/EOPNOTSUPP -> HOST, ECONNREFUSED/ENOTCONN/EPIPE/ECONNRESET -> UNREACHABLE,
 * ETIMEDOUT -> TIMEOUT, ECANCELED/EINTR -> INTERRUPTED, anything else -> FAILED.
 */
enum exit_status {
	EXIT_STATUS_OK = 0,
	EXIT_STATUS_FAILED = 1,
	EXIT_STATUS_USAGE = 2,
	EXIT_STATUS_NOT_FOUND = 3,
	EXIT_STATUS_CONFLICT = 4,
	EXIT_STATUS_CONFIG = 5,
	EXIT_STATUS_DENIED = 6,
	EXIT_STATUS_HOST = 7,
	EXIT_STATUS_UNREACHABLE = 8,
	EXIT_STATUS_TIMEOUT = 9,
	EXIT_STATUS_INTERRUPTED = 130,
};
int error_exit_status(const struct error *e);
#endif
