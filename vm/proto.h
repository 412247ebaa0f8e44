#ifndef BOXERY_VM_PROTO_H
#define BOXERY_VM_PROTO_H
/*
 * keeper -> boxery-vm, over the SOCK_SEQPACKET socket the child is born with as fd 3 (and nothing else but its log on 2).
 * One vm_request in, at once or any time later; then any number of VM_STEP / VM_ENTRY / VM_EVENT; then one vm_result (watch: never, it lives
 * until its socket closes). A result is the only success: a child that ends without one has failed. The peer is not
 * believed: it sends a verb, a checked name and numbers, never XML and never a path; boxery-vm renders the domain from
 * host.env and from the VM's own settings file (image folder, vms/NAME.env, written by VM_NEW).
 *
 * verb        takes                          does (all idempotent: repeating after a crash ends the same)
 * VM_CHECK    -                              connects, creates or starts network, filter and host rules; VM_STEP per check,
 *                                            text says virtualisation in use and why (probed by starting a guest)
 * VM_NEW      name, slot, cpus, memory_mib,  vms/NAME.env and the disk overlay vms/NAME.qcow2 on base/BASE
 *             disk_gib, image            or, with clean_of, no disk of its own: its starts are on images/CLEAN_OF@boxery-clean
 *             (clean_of)                       (its size is CLEAN_OF's; that VM cannot be removed before this one);
 *                                            VM_FLAG_FRESH: -EEXIST when anything of that name is there, whoever made it. What
 *                                            is there after VM_STEP_MAKING is this request's own: a VM_REMOVE undoes it
 * VM_START    name, generation, flags,       refuses a generation not above the recorded one, unless that very domain runs;
 *             delivery/admin key lines       overlay run/NAME.qcow2 (pool) or own disk (plain), domain, agent, begin, clean check;
 *                                            result: host_key, address, kvm, warm;
 *                                            VM_FLAG_WARM: restores the memory image of this VM instead of booting; when there is
 *                                            none, or none that fits this QEMU, machine and CPU, boots on a fresh overlay, captures
 *                                            memory and disk of the quiet guest before anything of a life is in it, and restores that;
 *                                            VM_FLAG_STANDBY with it: stays paused once the host's side of the check has passed;
 *                                            result: standby = 1 and no host_key; VM_WAKE does the rest
 * VM_WAKE     name, generation, key_line     a life that VM_START left in standby: resumes it, begin, clean check; result as of
 *                                            VM_START; a life that is awake already gets the same answer again
 * VM_RESET    name, generation, flags,       destroys the domain whatever its generation is up to `generation`, drops the overlay;
 *             image, clean_of                VM_FLAG_EVIDENCE: moves it to broken/NAME.qcow2 instead (dropped, and said, when it is
 *                                            larger than BOXERY_EVIDENCE_MAX); a later reset without the flag drops that too;
 *                                            result text: the path of the kept file, "" when there is none;
 *                                            VM_FLAG_HALT: destroys the domain only, the overlay stays where it is.
 *                                            With either flag the result's text is the path of what is kept, or "not kept: why"
 *                                            VM_FLAG_DROP_MEMORY, ignored beside those two: the memory image of the VM goes as
 *                                            well, so that its next warm start captures another;
 *                                            VM_FLAG_TRIAL: a patch is not decided yet, see VM_SETTLE
 * VM_GRANT    name, generation, key_line     adds one ssh public key to root's keys of a READY guest, through the agent
 * VM_STOP     name                           plain VM: clean shutdown through the agent, destroyed after timeout_ms
 * VM_CAPTURE  name                           plain VM that is off, as are those with clean_of NAME: its disk becomes images/NAME@boxery-clean/, read-only, bound to
 *                                            the base by identity and hash; the last good one is never deleted before
 * VM_PATCH    name, generation, image        pool VM: when the base image is intact, the VM's life ends and an empty layer on it becomes
 *                                            its clean state (its own, with clean_of too). The one before is kept beside it. -EBUSY
 *                                            while others have clean_of NAME
 * VM_SETTLE   name, image, clean_of          what VM_PATCH has left undecided: the clean state on `image` (clean_of "": its own) stays, the
 *                                            other one goes. VM_RESET does it, too, unless VM_FLAG_TRIAL, HALT or EVIDENCE
 * VM_REMOVE   name, flags                    domain, overlay, disk, clean image, reservation, settings file
 * VM_FILTER   name, generation               succeeds only when this life's filter is in force in the kernel (asked just now)
 * VM_UNINSTALL flags                         network, filter and host rules go; -EBUSY while a guest of ours runs, and while there are
 *                                            files of a VM unless VM_FLAG_FORCE. What a stranger made under our names is left, and so is a filter that other guests use
 * VM_LIST     -                              a VM_ENTRY per domain that carries our metadata, and per settings file without one
 * VM_WATCH    -                              on (re)connect: VM_ENTRY for each of our domains, then VM_EVENT SNAPSHOT;
 *                                            (an entry whose files are gone or changed says so in `trouble`; a VM that is off is
 *                                            listed here too when there is doubt about it; so is a name that only a stranger's
 *                                            copy of our metadata gives)
 *                                            then VM_EVENT per change, and the same listing again every 10 s. Keeps
 *                                            consoles under their cap, and the guard in force. Libvirt gone: VM_EVENT DISCONNECTED, retries.
 */
