#include "vm/begin.h"
#include "base/cleanup.h"
#include "linux/clock.h"
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static int add_base64(struct buf *b, const char *key, const void *data, size_t len)
{
	size_t size = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
	char *text = malloc(size);
	int r;

	if (!text)
		return -ENOMEM;
	(void)sodium_bin2base64(text, size, data, len, sodium_base64_VARIANT_ORIGINAL);
	r = buf_addf(b, "%s %s\n", key, text);
	secret_wipe(text, size);
	free(text);
	return r;
}

static int add_key_lines(struct buf *b, const char *lines, bool delivery, struct error *e)
{
	int r = 0, count = 0;

	while (r == 0 && *lines) {
		char line[BEGIN_LINE_MAX], full[BEGIN_LINE_MAX];
		size_t n = strcspn(lines, "\n");

		if (n >= sizeof(line))
			return error_set(
				e, EINVAL, "a public key line has more than %zu bytes", sizeof(line) - 1);
		memcpy(line, lines, n);
		line[n] = '\0';
		lines += n + (lines[n] == '\n');
		if (n == 0)
			continue;
		r = hostkey_line_check(line, e);
		if (r < 0)
			return r;
		r = str_format(full, "%s%s", delivery ? DELIVERY_OPTIONS : "", line);
		if (r == 0)
			r = add_base64(b, "authorized_key", full, strlen(full));
		count++;
	}
	if (r < 0)
		return error_errno(e, -r, "cannot write the keys of the guest");
	return count > 0 ? 0 : error_set(e, EINVAL, "no public key was given for the guest");
}

int begin_render(struct buf *b, uint64_t generation, const char *address, const char *key_lines,
	bool delivery, const struct hostkey *key, struct error *e)
{
	unsigned char seed[BEGIN_SEED_SIZE];
	int r;

	randombytes_buf(seed, sizeof(seed));
	r = add_base64(b, "seed", seed, sizeof(seed));
	secret_wipe(seed, sizeof(seed));
	if (r == 0)
		r = buf_addf(b, "generation %llu\naddress %s\n", (unsigned long long)generation, address);
	if (r == 0)
		r = add_base64(b, "host_key", secret_bytes(key->private_file), secret_len(key->private_file));
	if (r < 0)
		return error_errno(e, -r, "cannot write the beginning of a life");
	r = add_key_lines(b, key_lines, delivery, e);
	if (r < 0)
		return r;
	r = buf_addf(b, "time %llu000\n", (unsigned long long)clock_wall_us());
	return r < 0 ? error_errno(e, -r, "cannot write the beginning of a life") : 0;
}

int grant_render(struct buf *b, uint64_t generation, const char *key_line, struct error *e)
{
	int r = hostkey_line_check(key_line, e);

	if (r < 0)
		return r;
	r = buf_addf(b, "generation %llu\n", (unsigned long long)generation);
	if (r == 0)
		r = add_base64(b, "authorized_key", key_line, strlen(key_line));
	return r < 0 ? error_errno(e, -r, "cannot write the key for the guest") : 0;
}

enum answer_key { GENERATION, HOST_KEY, CLOCK, ADDRESS, LEASE, KERNEL, ANSWER_COUNT };
static const char *const answer_names[ANSWER_COUNT] = {
	"generation", "host_key", "clock", "address", "lease", "kernel"};

static int take(struct begin_answer *a, enum answer_key key, const char *value, struct error *e)
{
	uint64_t lease;
	int r = 0;

	switch (key) {
	case GENERATION:
		return parse_u64(value, "generation", 0, UINT64_MAX, &a->generation, e);
	case CLOCK:
		return parse_u64(value, "clock", 0, UINT64_MAX, &a->clock_ns, e);
	case LEASE:
		r = parse_u64(value, "lease", 0, 1, &lease, e);
		a->lease = r < 0 || lease;
		return r;
	case HOST_KEY:
		r = str_copy(a->host_key, value);
		break;
	case ADDRESS:
		r = str_copy(a->address, value);
		break;
	case KERNEL:
		r = str_copy(a->kernel, value);
		break;
	case ANSWER_COUNT:
		break;
	}
	return r < 0 ? error_set(e, EBADMSG, "%s is too long", answer_names[key]) : 0;
}

