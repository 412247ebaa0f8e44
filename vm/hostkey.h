#ifndef BOXERY_VM_HOSTKEY_H
#define BOXERY_VM_HOSTKEY_H
/*
 * The ssh host key of one life of one guest: made here, in memory only. The private half, as an OpenSSH key
 * file, goes to the guest's tmpfs in the call that begins the life; the public half goes to the keeper, which
 * pins it.
 */
#include "linux/secret.h"
#include "vm/proto.h"

struct hostkey {
	char public_line[VM_HOST_KEY_MAX]; /* "ssh-ed25519 BASE64" */
	struct secret *private_file;
};
int hostkey_new(struct hostkey *ret, struct error *e);
void hostkey_free(struct hostkey *k);
/* "ssh-TYPE BASE64[ COMMENT]" in printable characters without quotes: fit for a line of authorized_keys. */
int hostkey_line_check(const char *line, struct error *e);
#endif
