/*
 * Keys. The delivery key opens exactly one fixed command in a guest, the admin key opens an admin's own VM; both are made
 * once on this host by ssh-keygen and never leave state_dir, except that boxery-deliver inherits the delivery key as a
 * sealed memfd. Public halves go to boxery-vm with each start. VMs' own host keys come back from it, and are written where
 * a person's ssh finds them: config_dir/host-keys/NAME, in the form of known_hosts.
 */
#include "base/str.h"
#include "linux/file.h"
#include "linux/secret.h"
#include "linux/spawn.h"
#include "pool/keeper.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define KEY_FILE_MAX 4096
#define KEYGEN_TIMEOUT_MS 20000
#define HOST_KEYS "host-keys"

static int keygen(const char *const argv[], char **ret_stdout, struct error *e)
{
	struct spawn_options o = SPAWN_OPTIONS_INIT;

	o.program = "ssh-keygen";
	o.search_path = true;
	o.argv = argv;
	return spawn_capture(&o, KEYGEN_TIMEOUT_MS, KEY_FILE_MAX, ret_stdout, e);
}

/* Under another name first, and the private half last: a key that exists is whole. */
static int make_key(struct keeper *k, const char *name, struct error *e)
{
	char fresh[64], fresh_public[64], public[64], path[400], comment[64];
	const char *const argv[] = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path, NULL};
	int r = 0;

	if (str_format(fresh, "%s.new", name) < 0 || str_format(fresh_public, "%s.new.pub", name) < 0 ||
			str_format(public, "%s.pub", name) < 0 || str_format(comment, "boxery-%s", name) < 0 ||
			str_format(path, "%s/%s", k->conf.state_dir, fresh) < 0)
		return error_set(e, ENAMETOOLONG, "%s: the path is too long for a key", k->conf.state_dir);
	(void)unlinkat(k->state_dir, fresh, 0);
	(void)unlinkat(k->state_dir, fresh_public, 0);
	r = keygen(argv, NULL, e);
	if (r < 0)
		return error_wrap(e, "cannot make the key %s/%s", k->conf.state_dir, name);
	if (renameat(k->state_dir, fresh_public, k->state_dir, public) < 0 ||
			renameat(k->state_dir, fresh, k->state_dir, name) < 0)
		return error_errno(e, errno, "cannot put the key %s/%s in place", k->conf.state_dir, name);
	return dir_sync(k->state_dir, e);
}

/* The public half is derived anew each time, so that it always is this private half's. */
static int public_line(struct keeper *k, const char *name, char dst[static VM_KEY_LINE_MAX], struct error *e)
{
	CLEANUP_FREE char *text = NULL;
	char path[400];
	const char *const argv[] = {"ssh-keygen", "-y", "-f", path, NULL};
	int r = str_format(path, "%s/%s", k->conf.state_dir, name);

	if (r < 0)
		return error_set(e, ENAMETOOLONG, "%s: the path is too long for a key", k->conf.state_dir);
	r = keygen(argv, &text, e);
	if (r < 0)
		return error_wrap(e, "%s", path);
	text[strcspn(text, "\r\n")] = '\0';
	if (!str_starts(text, "ssh-ed25519 ") || str_copy_n(dst, VM_KEY_LINE_MAX, text) < 0)
		return error_set(e, EBADMSG, "%s is not an ed25519 key; remove it, and a new one is made", path);
	return 0;
}

static int load_key(struct keeper *k, const char *name, char dst[static VM_KEY_LINE_MAX], int *ret_memfd, struct error *e)
{
	char *text = NULL;
	size_t len = 0;
	int r;

	if (faccessat(k->state_dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		r = make_key(k, name, e);
		if (r < 0)
			return r;
	}
	r = file_read_private(k->state_dir, name, KEY_FILE_MAX, &text, &len, e);
	if (r < 0)
		return error_wrap(e, "%s", k->conf.state_dir);
	r = public_line(k, name, dst, e);
	if (r == 0 && ret_memfd)
		r = secret_memfd("boxery-delivery-key", text, len, ret_memfd, e);
	secret_wipe(text, len);
	free(text);
	return r;
}

int keys_load(struct keeper *k, struct error *e)
{
	int r = load_key(k, "delivery-key", k->delivery_line, &k->delivery_key, e);

	return r < 0 ? r : load_key(k, "admin-key", k->admin_line, NULL, e);
}

int host_key_check(const char *line, struct error *e)
{
	static const char type[] = "ssh-ed25519 ";
	size_t n;

	if (!str_starts(line, type))
		return error_set(e, EPROTO, "it is not an ssh-ed25519 key");
	line += sizeof(type) - 1;
	n = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=");
	return n > 0 && line[n] == '\0' ? 0 : error_set(e, EPROTO, "it is not base64");
}

int host_key_publish(struct keeper *k, const struct vm_row *row, struct error *e)
{
	CLEANUP_FD int dir = -1;
	char line[1024];
	int r = str_format(line, "%s,%s %s\n", row->name, row->address, row->host_key);

	if (r < 0)
		return error_set(e, ENAMETOOLONG, "%s: its host key is too long", row->name);
	if (mkdirat(k->config_dir, HOST_KEYS, 0700) < 0 && errno != EEXIST)
		return error_errno(e, errno, "%s/" HOST_KEYS, k->conf.config_dir);
	r = dir_open(k->config_dir, HOST_KEYS, &dir, e);
	if (r == 0)
		r = file_write_unsynced(dir, row->name, line, strlen(line), 0600, e); /* no life outlives a crash of the host */
	return r < 0 ? error_wrap(e, "%s/" HOST_KEYS, k->conf.config_dir) : 0;
}

void host_key_withdraw(struct keeper *k, const char *name)
{
	CLEANUP_FD int dir = -1;

	if (dir_open(k->config_dir, HOST_KEYS, &dir, NULL) == 0)
		(void)file_remove(dir, name, true, NULL);
}
