#ifndef BOXERY_LAYERS_MANIFEST_H
#define BOXERY_LAYERS_MANIFEST_H
/*
 * base/NAME/manifest.env: what a base image is and what it was made from. KEY=VALUE lines, as linux/file.h reads them:
 * ARCH (amd64, arm64), SUITE, KERNEL and INITRD (files beside it), CMDLINE, DISK_SHA256 and DISK_FILE_SIZE (of disk.qcow2),
 * DISK_SIZE (of the disk the guest sees), LAYERS (as asked for), ALL_LAYERS (with what they require), RUNNER_VERSION (of the
 * layer with a download, empty without), INPUTS (plan_inputs), BUILT_AT. Readers skip keys they do not know.
 */
#include "base/error.h"
#include "layers/layer.h"
#include <stdint.h>

#define MANIFEST_FILE "manifest.env"
#define MANIFEST_DISK "disk.qcow2"

struct manifest {
	char arch[8], suite[40], kernel[64], initrd[64], cmdline[512];
	char disk_sha256[LAYER_SHA256_MAX], inputs[LAYER_SHA256_MAX];
	char layers[512], all_layers[700], runner_version[64], built_at[24];
	uint64_t disk_size, disk_file_size;
};
int manifest_write(int dirfd, const struct manifest *m, struct error *e);
int manifest_read(int dirfd, const char *shown, struct manifest *ret, struct error *e);
#endif
