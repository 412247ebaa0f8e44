#ifndef BOXERY_VM_MEMORY_H
#define BOXERY_VM_MEMORY_H
/* Guests' memory in a file: what libvirt saves and restores. */
#include "vm/virt.h"

/* Saves a running domain to path, a file of ours that is there already, and ends it. */
int memory_save(virDomainPtr d, const char *path, struct error *e);
/* Starts a domain with that memory; xml may differ from the saved one in metadata and in paths of files. */
int memory_restore(const struct host *h, const char *path, const char *xml, bool paused, struct error *e);
/* Which machine and which program run it; both may have `size` bytes. */
int memory_machine(virDomainPtr d, char *ret_machine, char *ret_program, size_t size, struct error *e);
/* A domain that runs already: a success. */
int memory_resume(virDomainPtr d, struct error *e);
#endif
