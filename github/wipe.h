#ifndef BOXERY_GITHUB_WIPE_H
#define BOXERY_GITHUB_WIPE_H
/*
 * libcurl, libcrypto and jansson keep the token and the JIT config in buffers of their own for as long as a call takes.
 * After wipe_install() every block that any of them gives back is wiped first. Must come before anything else touches
 * them; once per process.
 */
#include "base/error.h"

int wipe_install(struct error *e);
#endif
