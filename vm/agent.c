#include "vm/agent.h"
#include "base/str.h"
#include "linux/clock.h"
#include <errno.h>
#include <jansson.h>
#include <libvirt/libvirt-qemu.h>
#include <libvirt/virterror.h>
#include <malloc.h>
#include <sodium.h>
#include <string.h>

/* Of a guest that was restored libvirt learns within some 20 ms that its agent is there; a boot takes seconds. */
#define PING_FIRST_MS 10
#define PING_INTERVAL_MS 100
/* What begins a life takes some 20 ms and is waited for by somebody; the rest takes seconds. */
#define STATUS_FIRST_MS 5
#define STATUS_INTERVAL_MS 50
#define CALL_TIMEOUT_S 10

/* What a JSON text or tree held may have been a private key. */
static void wiping_free(void *p)
{
	if (p)
		secret_wipe(p, malloc_usable_size(p));
	free(p);
}

static void cleanup_wiping(char **p)
{
	wiping_free(*p);
}

/* One command, its "return" value. */
static int call(virDomainPtr d, json_t *command, int timeout_s, json_t **ret, struct error *e)
{
	CLEANUP(cleanup_wiping) char *text = NULL;
	CLEANUP_FREE char *answer = NULL;
	CLEANUP(json_decrefp) json_t *root = NULL;
	json_t *value;

	text = json_dumps(command, JSON_COMPACT);
	if (!text)
		return error_errno(e, ENOMEM, "cannot write an agent command");
	answer = virDomainQemuAgentCommand(d, text, timeout_s, 0);
	if (!answer)
		return virt_error(e, "the guest agent of %s does not answer", virDomainGetName(d));
	if (strlen(answer) > 4 * AGENT_OUTPUT_MAX)
		return error_set(e, EBADMSG, "the guest agent of %s answered %zu bytes", virDomainGetName(d),
			strlen(answer));
	root = json_loads(answer, JSON_REJECT_DUPLICATES, NULL);
	value = json_object_get(root, "return");
	if (!value)
		return error_set(e, EBADMSG,
			"the guest agent of %s answered something that is not understood",
			virDomainGetName(d));
	*ret = json_incref(value);
	return 0;
}

static json_t *command_new(const char *execute, json_t *arguments)
{
	json_set_alloc_funcs(malloc, wiping_free);
	return arguments ? json_pack("{s:s, s:o}", "execute", execute, "arguments", arguments)
			 : json_pack("{s:s}", "execute", execute);
}

int agent_wait(virDomainPtr d, uint64_t timeout_ms, struct error *e)
{
	const uint64_t until = clock_boot_us() + timeout_ms * 1000u;
	struct error last = ERROR_INIT;
	unsigned interval = PING_FIRST_MS;
	int r;

	for (;;) {
		CLEANUP(json_decrefp) json_t *command = command_new("guest-ping", NULL), *answer = NULL;

		if (!command)
			return error_errno(e, ENOMEM, "cannot write an agent command");
		if (call(d, command, CALL_TIMEOUT_S, &answer, &last) == 0)
			return 0;
		r = virt_runs_check(d, e);
		if (r < 0)
			return r;
		if (r == 0)
			return error_set(e, ENOTCONN, "the guest stopped before its agent answered");
		if (clock_boot_us() >= until)
			return error_set(e, ETIMEDOUT, "the guest agent did not answer in %llu s (%s)",
				(unsigned long long)(timeout_ms / 1000), last.text);
		host_sleep_ms(interval);
		interval = interval * 2 < PING_INTERVAL_MS ? interval * 2 : PING_INTERVAL_MS;
	}
}

/* Takes args over. */
static int exec_start(virDomainPtr d, const char *path, json_t *args, const void *input, size_t input_len,
	json_int_t *ret_pid, struct error *e)
{
	CLEANUP(json_decrefp) json_t *command = NULL, *answer = NULL;
	CLEANUP(cleanup_wiping) char *base64 = NULL;
	size_t size = sodium_base64_encoded_len(input_len, sodium_base64_VARIANT_ORIGINAL);
	json_t *pid;
	int r;

	base64 = malloc(size);
	if (!base64) {
		json_decref(args);
		return error_errno(e, ENOMEM, "input of %s", path);
	}
	(void)sodium_bin2base64(base64, size, input, input_len, sodium_base64_VARIANT_ORIGINAL);
	command = command_new("guest-exec", json_pack("{s:s, s:o, s:s, s:b}", "path", path, "arg", args,
						    "input-data", base64, "capture-output", 1));
	if (!command)
		return error_errno(e, ENOMEM, "cannot write an agent command");
	r = call(d, command, CALL_TIMEOUT_S, &answer, e);
	if (r < 0)
		return r;
	pid = json_object_get(answer, "pid");
	if (!json_is_integer(pid))
		return error_set(e, EBADMSG, "the guest agent did not say which process it started");
	*ret_pid = json_integer_value(pid);
	return 0;
}

