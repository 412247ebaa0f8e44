/*
 * What a child of boxery-vm says, made fit for use: right size for its type, texts with an end, everything that will be
 * shown made printable. boxery-vm speaks to libvirt and to guests' agents, so its words are somebody else's words.
 */
#include "base/str.h"
#include "pool/keeper.h"
#include <errno.h>
#include <string.h>

static const size_t work_sizes[VM_TYPE_COUNT] = {
	[VM_STEP] = sizeof(struct vm_step),
	[VM_ENTRY] = sizeof(struct vm_entry),
	[VM_RESULT] = sizeof(struct vm_result),
};
static const size_t watch_sizes[VM_TYPE_COUNT] = {
	[VM_STEP] = sizeof(struct vm_step),
	[VM_ENTRY] = sizeof(struct vm_entry),
	[VM_EVENT] = sizeof(struct vm_event_msg),
	[VM_RESULT] = sizeof(struct vm_result), /* why it ends */
};

/* In place; a text that had to be made visible may lose its end. */
static bool show(char *text, size_t size)
{
	char shown[ERROR_TEXT_MAX];

	if (!str_is_terminated(text, size))
		return false;
	str_show_n(shown, size < sizeof(shown) ? size : sizeof(shown), text, strlen(text));
	memcpy(text, shown, strlen(shown) + 1);
	return true;
}

static bool name_ok(const char *name, size_t size)
{
	return str_is_terminated(name, size) && name_valid(name);
}

static bool make_fit(union vm_answer *a)
{
	switch (a->head.type) {
	case VM_STEP:
		return show(a->step.step, sizeof(a->step.step)) && show(a->step.text, sizeof(a->step.text));
	case VM_ENTRY:
		return name_ok(a->entry.name, sizeof(a->entry.name)) &&
				show(a->entry.address, sizeof(a->entry.address)) &&
				show(a->entry.trouble, sizeof(a->entry.trouble));
	case VM_EVENT:
		/* A snapshot and a lost connection are about no VM. */
		return (name_ok(a->event.name, sizeof(a->event.name)) || a->event.name[0] == '\0') &&
				show(a->event.text, sizeof(a->event.text));
	case VM_RESULT:
		return show(a->result.step, sizeof(a->result.step)) && show(a->result.text, sizeof(a->result.text)) &&
				show(a->result.address, sizeof(a->result.address)) &&
				str_is_terminated(a->result.host_key, sizeof(a->result.host_key));
	default:
		return false;
	}
}

int vm_answer_receive(int fd, bool watch, union vm_answer *ret, struct error *e)
{
	int fds[MSG_FDS_MAX];
	int r = msg_recv(fd, watch ? watch_sizes : work_sizes, VM_TYPE_COUNT, ret, sizeof(*ret), fds, NULL, e);

	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		fds[i] = fd_close(fds[i]); /* none is expected */
	if (r == 1 && !make_fit(ret))
		return error_set(e, EBADMSG, "boxery-vm sent a message with bad text");
	return r;
}

#define LISTING_STEP 32

int listing_add(struct listing *l, const struct vm_entry *entry)
{
	if (l->n >= KEEPER_ENTRIES_MAX)
		return -E2BIG;
	if (l->n == l->cap) {
		struct vm_entry *p = reallocarray(l->entries, l->cap + LISTING_STEP, sizeof(*p));

		if (!p)
			return -ENOMEM;
		l->entries = p;
		l->cap += LISTING_STEP;
	}
	l->entries[l->n++] = *entry;
	return 0;
}

void listing_free(struct listing *l)
{
	free(l->entries);
	*l = (struct listing){0};
}
