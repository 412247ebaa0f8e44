#ifndef BOXERY_VM_LISTING_H
#define BOXERY_VM_LISTING_H
/*
 * The listing of a guest (guest/listing.c): lines "KIND WHAT", sorted by bytes, each once; the one of the capture is the
 * measure. Pure.
 */
#include "base/error.h"

enum listing_rule {
	LISTING_SAME,	 /* a restored guest: line for line */
	LISTING_NO_MORE, /* a booted guest: a boot may be a step behind or ahead, but nothing else may run, listen, be mounted or log in */
	LISTING_RULE_COUNT
};
/* -EBADMSG and a sentence that names the first difference. Free space may differ by LISTING_SPACE_KIB and LISTING_INODES. */
#define LISTING_SPACE_KIB (64 * 1024)
#define LISTING_INODES 1000
int listing_compare(const char *captured, const char *now, enum listing_rule rule, struct error *e);
#endif
