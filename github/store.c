#include "github/store.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "github/app.h"
#include "github/credential.h"
#include "linux/file.h"
#include "linux/hostconf.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define INPUT_MAX GITHUB_APP_KEY_MAX

struct setting {
	const char *key, *value; /* NULL: leave what is there; "": leave it out */
};

struct rewrite {
	const struct setting *settings;
	size_t n;
	struct buf *out;
};

/* Keeps the lines of the old file that nothing new is said about. */
static int keep_line(void *userdata, const char *key, const char *value, struct error *e)
{
	struct rewrite *w = userdata;

	for (size_t i = 0; i < w->n; i++)
		if (str_equal(w->settings[i].key, key) && w->settings[i].value)
			return 0;
	return buf_addf(w->out, "%s=%s\n", key, value) < 0 ? error_set(e, ENOMEM, "no memory for runners.env") : 0;
}

static int read_all(char *data, size_t size, size_t *ret_len, struct error *e)
{
	size_t len = 0;

	while (len < size) {
		ssize_t n = read(STDIN_FILENO, data + len, size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(e, errno, "cannot read standard input");
		if (n == 0)
			break;
		len += (size_t)n;
		/* A person ends a token with the return key. */
		if (isatty(STDIN_FILENO) && memchr(data, '\n', len))
			break;
	}
	if (len == size)
		return error_set(e, EINVAL, "standard input is larger than %d bytes", INPUT_MAX);
	data[len] = '\0';
	*ret_len = len;
	return 0;
}

/* From a terminal without an echo. */
static int read_secret(char *data, size_t size, size_t *ret_len, struct error *e)
{
	struct termios before, quiet;
	bool terminal = tcgetattr(STDIN_FILENO, &before) == 0;
	int r;

	if (terminal) {
		(void)fputs("Token (not shown): ", stderr);
		quiet = before;
		quiet.c_lflag &= ~(tcflag_t)ECHO;
		if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) < 0)
			return error_errno(e, errno, "the terminal's echo cannot be turned off");
	}
	r = read_all(data, size, ret_len, e);
	if (terminal) {
		(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
		(void)fputc('\n', stderr);
	}
	return r;
}

/* One line, as an editor or echo leaves it. */
static int trim_token(char *token, struct error *e)
{
	size_t len = strlen(token);

	while (len > 0 && (token[len - 1] == '\n' || token[len - 1] == '\r' || token[len - 1] == ' '))
		token[--len] = '\0';
	return credential_check_token(token, "the token", e);
}

static int check_key(const struct store_options *o, const char *pem, size_t len, struct error *e)
{
	char jwt[APP_JWT_MAX];
	int r = app_jwt(o->app_id, pem, len, APP_JWT_BEFORE_S, "check", jwt, e);

	secret_wipe(jwt, sizeof(jwt));
	return r;
}

static int write_env(int dir, const char *shown, const struct setting *settings, size_t n, struct error *e)
{
	CLEANUP_BUF struct buf text = BUF_INIT(ENVFILE_MAX);
	struct rewrite w = {settings, n, &text};
	char *old = NULL;
	size_t len = 0;
	int r = file_read_private(dir, CREDENTIAL_ENV_NAME, ENVFILE_MAX, &old, &len, e);

	if (r == -ENOENT)
		error_clear(e);
	else if (r < 0)
		return r;
	else
		r = envfile_parse(shown, old, len, keep_line, &w, e);
	if (old)
		secret_wipe(old, len);
	free(old);
	if (r < 0 && r != -ENOENT)
		return r;
	r = 0;
	for (size_t i = 0; i < n && r == 0; i++)
		if (settings[i].value && settings[i].value[0])
			r = buf_addf(&text, "%s=%s\n", settings[i].key, settings[i].value);
	if (r < 0)
		r = error_set(e, ENOMEM, "%s would be too long", shown);
	else
		r = file_write_atomic(dir, CREDENTIAL_ENV_NAME, text.data, text.len, 0600, e);
	if (text.data)
		secret_wipe(text.data, text.len);
	return r;
}

