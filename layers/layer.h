#ifndef BOXERY_LAYERS_LAYER_H
#define BOXERY_LAYERS_LAYER_H
/*
 * A layer: one YAML file that says what it adds to an image. LAYERS_DIR/NAME.yaml, at most LAYER_FILE_MAX bytes:
 *
 *   name: github-runner                  the file's name without .yaml
 *   description: one line for people
 *   requires: [debian]                   layers that come before this one
 *   packages: [git, curl]                Debian packages, installed with what they depend on, nothing recommended;
 *                                        {arch} in a name stands for Debian's word for the architecture
 *   files:                               in this order, after the packages
 *     - source: guest/begin              beside the layers folder, or in boxery's data folder (plan.h); or
 *       content: "text"                  the text itself; exactly one of the two
 *       dest: /usr/lib/boxery/begin      absolute; folders are made
 *       mode: "0755"                     default "0644"
 *       owner: root:root                 default root:root
 *   users:                               made before the files
 *     - {name: runner, uid: 1001, shell: /bin/bash, groups: [sudo]}
 *   units: {enable: [], disable: [], mask: []}
 *   download:                            one archive (tar, any compression), checked, unpacked after the files
 *     version: 2.338.0
 *     url: https://example.org/{version}/thing-{arch}.tar.gz      https; http only to a loopback address
 *     arch: {amd64: x64, arm64: arm64}   what {arch} becomes; default: Debian's own word
 *     sha256: {amd64: HEX, arm64: HEX}   no sum for an architecture: no build for it
 *     dest: /opt/thing
 *   ca_certificates: [certs/own.pem]     source paths; trusted by the guest
 *   run:                                 shell text, run by sh -eu in the image, after the files of all layers
 *     - "systemctl set-default multi-user.target"
 *
 * Every key but name is optional; an unknown or repeated key, a wrong kind of value or a bad value is an error
 * (-EBADMSG) that starts with FILE:LINE. A file is data until an administrator gives it to boxery-build; then its `run`
 * texts are root in the image's chroot, so layer files are as trusted as programs.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/parse.h"
#include <stdint.h>
#include <sys/types.h>

#define LAYER_FILE_MAX (64u * 1024)
#define LAYER_LIST_MAX 512u /* entries of one list */
#define LAYER_TEXT_MAX (16u * 1024)
#define LAYER_SHA256_MAX 65
#define LAYERS_MAX 16u

enum layer_arch { LAYER_AMD64, LAYER_ARM64, LAYER_ARCH_COUNT };
const char *layer_arch_to_string(enum layer_arch v);
int layer_arch_from_string(const char *s, enum layer_arch *ret);
int layer_arch_host(enum layer_arch *ret, struct error *e); /* of this machine */

/* Strings belong to the layer. Lists have n entries. */
struct layer_list {
	const char **items;
	size_t n;
};
struct layer_file {
	const char *source, *content; /* exactly one is set */
	const char *dest, *owner;
	mode_t mode;
	unsigned line;
};
struct layer_user {
	const char *name, *shell;
	uint32_t uid;
	struct layer_list groups;
};
struct layer_download {
	const char *version, *url, *dest; /* url NULL: no download */
	const char *arch[LAYER_ARCH_COUNT], *sha256[LAYER_ARCH_COUNT]; /* sha256 NULL: not for this architecture */
	unsigned line;
};
struct layer {
	const char *name, *description;
	struct layer_list requires, packages, enable, disable, mask, ca_certificates, run;
	struct layer_file *files;
	size_t n_files;
	struct layer_user *users;
	size_t n_users;
	struct layer_download download;
	char shown[512];  /* path, for messages */
	char folder[400]; /* LAYERS_DIR it came from; "" for a parsed text */
	char *text;       /* the file as read; what a build's inputs are hashed from */
	size_t text_len;
	struct layer_document *document; /* owns every string above */
};

/* Parses and checks one text; `shown` is used in messages; its name must be `expected_name` unless that is NULL. */
int layer_parse(const char *shown, const char *expected_name, const char *data, size_t len, struct layer **ret,
		struct error *e);
int layer_load(const char *folder, const char *name, struct layer **ret, struct error *e);
struct layer *layer_free(struct layer *l);
DEFINE_CLEANUP(struct layer *, layer_free);

/* The download's URL for an architecture, placeholders replaced. -EOPNOTSUPP when it has no sum for it. */
int layer_download_url(const struct layer *l, enum layer_arch arch, char *dst, size_t size, struct error *e);

/* Layers in the order they are applied: what one requires comes before it, each once. */
struct layer_set {
	struct layer *items[LAYERS_MAX];
	size_t n;
};
/*
 * names: n of them; folders: searched in order for each name. -ENOENT with the folders in the text when a layer is
 * missing, -ELOOP with the path when layers require each other, -E2BIG past LAYERS_MAX.
 */
int layer_set_load(const char *const *folders, size_t n_folders, const char *const *names, size_t n,
		struct layer_set *ret, struct error *e);
void layer_set_free(struct layer_set *s);
#define CLEANUP_LAYER_SET __attribute__((cleanup(layer_set_free)))
#endif
