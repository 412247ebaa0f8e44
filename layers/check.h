#ifndef BOXERY_LAYERS_CHECK_H
#define BOXERY_LAYERS_CHECK_H
/* What the values of a layer may look like. Each fills e with a sentence about the value and returns -EBADMSG. */
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

int check_package(const char *s, struct error *e);
int check_unit(const char *s, struct error *e);
int check_account(const char *s, struct error *e);       /* user and group names */
int check_owner(const char *s, struct error *e);         /* user:group */
int check_target(const char *s, struct error *e);        /* absolute path in the image */
int check_source(const char *s, struct error *e);        /* relative path of a file beside the layers */
int check_version(const char *s, struct error *e);
int check_arch_word(const char *s, struct error *e);     /* what {arch} becomes */
int check_url(const char *s, struct error *e);           /* https, or http to a loopback address; {version} {arch} only */
/* What a guest's programs take from http_proxy and no_proxy; a user and a password are refused: an image holds no secret. */
int check_proxy(const char *s, struct error *e);
int check_no_proxy(const char *s, struct error *e);
int check_sha256(const char *s, struct error *e);        /* 64 lower-case hex digits */
int check_mode(const char *s, mode_t *ret, struct error *e); /* octal */
/* host as in a URL: 127.x.y.z or [::1]. Names are not, since what they stand for is decided elsewhere. */
bool host_is_loopback(const char *host);
#endif