/* What was written has to be what will be read, before it takes the place of what works. */
static int check_settings(const struct setting *settings, size_t n, struct error *e)
{
	char url[GITHUB_URL_MAX];

	for (size_t i = 0; i < n; i++) {
		const char *value = settings[i].value;
		int r = 0;

		if (!value || !value[0])
			continue;
		if (strpbrk(value, "\n\r"))
			return error_set(e, EINVAL, "%s has a line end in it", settings[i].key);
		if (str_equal(settings[i].key, "BOXERY_GITHUB_URL"))
			r = base_url_check(value, url, sizeof(url), e);
		else if (str_equal(settings[i].key, "BOXERY_GITHUB_HOST"))
			r = base_url_of_host(value, url, sizeof(url), e);
		else if (str_equal(settings[i].key, "BOXERY_GITHUB_PROXY"))
			r = proxy_url_check(value, url, sizeof(url), e);
		else if (str_equal(settings[i].key, "BOXERY_GITHUB_CA_FILE") && value[0] != '/')
			r = error_set(e, EINVAL, "the CA file must be an absolute path");
		if (r < 0)
			return r;
	}
	return 0;
}

static int store_read(const char *folder, const struct store_options *o, char *input, struct error *e)
{
	CLEANUP(credential_free) struct credential check = {0};
	CLEANUP_FD int dir = -1;
	char shown[512];
	size_t len = 0;
	bool app = o->app_id != NULL;
	int r = read_secret(input, INPUT_MAX + 1, &len, e);

	if (r >= 0)
		r = app ? check_key(o, input, len, e) : trim_token(input, e);
	const struct setting settings[] = {
		{"GITHUB_TOKEN", app ? "" : input},
		{"GITHUB_APP_ID", app ? o->app_id : ""},
		{"GITHUB_APP_INSTALLATION_ID", app ? o->installation : ""},
		{"GITHUB_APP_KEY_FILE", app ? CREDENTIAL_KEY_NAME : ""},
		{"BOXERY_GITHUB_HOST", o->url ? "" : o->host},
		{"BOXERY_GITHUB_URL", o->host ? "" : o->url},
		{"BOXERY_GITHUB_CA_FILE", o->ca_file},
		{"BOXERY_GITHUB_PROXY", o->proxy},
	};
	if (r >= 0)
		r = check_settings(settings, ARRAY_SIZE(settings), e);
	if (r >= 0)
		r = dir_make(folder, 0700, e);
	if (r >= 0)
		r = dir_open(AT_FDCWD, folder, &dir, e);
	if (r >= 0 && app)
		r = file_write_atomic(dir, CREDENTIAL_KEY_NAME, input, len, 0600, e);
	if (r < 0)
		return r;
	if (str_format(shown, "%s/" CREDENTIAL_ENV_NAME, folder) < 0)
		return error_set(e, ENAMETOOLONG, "%s: too long", folder);
	r = write_env(dir, shown, settings, ARRAY_SIZE(settings), e);
	if (r >= 0)
		r = credential_load(shown, &check, e);
	if (r < 0)
		return r;
	(void)printf("%s: %s for %s; a running service uses it from its next question on\n", shown, check.kind, check.base_url);
	return 0;
}

int store_credential(const char *folder, const struct store_options *o, struct error *e)
{
	char input[INPUT_MAX + 2];
	int r = store_read(folder, o, input, e);

	secret_wipe(input, sizeof(input));
	return r;
}

int store_main(int argc, char **argv)
{
	static const struct option options[] = {{"app", required_argument, NULL, 'a'},
		{"installation", required_argument, NULL, 'i'}, {"host", required_argument, NULL, 'h'},
		{"url", required_argument, NULL, 'u'}, {"ca", required_argument, NULL, 'c'},
		{"proxy", required_argument, NULL, 'p'}, {NULL, 0, NULL, 0}};
	struct store_options o = {0};
	struct hostconf conf;
	struct error e = ERROR_INIT;
	int got;

	while ((got = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (got) {
		case 'a':
			o.app_id = optarg;
			break;
		case 'i':
			o.installation = optarg;
			break;
		case 'h':
			o.host = optarg;
			break;
		case 'u':
			o.url = optarg;
			break;
		case 'c':
			o.ca_file = optarg;
			break;
		case 'p':
			o.proxy = optarg;
			break;
		default:
			return EXIT_STATUS_USAGE;
		}
	if (optind < argc)
		(void)error_set(&e, EINVAL, "a token is read from standard input, never taken as an argument");
	else if (!o.app_id != !o.installation)
		(void)error_set(&e, EINVAL, "an App is --app ID together with --installation NUMBER");
	else if (o.host && o.host[0] && o.url && o.url[0])
		(void)error_set(&e, EINVAL, "--host and --url say the same thing; give one");
	if (!e.code && secret_init(&e) >= 0 && hostconf_load(&conf, &e) >= 0)
		(void)store_credential(conf.config_dir, &o, &e);
	if (!e.code)
		return EXIT_STATUS_OK;
	credential_redact(NULL, e.text);
	(void)fprintf(stderr, "boxery-github: %s\n", e.text);
	return error_exit_status(&e);
}