/* Decodes a field of base64 text, bounded; a missing one is empty. */
static int output(json_t *status, const char *field, char **ret, size_t *ret_len, struct error *e)
{
	const char *s = json_string_value(json_object_get(status, field));
	CLEANUP_FREE char *out = NULL;
	size_t n = s ? strlen(s) : 0, len = 0;

	if (n > 2 * AGENT_OUTPUT_MAX)
		return error_set(
			e, EBADMSG, "%s of a guest command is larger than %d bytes", field, AGENT_OUTPUT_MAX);
	out = malloc(n + 1);
	if (!out)
		return error_errno(e, ENOMEM, "output of a guest command");
	if (n > 0 && sodium_base642bin((unsigned char *)out, n, s, n, NULL, &len, NULL,
			     sodium_base64_VARIANT_ORIGINAL) != 0)
		return error_set(e, EBADMSG, "%s of a guest command is not base64", field);
	out[len] = '\0';
	*ret = TAKE_PTR(out);
	*ret_len = len;
	return 0;
}

/* The program has ended: its exit status as an error with its last words. */
static int exec_result(json_t *status, const char *path, char **ret_stdout, struct error *e)
{
	CLEANUP_FREE char *out = NULL, *err = NULL;
	json_t *code = json_object_get(status, "exitcode");
	size_t out_len = 0, err_len = 0, from;
	char words[256];
	int r;

	r = output(status, "out-data", &out, &out_len, e);
	if (r == 0)
		r = output(status, "err-data", &err, &err_len, e);
	if (r < 0)
		return r;
	while (err_len > 0 && err[err_len - 1] == '\n')
		err_len--;
	for (from = err_len; from > 0 && err[from - 1] != '\n';)
		from--;
	str_show_n(words, sizeof(words), err + from, err_len - from);
	if (!json_is_integer(code))
		return error_set(e, EIO, "%s in the guest was ended by a signal: %s", path, words);
	if (json_integer_value(code) != 0)
		return error_set(e, EIO, "%s in the guest failed with status %d: %s", path,
			(int)json_integer_value(code), words);
	if (strlen(out) != out_len)
		return error_set(e, EBADMSG, "%s in the guest wrote a NUL byte", path);
	*ret_stdout = TAKE_PTR(out);
	return 0;
}

int agent_exec(virDomainPtr d, const char *path, const char *argument, const void *input, size_t input_len, uint64_t timeout_ms,
	char **ret_stdout, struct error *e)
{
	const uint64_t until = clock_boot_us() + timeout_ms * 1000u;
	unsigned interval = STATUS_FIRST_MS;
	json_int_t pid = -1;
	int r;

	json_set_alloc_funcs(malloc, wiping_free);
	r = exec_start(d, path, argument ? json_pack("[s]", argument) : json_array(), input, input_len, &pid, e);
	while (r == 0) {
		CLEANUP(json_decrefp) json_t *command = NULL, *status = NULL;

		host_sleep_ms(interval);
		interval = interval * 2 < STATUS_INTERVAL_MS ? interval * 2 : STATUS_INTERVAL_MS;
		command = command_new("guest-exec-status", json_pack("{s:I}", "pid", pid));
		if (!command)
			return error_errno(e, ENOMEM, "cannot write an agent command");
		r = call(d, command, CALL_TIMEOUT_S, &status, e);
		/* A guest that is busy with it, on a busy host, may not come to answer. */
		if (r == -EHOSTUNREACH && clock_boot_us() < until && virt_runs(d)) {
			error_clear(e);
			r = 0;
			continue;
		}
		if (r < 0)
			break;
		if (json_is_true(json_object_get(status, "exited")))
			return exec_result(status, path, ret_stdout, e);
		if (clock_boot_us() >= until)
			return error_set(e, ETIMEDOUT, "%s in the guest had not ended after %llu s", path,
				(unsigned long long)(timeout_ms / 1000));
	}
	return r;
}

int agent_clock_skew_ms(virDomainPtr d, uint64_t *ret, struct error *e)
{
	uint64_t before = clock_wall_us(), after, guest;
	long long seconds;
	unsigned nanoseconds;

	if (virDomainGetTime(d, &seconds, &nanoseconds, 0) < 0)
		return virt_error(e, "cannot read the clock of %s", virDomainGetName(d));
	after = clock_wall_us();
	if (seconds < 0)
		return error_set(e, EBADMSG, "the clock of %s is before 1970", virDomainGetName(d));
	/* It was read somewhere between the two: what counts is how far outside it is. */
	guest = (uint64_t)seconds * 1000000u + nanoseconds / 1000u;
	*ret = (guest < before ? before - guest : guest > after ? guest - after : 0) / 1000u;
	return 0;
}

int agent_clock_set(virDomainPtr d, struct error *e)
{
	uint64_t now = clock_wall_us();

	if (virDomainSetTime(d, (long long)(now / 1000000u), (unsigned)(now % 1000000u) * 1000u, 0) < 0)
		return virt_error(e, "cannot set the clock of %s", virDomainGetName(d));
	return 0;
}

int agent_poweroff(virDomainPtr d, struct error *e)
{
	json_int_t pid;
	json_t *args;

	json_set_alloc_funcs(malloc, wiping_free);
	args = json_pack(
		"[s, s, s, s]", "start", "--no-block", "--job-mode=replace-irreversibly", "poweroff.target");
	return exec_start(d, "/usr/bin/systemctl", args, "", 0, &pid, e);
}
