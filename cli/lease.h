#ifndef BOXERY_CLI_LEASE_H
#define BOXERY_CLI_LEASE_H
/* What the commands about leases share. */
#include "cli/host.h"

#define LEASE_PORT "22"
#define LEASE_KNOWN_HOSTS_MAX 700
#define LEASE_EXEC_NOT_RUN 126 /* as a shell says it */
#define LEASE_EXEC_NOT_FOUND 127

/* "NAME,ADDRESS ssh-ed25519 BASE64"; room for a newline is left. */
int lease_known_hosts(const struct keeper_reply *lease, char *dst, size_t size, struct error *e);
/* Copies an id that can be one into the request. */
int lease_set_id(struct keeper_request *r, const char *id, struct error *e);
/*
 * Runs the program with the lease in its environment and gives the lease back whatever happens. client: the connection that
 * the lease is bound to, freed here; signals: as of cli_signals. Returns the exit status of this process: the program's, 128 + its
 * signal, or one of the above.
 */
int lease_exec(const struct hostconf *conf, struct keeper_client *client, int signals, const struct keeper_reply *lease,
		char **argv);
#endif
