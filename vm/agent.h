#ifndef BOXERY_VM_AGENT_H
#define BOXERY_VM_AGENT_H
/*
 * The guest agent, over its virtio channel and libvirt. Only for a guest that has run nobody's code yet; what
 * it answers is bounded and parsed all the same.
 */
#include "linux/secret.h"
#include "vm/virt.h"
#include <stddef.h>

#define AGENT_OUTPUT_MAX (64 * 1024)

/* Polls until the agent answers. -ENOTCONN at once when the guest has stopped meanwhile. */
int agent_wait(virDomainPtr d, uint64_t timeout_ms, struct error *e);
/* Runs `path` in the guest, with one argument (NULL: none) and these bytes on its stdin; a non-zero exit is an error with the last line of
 * its stderr. *ret_stdout is malloc'd, bounded and NUL-terminated. */
int agent_exec(virDomainPtr d, const char *path, const char *argument, const void *input, size_t input_len, uint64_t timeout_ms,
	char **ret_stdout, struct error *e);
/* The farthest that the guest's clock can be from ours, in milliseconds. */
int agent_clock_skew_ms(virDomainPtr d, uint64_t *ret, struct error *e);
/* Sets the guest's clock to ours. */
int agent_clock_set(virDomainPtr d, struct error *e);
/* Begins the guest's clean shutdown, as systemd's own unit: the agent's guest-shutdown needs logind. */
int agent_poweroff(virDomainPtr d, struct error *e);
#endif