/* Adds one line of a listing to what is there already. */
static int take_seen(char seen[static BEGIN_SEEN_MAX], size_t *len, const char *value, struct error *e)
{
	if (str_format_n(seen + *len, BEGIN_SEEN_MAX - *len, "%s\n", value) < 0)
		return error_set(e, EBADMSG, "what it lists is longer than %d bytes", BEGIN_SEEN_MAX);
	*len += strlen(value) + 1;
	return 0;
}

static int take_line(struct begin_answer *a, bool seen[static ANSWER_COUNT], size_t *len, char *line, struct error *e)
{
	char shown[64], *value = strchr(line, ' ');

	str_show_n(shown, sizeof(shown), line, strlen(line));
	if (value)
		*value++ = '\0';
	if (value && str_equal(line, "seen"))
		return take_seen(a->seen, len, value, e);
	for (int i = 0; value && i < ANSWER_COUNT; i++)
		if (str_equal(line, answer_names[i])) {
			if (seen[i])
				return error_set(e, EBADMSG, "%s is there twice", line);
			seen[i] = true;
			return take(a, (enum answer_key)i, value, e);
		}
	return error_set(e, EBADMSG, "the line '%s' is not understood", shown);
}

/* The next line of an answer, cut off its text. */
static int next_line(const char **text, char line[static BEGIN_LINE_MAX], struct error *e)
{
	size_t n = strcspn(*text, "\n");

	if (n >= BEGIN_LINE_MAX)
		return error_set(e, EBADMSG, "a line has more than %d bytes", BEGIN_LINE_MAX - 1);
	memcpy(line, *text, n);
	line[n] = '\0';
	*text += n + ((*text)[n] == '\n');
	return 0;
}

static int parse_lines(const char *text, struct begin_answer *a, bool seen[static ANSWER_COUNT], struct error *e)
{
	char line[BEGIN_LINE_MAX];
	size_t len = 0;
	int r = 0;

	while (r == 0 && *text) {
		r = next_line(&text, line, e);
		if (r == 0 && str_equal(line, "done"))
			return *text ? error_set(e, EBADMSG, "it goes on after its last line") : 0;
		if (r == 0)
			r = take_line(a, seen, &len, line, e);
	}
	return r < 0 ? r : error_set(e, EBADMSG, "it has no last line");
}

int begin_parse(const char *text, struct begin_answer *ret, struct error *e)
{
	CLEANUP_FREE struct begin_answer *a = calloc(1, sizeof(*a));
	bool seen[ANSWER_COUNT] = {0};
	int r;

	if (!a)
		return error_errno(e, ENOMEM, "the guest's answer to begin");
	r = parse_lines(text, a, seen, e);
	for (int i = 0; r == 0 && i < ANSWER_COUNT; i++)
		if (!seen[i])
			r = error_set(e, EBADMSG, "%s is missing", answer_names[i]);
	if (r < 0)
		return error_wrap(e, "the guest's answer to begin");
	*ret = *a;
	return 0;
}

int seen_parse(const char *text, char ret[static BEGIN_SEEN_MAX], struct error *e)
{
	CLEANUP_FREE struct begin_answer *a = calloc(1, sizeof(*a));
	bool seen[ANSWER_COUNT] = {0};
	int r;

	if (!a)
		return error_errno(e, ENOMEM, "the guest's listing");
	r = parse_lines(text, a, seen, e);
	for (int i = 0; r == 0 && i < ANSWER_COUNT; i++)
		if (seen[i])
			r = error_set(e, EBADMSG, "%s has no business in it", answer_names[i]);
	if (r == 0 && !a->seen[0])
		r = error_set(e, EBADMSG, "it is empty");
	if (r < 0)
		return error_wrap(e, "the guest's listing");
	memcpy(ret, a->seen, sizeof(a->seen));
	return 0;
}

int ready_parse(const char *text, char *ret_system, size_t size, struct error *e)
{
	static const char start[] = "system ";
	size_t n = strcspn(text, "\n");
	char system[64];

	if (!str_starts(text, start) || n <= strlen(start) || !str_equal(text + n, "\ndone\n") || n >= sizeof(system))
		return error_set(e, EBADMSG, "the guest's answer to ready is not understood");
	str_show_n(system, sizeof(system), text + strlen(start), n - strlen(start));
	return str_copy_n(ret_system, size, system) < 0 ? error_set(e, EBADMSG, "the guest's answer to ready is too long") : 0;
}
