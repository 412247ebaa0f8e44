#include "vm/proto.h"

const size_t vm_message_sizes[VM_TYPE_COUNT] = {
	[VM_CHECK] = sizeof(struct vm_request),
	[VM_NEW] = sizeof(struct vm_request),
	[VM_START] = sizeof(struct vm_request),
	[VM_RESET] = sizeof(struct vm_request),
	[VM_STOP] = sizeof(struct vm_request),
	[VM_CAPTURE] = sizeof(struct vm_request),
	[VM_REMOVE] = sizeof(struct vm_request),
	[VM_FILTER] = sizeof(struct vm_request),
	[VM_LIST] = sizeof(struct vm_request),
	[VM_WATCH] = sizeof(struct vm_request),
	[VM_GRANT] = sizeof(struct vm_request),
	[VM_WAKE] = sizeof(struct vm_request),
	[VM_UNINSTALL] = sizeof(struct vm_request),
	[VM_PATCH] = sizeof(struct vm_request),
	[VM_SETTLE] = sizeof(struct vm_request),
	[VM_STEP] = sizeof(struct vm_step),
	[VM_ENTRY] = sizeof(struct vm_entry),
	[VM_EVENT] = sizeof(struct vm_event_msg),
	[VM_RESULT] = sizeof(struct vm_result),
};
