#ifndef BOXERY_SSH_HOSTKEY_H
#define BOXERY_SSH_HOSTKEY_H
/*
 * Public ssh host keys as one line of text, "ssh-ed25519 BASE64" (a comment after it is ignored). Only Ed25519: the host
 * makes every VM's key itself, so that there is nothing else to agree on. Nothing here trusts on first use: a key is
 * known before the connection or there is no connection.
 */
#include "base/error.h"
#include "base/str.h"
#include <stddef.h>
#include <stdint.h>

#define HOSTKEY_ALGORITHM "ssh-ed25519"
#define HOSTKEY_BLOB_LEN 51 /* RFC 8709: string "ssh-ed25519", string of 32 bytes, each with a four-byte length */
#define HOSTKEY_FINGERPRINT_MAX 52 /* "SHA256:", 43 characters, NUL: as ssh-keygen -l shows it */

struct hostkey {
	uint8_t blob[HOSTKEY_BLOB_LEN]; /* as it goes over the wire: two keys are the same if these bytes are */
};

int hostkey_parse(const char *line, struct hostkey *ret, struct error *e);
/* Of any host key blob, also one that a stranger presented. */
void hostkey_fingerprint(const void *blob, size_t len, char ret[static HOSTKEY_FINGERPRINT_MAX]);
/* Adds one line of ssh's known_hosts format, for `ssh -o HostKeyAlias=ALIAS -o StrictHostKeyChecking=yes`. alias must
 * have passed name_check. */
int hostkey_known_hosts_line(const char *alias, const char *line, struct buf *ret, struct error *e);
#endif
