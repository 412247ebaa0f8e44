#include "base/error.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Here are the functions behind the macros of the same names. */
#undef error_set
#undef error_setv
#undef error_errno
#undef error_wrap

static void append(struct error *e, const char *text)
{
	size_t used = strlen(e->text), n = strnlen(text, sizeof(e->text) - 1 - used);

	memcpy(e->text + used, text, n);
	e->text[used + n] = '\0';
}

/* Made in a second buffer and copied: an argument may well be the old text of the same error. */
int error_setv(struct error *e, int code, const char *format, va_list ap)
{
	char text[ERROR_TEXT_MAX];

	if (code <= 0)
		code = EIO;
	if (!e)
		return -code;
	if (vsnprintf(text, sizeof(text), format, ap) < 0)
		text[0] = '\0';
	e->code = code;
	e->text[0] = '\0';
	append(e, text);
	return -code;
}

int error_set(struct error *e, int code, const char *format, ...)
{
	va_list ap;
	int r;

	va_start(ap, format);
	r = error_setv(e, code, format, ap);
	va_end(ap);
	return r;
}

int error_errno(struct error *e, int code, const char *format, ...)
{
	va_list ap;
	int r;

	va_start(ap, format);
	r = error_setv(e, code, format, ap);
	va_end(ap);
	if (e) {
		append(e, ": ");
		append(e, strerror(-r));
	}
	return r;
}

int error_wrap(struct error *e, const char *format, ...)
{
	char cause[ERROR_TEXT_MAX];
	va_list ap;
	int code;

	if (!e || e->code <= 0)
		return -EINVAL;
	code = e->code;
	memcpy(cause, e->text, sizeof(cause));
	va_start(ap, format);
	(void)error_setv(e, code, format, ap);
	va_end(ap);
	append(e, ": ");
	append(e, cause);
	return -code;
}

void error_clear(struct error *e)
{
	if (e)
		*e = ERROR_INIT;
}

int error_exit_status(const struct error *e)
{
	if (!e)
		return EXIT_STATUS_FAILED;
	switch (e->code) {
	case 0:
		return EXIT_STATUS_OK;
	case EINVAL:
		return EXIT_STATUS_USAGE;
	case ENOENT:
	case ESRCH:
		return EXIT_STATUS_NOT_FOUND;
	case EBUSY:
	case EEXIST:
	case EALREADY:
	case ESTALE:
	case EAGAIN:
		return EXIT_STATUS_CONFLICT;
	case EBADMSG:
		return EXIT_STATUS_CONFIG;
	case EACCES:
	case EPERM:
		return EXIT_STATUS_DENIED;
	case ENOSPC:
	case ENOMEM:
	case ENODEV:
	case EOPNOTSUPP:
		return EXIT_STATUS_HOST;
	case ECONNREFUSED:
	case ENOTCONN:
	case EPIPE:
	case ECONNRESET:
		return EXIT_STATUS_UNREACHABLE;
	case ETIMEDOUT:
		return EXIT_STATUS_TIMEOUT;
	case ECANCELED:
	case EINTR:
		return EXIT_STATUS_INTERRUPTED;
	default:
		return EXIT_STATUS_FAILED;
	}
}
