#ifndef BOXERY_VM_TROUBLE_H
#define BOXERY_VM_TROUBLE_H
/*
 * Doubt about one VM: what boxery made was removed, replaced or edited by somebody else. Looked for in every listing, so it is
 * cheap: a few stat() and small files, and of a running VM one description from libvirt. Hashes are not made here.
 */
#include "vm/settings.h"
#include "vm/virt.h"

struct trouble_view { /* what a listing has seen of it */
	const char *name;
	const struct settings *settings; /* NULL: its file is missing or cannot be read */
	virDomainPtr domain;		 /* NULL: it is off */
	const struct life *life;	 /* of that domain */
	const char *twin;		 /* another domain that carries a copy of its metadata, or NULL */
	bool foreign;			 /* a domain that is not ours has its name */
	bool defined;			 /* it is off, but libvirt has a definition of it */
};
/* One sentence, or "". Nothing is found while an operation on the VM is under way: that checks by itself. */
void trouble_find(const struct host *h, const struct trouble_view *v, char ret[static VM_TEXT_MAX]);
/* The part of it about files; life NULL: it is off. */
int trouble_files(const struct host *h, const struct settings *s, const struct life *life, struct error *e);
#endif