#include "base/parse.h"
#include "linux/msg.h"
#include <stdbool.h>

#define VM_SPARE_NAME "boxery-vm-spare" /* what ps calls a child that waits for its request */
#define VM_TEXT_MAX ERROR_TEXT_MAX
#define VM_STEP_MAX 32
#define VM_STEP_MAKING "making" /* VM_NEW, VM_FLAG_FRESH: nothing of that name was there, from now on there is */
#define VM_KEY_LINE_MAX 1024 /* a person's ssh public key: RSA of 4096 bits has 724 */
#define VM_HOST_KEY_MAX 512  /* ours, ed25519 */
#define VM_ADDRESS_MAX 46
#define VM_LABEL_MAX 64

enum vm_verb {
	VM_CHECK = 1,
	VM_NEW,
	VM_START,
	VM_RESET,
	VM_STOP,
	VM_CAPTURE,
	VM_REMOVE,
	VM_FILTER,
	VM_LIST,
	VM_WATCH,
	VM_GRANT,
	VM_WAKE,
	VM_UNINSTALL,
	VM_PATCH,
	VM_SETTLE,
	/* answers */
	VM_STEP = 32,
	VM_ENTRY,
	VM_EVENT,
	VM_RESULT,
	VM_TYPE_COUNT
};

enum vm_flag {
	VM_FLAG_PLAIN = 1 << 0, /* start: not from a clean image, its own disk, admin key accepted */
	VM_FLAG_FORCE = 1 << 1,
	VM_FLAG_EVIDENCE = 1 << 2,
	VM_FLAG_HALT = 1 << 3,
	VM_FLAG_WARM = 1 << 4,
	VM_FLAG_STANDBY = 1 << 5,
	VM_FLAG_DROP_MEMORY = 1 << 6,
	VM_FLAG_TRIAL = 1 << 7,
	VM_FLAG_FRESH = 1 << 8,
};

struct vm_request {
	struct msg_head head; /* type: the verb */
	char name[VM_NAME_MAX];
	uint64_t generation;
	uint32_t slot; /* 0..239: decides address, MAC and tap name */
	uint32_t cpus, memory_mib, disk_gib;
	uint32_t flags;
	uint32_t timeout_ms;
	char image[VM_NAME_MAX];             /* base image for VM_NEW */
	char key_line[VM_KEY_LINE_MAX];      /* VM_START: public half of the delivery key (pool) or admin key (plain) */
	char clean_of[VM_NAME_MAX];          /* VM_NEW: shares this VM's clean state */
	/* VM_START: of the pool; 0: no limit, or the VM's own */
	uint32_t start_cpus, start_memory_mib, disk_mib_per_s, disk_iops, net_kib_per_s;
};

struct vm_step { /* one stage done, for timelines and progress */
	struct msg_head head;
	char step[VM_STEP_MAX]; /* destroy overlay define agent begin check ... */
	uint64_t took_us;
	char text[VM_TEXT_MAX];
};

struct vm_entry { /* a domain or a definition of ours */
	struct msg_head head;
	char name[VM_NAME_MAX];
	uint64_t generation; /* from the domain's metadata; of a stopped VM the highest it has had, 0: none */
	uint32_t running;    /* 0: defined only by its settings file */
	uint32_t plain;      /* 1: no clean image */
	uint32_t stuck;      /* 1: QEMU has stopped it for good (the host's disk is full); trouble says so */
	uint32_t slot, cpus, memory_mib, disk_gib;
	char address[VM_ADDRESS_MAX];
	/* "" or a sentence: the overlay of a running VM is gone, its clean image was changed or is missing, its domain was
	 * edited or is there twice. Doubt: never handed out. */
	char trouble[VM_TEXT_MAX];
};

enum vm_event_kind {
	VM_EVENT_SNAPSHOT = 1, /* all entries of the current listing have been sent */
	VM_EVENT_STOPPED,
	VM_EVENT_DISCONNECTED,
	VM_EVENT_CONSOLE_CUT, /* a console reached its cap */
	VM_EVENT_UNGUARDED,   /* guests run and the host's rules against them were not in force; text: what, and whether they
				 are again */
};
struct vm_event_msg {
	struct msg_head head;
	int32_t kind; /* enum vm_event_kind */
	char name[VM_NAME_MAX];
	uint64_t generation;
	char text[VM_TEXT_MAX]; /* libvirt's words: "shutdown", "crashed", "destroyed" ... */
};

struct vm_result {
	struct msg_head head;
	int32_t code; /* 0 or -errno */
	uint32_t kvm;
	uint32_t warm;    /* VM_START: 1: its memory was restored */
	uint32_t standby; /* VM_START: 1: paused; VM_WAKE before it is used */
	char step[VM_STEP_MAX]; /* where it failed */
	char host_key[VM_HOST_KEY_MAX];
	char address[VM_ADDRESS_MAX];
	char text[VM_TEXT_MAX];
};
extern const size_t vm_message_sizes[VM_TYPE_COUNT];
#endif
