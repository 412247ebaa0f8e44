#ifndef BOXERY_LAYERS_BUILD_H
#define BOXERY_LAYERS_BUILD_H
/*
 * Builds IMAGE_DIR/base/NAME/{disk.qcow2,vmlinuz,initrd,manifest.env,packages.txt} from layers.
 *
 *   plan       layers read, sources read, inputs hashed; unchanged since the last build: nothing is done
 *   download   boxery-fetch, one child per layer with an archive
 *   packages   mmdebstrap in a mount and PID namespace of its own, with the plan's script as its hook
 *   kernel     copied; on amd64 unpacked to an ELF file, which boots 3 s sooner under software emulation
 *   disk       the root folder becomes an ext4 file system (no boot, no mount), then a qcow2 file
 *   check      nothing in it that may not be in an image: host keys, a machine id, authorized keys
 *
 * Everything is made in base/.NAME.tmp (0700) and renamed whole at the end. A failure or a signal removes that folder;
 * what a killed build left is removed by the next one. One build of a name at a time (base/.NAME.lock).
 */
#include "base/error.h"
#include "layers/manifest.h"
#include "layers/plan.h"
#include <stdbool.h>

#define BUILD_DISK_GIB_DEFAULT 20
#define BUILD_FREE_MIB 4096 /* an unpacked root, its file system and the qcow2 file beside each other */
#define BUILD_MMDEBSTRAP_TIMEOUT_MS (60ull * 60 * 1000)
#define BUILD_TOOL_TIMEOUT_MS (15ull * 60 * 1000)

struct build_request {
	const char *name;
	struct plan_request plan;
	const struct layer_set *layers;
	const char *image_dir, *cache_dir;
	bool force, dry_run; /* dry_run: says what would be done, and does nothing */
};
/*
 * -EPERM: not root; -EBUSY: the image exists, would change, and VMs use it; -ENOSPC: too little space; -EBADMSG: a wrong
 * checksum; -ECANCELED: a signal. Progress lines go to stdout.
 */
int build_base(const struct build_request *q, struct error *e);
/* From a signal handler: ends the running child, and with it the build. */
void build_cancel(void);

/* One build under way. */
struct build {
	const struct build_request *q;
	uint64_t began_us, stage_us;
	char base_dir[300], work[400], root[420]; /* IMAGE_DIR/base, base/.NAME.tmp, work/root */
	int base_fd, work_fd;
	struct manifest manifest;
};
void build_say(struct build *b, const char *stage, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* build_run.c: a child to its end, its output in work/log; of one that fails the last lines are shown. what: for messages. */
int build_run(struct build *b, const char *what, const char *const *argv, uint64_t timeout_ms, struct error *e);
int build_fetch(struct build *b, const struct layer *l, char *ret_path, size_t size, struct error *e);
void build_show_log(struct build *b);
/* build_image.c */
int build_kernel(struct build *b, struct error *e);
int build_disk(struct build *b, struct error *e);
int build_check(struct build *b, struct error *e);
int build_record(struct build *b, struct error *e); /* packages.txt */
/* kernel.c: the ELF file inside a bzImage; -EOPNOTSUPP when it is not one or its compression is unknown. */
int kernel_unpack(const char *bzimage, const char *vmlinux, struct error *e);
#endif
