/* A person's ssh public key, read from a file: one line "TYPE BASE64 [COMMENT]" whose parts agree. Never a private key. */
#include "base/str.h"
#include "cli/host.h"
#include "linux/file.h"
#include "linux/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>

#define KEY_FILE_MAX (16 * 1024)
#define BLANKS " \t"

static const char *const key_types[] = {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
		"ssh-rsa", "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"};

/*
 * The blob is strings with their lengths before them, the first its type: in a line that was cut or mistyped something of this
 * does not come out even.
 */
static bool blob_is_whole(const char *base64, const char *type)
{
	unsigned char blob[KEEPER_LINE_MAX];
	size_t len = 0, at = 0, strings = 0;

	if (sodium_base642bin(blob, sizeof(blob), base64, strlen(base64), NULL, &len, NULL, sodium_base64_VARIANT_ORIGINAL))
		return false;
	while (at + 4 <= len) {
		size_t n = (size_t)blob[at] << 24 | (size_t)blob[at + 1] << 16 | (size_t)blob[at + 2] << 8 | blob[at + 3];

		at += 4;
		if (n == 0 || n > len - at || (strings == 0 && (n != strlen(type) || memcmp(blob + at, type, n) != 0)))
			return false;
		at += n;
		strings++;
	}
	return at == len && strings >= 2;
}

static int check_line(const char *path, char *line, char *dst, size_t size, struct error *e)
{
	char *save = NULL, *type = strtok_r(line, BLANKS, &save), *base64 = strtok_r(NULL, BLANKS, &save);
	bool known = false;

	for (size_t i = 0; type && i < ARRAY_SIZE(key_types); i++)
		known = known || str_equal(type, key_types[i]);
	if (!known)
		return error_set(e, EINVAL, "--ssh-key %s: not an ssh public key; its line begins with a type such as "
				"ssh-ed25519 (ssh-keygen -t ed25519 makes one)", path);
	if (base64 && strlen(type) + 1 + strlen(base64) >= size)
		return error_set(e, EINVAL, "--ssh-key %s: the key is longer than %zu bytes; use an ed25519, ECDSA or RSA key of at most 4096 bits", path,
				size - 1);
	if (!base64 || !blob_is_whole(base64, type))
		return error_set(e, EINVAL, "--ssh-key %s: the %s key in it is damaged or cut off", path, type);
	return str_format_n(dst, size, "%s %s", type, base64);
}

static int check_text(const char *path, char *text, size_t len, char *dst, size_t size, struct error *e)
{
	char *save = NULL, *found = NULL;

	if (strlen(text) != len)
		return error_set(e, EINVAL, "--ssh-key %s: not a text file", path);
	if (strstr(text, "PRIVATE KEY"))
		return error_set(e, EINVAL, "--ssh-key %s: this is a private key, which never leaves your side; give its "
				"public half (%s.pub)", path, path);
	for (char *line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save)) {
		line += strspn(line, BLANKS);
		if (!*line || *line == '#')
			continue;
		if (found)
			return error_set(e, EINVAL, "--ssh-key %s: more than one line; give a file with one public key", path);
		found = line;
	}
	if (!found)
		return error_set(e, EINVAL, "--ssh-key %s: the file is empty; give a file with one public key", path);
	return check_line(path, found, dst, size, e);
}

static int read_stdin(char **ret, size_t *ret_len, struct error *e)
{
	char *text = malloc(KEY_FILE_MAX + 1);
	size_t len = 0;
	ssize_t n;

	if (!text)
		return error_errno(e, ENOMEM, "standard input");
	while ((n = read(STDIN_FILENO, text + len, KEY_FILE_MAX - len)) > 0 || (n < 0 && errno == EINTR))
		len += n > 0 ? (size_t)n : 0;
	if (n < 0 || len == KEY_FILE_MAX) {
		int code = n < 0 ? errno : EFBIG;

		secret_wipe(text, len);
		free(text);
		return error_errno(e, code, "standard input");
	}
	text[len] = '\0';
	*ret = text;
	*ret_len = len;
	return 0;
}

int cli_public_key(const char *path, char *dst, size_t size, struct error *e)
{
	struct error other = ERROR_INIT;
	char beside[512], *text = NULL;
	size_t len = 0;
	bool from_stdin = str_equal(path, "-");
	int code = from_stdin ? read_stdin(&text, &len, e) : file_read(AT_FDCWD, path, KEY_FILE_MAX, &text, &len, e);

	if (code == -ENOENT && str_format(beside, "%s.pub", path) == 0 &&
			file_read(AT_FDCWD, beside, KEY_FILE_MAX, &text, &len, &other) == 0) {
		error_clear(e);
		path = beside;
		code = 0;
	}
	if (code == -ENOENT)
		return error_set(e, ENOENT, "--ssh-key: there is neither %s nor %s.pub", path, path);
	if (code < 0)
		return error_wrap(e, "--ssh-key");
	code = check_text(path, text, len, dst, size, e);
	secret_wipe(text, len);
	free(text);
	return code;
}
