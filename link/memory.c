/*
 * Memory that is wiped when it is given back. There is no portable way to ask how large a block is, so its size stands in
 * front of it.
 */
#include "link/link.h"

#include <stdlib.h>

union head {
	size_t size;
	max_align_t align;
};

void link_wipe(void *p, size_t len)
{
	volatile unsigned char *byte = p;

	while (len > 0)
		byte[--len] = 0;
}

void *link_memory(size_t size)
{
	union head *h = size > SIZE_MAX - sizeof(*h) ? NULL : malloc(sizeof(*h) + size);

	if (!h)
		return NULL;
	h->size = size;
	return h + 1;
}

void link_memory_free(void *p)
{
	union head *h = p;

	if (!h)
		return;
	h--;
	link_wipe(h, sizeof(*h) + h->size);
	free(h);
}

void link_wipe_memory(void)
{
	json_set_alloc_funcs(link_memory, link_memory_free);
}
