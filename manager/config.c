/*
 * Reading runners.yaml by libyaml's events, not its document tree: anchors, aliases and tags are seen and refused, and
 * nothing is built that the grammar below does not ask for. Each mapping is a table of keys; the position in the table
 * is the key's bit, so that a repeated key is found whatever it holds.
 */
#include "manager/config.h"
#include "base/str.h"
#include "linux/file.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>
#include <yaml.h>

#define SECOND_MS UINT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define DAY_MS (24 * HOUR_MS)
#define SCALAR_MAX 256
#define SHOWN_MAX 80
#define KEYS_MAX 32

_Static_assert(RUNNERS_LABELS_MAX * RUNNERS_LABEL_MAX > GITHUB_LABELS_MAX, "else no limit is needed on the sum");

struct reader {
	yaml_parser_t parser;
	yaml_event_t event; /* the current one */
	bool have_event;
	const char *shown_name;
	struct runners_config *config;
	bool seen_version, seen_runners;
	struct error *e;
};

struct key {
	const char *name;
	int (*read)(struct reader *r, void *target); /* the current event is the value's first */
};

static unsigned line_of(const struct reader *r)
{
	return (unsigned)r->event.start_mark.line + 1;
}

static int fail(struct reader *r, unsigned line, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fail(struct reader *r, unsigned line, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)error_setv(r->e, EBADMSG, format, ap);
	va_end(ap);
	(void)error_wrap(r->e, "%s:%u", r->shown_name, line);
	return -EBADMSG;
}

/* For a value refused by a base/ parser: its sentence, our place and code. */
static int fail_value(struct reader *r, const struct error *why)
{
	return fail(r, line_of(r), "%s", why->text);
}

static const char *shown(const char *s, char buf[static SHOWN_MAX])
{
	str_show_n(buf, SHOWN_MAX, s, strlen(s));
	return buf;
}

static int next(struct reader *r)
{
	if (r->have_event)
		yaml_event_delete(&r->event);
	r->have_event = yaml_parser_parse(&r->parser, &r->event) != 0;
	if (r->have_event)
		return 0;
	return fail(r, (unsigned)r->parser.problem_mark.line + 1, "not YAML: %s",
			r->parser.problem ? r->parser.problem : "unreadable");
}

static int refuse_decoration(struct reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		return fail(r, line_of(r), "anchors and aliases are not used in this file");
	if (tag)
		return fail(r, line_of(r), "tags are not used in this file");
	return 0;
}

/* Copies the current event's text; the caller moves on. */
static int scalar(struct reader *r, const char *what, char dst[static SCALAR_MAX])
{
	size_t len;
	int rc;

	if (r->event.type == YAML_ALIAS_EVENT)
		return fail(r, line_of(r), "anchors and aliases are not used in this file");
	if (r->event.type != YAML_SCALAR_EVENT)
		return fail(r, line_of(r), "%s must be a single value", what);
	/* "!" as a tag is how a quoted scalar may be marked by hand; nobody needs it. */
	rc = refuse_decoration(r, r->event.data.scalar.anchor, r->event.data.scalar.tag);
	if (rc < 0)
		return rc;
	len = r->event.data.scalar.length;
	if (len >= SCALAR_MAX)
		return fail(r, line_of(r), "%s is longer than %d bytes", what, SCALAR_MAX - 1);
	if (memchr(r->event.data.scalar.value, '\0', len))
		return fail(r, line_of(r), "%s contains a NUL byte", what);
	memcpy(dst, r->event.data.scalar.value, len);
	dst[len] = '\0';
	return 0;
}

static int add_allowed(struct buf *b, const struct key *keys, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = buf_addf(b, "%s%s", i ? ", " : "", keys[i].name);
	return rc;
}

/* The current event is the mapping's start; on success it is its end. */
static int mapping(struct reader *r, const char *what, const struct key *keys, size_t n_keys, void *target)
{
	CLEANUP_BUF struct buf allowed = BUF_INIT(SCALAR_MAX);
	char text[SCALAR_MAX], safe[SHOWN_MAX];
	uint32_t seen = 0;
	int rc;

	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail(r, line_of(r), "%s must be a mapping (key: value)", what);
	rc = refuse_decoration(r, r->event.data.mapping_start.anchor, r->event.data.mapping_start.tag);
	if (rc < 0)
		return rc;
	for (;;) {
		size_t i = 0;
		unsigned line;

		rc = next(r);
		if (rc < 0)
			return rc;
		if (r->event.type == YAML_MAPPING_END_EVENT)
			return 0;
		line = line_of(r);
		rc = scalar(r, "a key", text);
		if (rc < 0)
			return rc;
		while (i < n_keys && strcmp(keys[i].name, text) != 0)
			i++;
		if (i == n_keys) {
			rc = add_allowed(&allowed, keys, n_keys);
			if (rc < 0)
				return error_errno(r->e, -rc, "cannot read %s", r->shown_name);
			return fail(r, line, "unknown key \"%s\"; allowed: %s", shown(text, safe), allowed.data);
		}
		if (seen & (UINT32_C(1) << i))
			return fail(r, line, "key \"%s\" is repeated", keys[i].name);
		seen |= UINT32_C(1) << i;
		rc = next(r);
		if (rc < 0)
			return rc;
		rc = keys[i].read(r, target);
		if (rc < 0)
			return rc;
	}
}

static int read_duration(struct reader *r, const char *what, uint64_t min, uint64_t max, uint64_t *ret)
{
	struct error why = ERROR_INIT;
	char text[SCALAR_MAX];
	int rc = scalar(r, what, text);

	if (rc < 0)
		return rc;
	return parse_duration_ms(text, what, min, max, ret, &why) < 0 ? fail_value(r, &why) : 0;
}

static int read_number(struct reader *r, const char *what, uint64_t min, uint64_t max, uint32_t *ret)
{
	struct error why = ERROR_INIT;
	char text[SCALAR_MAX];
	uint64_t v = 0;
	int rc = scalar(r, what, text);

	if (rc < 0)
		return rc;
	if (parse_u64(text, what, min, max, &v, &why) < 0)
		return fail_value(r, &why);
	*ret = (uint32_t)v;
	return 0;
}

static int read_repo(struct reader *r, void *target)
{
	struct runners_entry *entry = target;
	struct error why = ERROR_INIT;
	char text[SCALAR_MAX];
	int rc = scalar(r, "repo", text);

	if (rc < 0)
		return rc;
	if (scope_check(text, &why) < 0)
		return fail_value(r, &why);
	/* Two entries would both answer the same queued job. GitHub's names ignore case. */
	for (unsigned i = 0; i < r->config->n_entries; i++)
		if (&r->config->entries[i] != entry && strcasecmp(r->config->entries[i].repo, text) == 0)
			return fail(r, line_of(r), "repository %s is already served by the entry on line %u", text,
					r->config->entries[i].line);
	return str_copy(entry->repo, text) < 0 ? fail(r, line_of(r), "repo is too long") : 0;
}

static int read_label(struct reader *r, struct runners_entry *entry)
{
	char text[SCALAR_MAX], safe[SHOWN_MAX];
	size_t sum = 0;
	int rc = scalar(r, "a label", text);

	if (rc < 0)
		return rc;
	if (!text[0] || strlen(text) >= RUNNERS_LABEL_MAX)
		return fail(r, line_of(r), "label \"%s\": a label has 1 to %d characters", shown(text, safe),
				RUNNERS_LABEL_MAX - 1);
	for (const char *p = text; *p; p++)
		if (!isgraph((unsigned char)*p) || *p == ',' || *p == '"' || *p == '\\')
			return fail(r, line_of(r),
					"label \"%s\": only printable ASCII without space, comma, quote, backslash",
					shown(text, safe));
	for (unsigned i = 0; i < entry->n_labels; i++) {
		if (strcasecmp(entry->labels[i], text) == 0)
			return fail(r, line_of(r), "label \"%s\" is repeated (upper and lower case are the same)",
					text);
		sum += strlen(entry->labels[i]) + 1;
	}
	if (entry->n_labels == RUNNERS_LABELS_MAX)
		return fail(r, line_of(r), "more than %d labels", RUNNERS_LABELS_MAX);
	if (sum + strlen(text) >= GITHUB_LABELS_MAX)
		return fail(r, line_of(r), "all labels together are longer than %d bytes", GITHUB_LABELS_MAX - 1);
	(void)str_copy(entry->labels[entry->n_labels++], text);
	return 0;
}

static int read_labels(struct reader *r, void *target)
{
	struct runners_entry *entry = target;
	int rc;

	entry->n_labels = 0;
	if (r->event.type != YAML_SEQUENCE_START_EVENT)
		return fail(r, line_of(r), "labels must be a list, like [self-hosted, linux, x64, boxery]");
	rc = refuse_decoration(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag);
	while (rc == 0) {
		rc = next(r);
		if (rc < 0 || r->event.type == YAML_SEQUENCE_END_EVENT)
			break;
		rc = read_label(r, entry);
	}
	if (rc == 0 && entry->n_labels == 0)
		return fail(r, line_of(r), "labels must not be empty");
	return rc;
}

static int read_pool(struct reader *r, void *target)
{
	struct runners_entry *entry = target;
	struct error why = ERROR_INIT;
	char text[SCALAR_MAX];
	int rc = scalar(r, "pool", text);

	if (rc < 0)
		return rc;
	if (name_check(text, "pool", &why) < 0)
		return fail_value(r, &why);
	(void)str_copy(entry->pool, text); /* name_check bounds it */
	return 0;
}

static int read_min_ready(struct reader *r, void *target)
{
	return read_number(r, "min_ready", 0, 100, &((struct runners_entry *)target)->min_ready);
}

static int read_max(struct reader *r, void *target)
{
	return read_number(r, "max", 1, 100, &((struct runners_entry *)target)->max);
}

static int read_start_timeout(struct reader *r, void *target)
{
	return read_duration(r, "start_timeout", 10 * SECOND_MS, HOUR_MS,
			&((struct runners_entry *)target)->start_timeout_ms);
}

static int read_idle_timeout(struct reader *r, void *target)
{
	return read_duration(r, "idle_timeout", 10 * SECOND_MS, DAY_MS,
			&((struct runners_entry *)target)->idle_timeout_ms);
}

static int read_job_timeout(struct reader *r, void *target)
{
	return read_duration(r, "job_timeout", MINUTE_MS, 5 * DAY_MS,
			&((struct runners_entry *)target)->job_timeout_ms);
}

static const struct key entry_keys[] = {
	{ "repo", read_repo },
	{ "labels", read_labels },
	{ "pool", read_pool },
	{ "min_ready", read_min_ready },
	{ "max", read_max },
	{ "start_timeout", read_start_timeout },
	{ "idle_timeout", read_idle_timeout },
	{ "job_timeout", read_job_timeout },
};
_Static_assert(ARRAY_SIZE(entry_keys) <= KEYS_MAX, "one bit each");

static int read_entry(struct reader *r, struct runners_entry *entry)
{
	int rc;

	runners_entry_defaults(entry);
	entry->line = line_of(r);
	rc = mapping(r, "an entry of runners", entry_keys, ARRAY_SIZE(entry_keys), entry);
	if (rc < 0)
		return rc;
	if (!entry->repo[0])
		return fail(r, entry->line, "this entry has no repo; write repo: OWNER/REPO");
	if (entry->min_ready > entry->max)
		return fail(r, entry->line, "min_ready (%u) is more than max (%u)", entry->min_ready, entry->max);
	return 0;
}

static int read_runners(struct reader *r, void *target)
{
	int rc;

	r->seen_runners = true;
	if (r->event.type != YAML_SEQUENCE_START_EVENT)
		return fail(r, line_of(r), "runners must be a list of entries (- repo: OWNER/REPO)");
	rc = refuse_decoration(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag);
	while (rc == 0) {
		rc = next(r);
		if (rc < 0 || r->event.type == YAML_SEQUENCE_END_EVENT)
			break;
		if (r->config->n_entries == RUNNERS_ENTRIES_MAX)
			return fail(r, line_of(r), "more than %d entries", RUNNERS_ENTRIES_MAX);
		rc = read_entry(r, &r->config->entries[r->config->n_entries++]);
	}
	if (rc == 0 && r->config->n_entries == 0)
		return fail(r, line_of(r), "runners must have at least one entry (- repo: OWNER/REPO)");
	return rc;
}

static int read_version(struct reader *r, void *target)
{
	char text[SCALAR_MAX], safe[SHOWN_MAX];
	int rc = scalar(r, "version", text);

	if (rc < 0)
		return rc;
	r->seen_version = true;
	if (strcmp(text, "1") != 0)
		return fail(r, line_of(r), "version \"%s\" is not known; this program reads version 1",
				shown(text, safe));
	return 0;
}

static int read_poll_interval(struct reader *r, void *target)
{
	return read_duration(r, "poll_interval", 5 * SECOND_MS, 5 * MINUTE_MS, &r->config->poll_interval_ms);
}

static const struct key top_keys[] = {
	{ "version", read_version },
	{ "poll_interval", read_poll_interval },
	{ "runners", read_runners },
};

static int expect(struct reader *r, yaml_event_type_t type, const char *otherwise)
{
	int rc = next(r);

	if (rc < 0)
		return rc;
	return r->event.type == type ? 0 : fail(r, line_of(r), "%s", otherwise);
}

static int read_file(struct reader *r)
{
	int rc = expect(r, YAML_STREAM_START_EVENT, "not YAML");

	if (rc == 0)
		rc = expect(r, YAML_DOCUMENT_START_EVENT, "the file is empty; it needs version: 1 and runners:");
	if (rc == 0)
		rc = next(r);
	if (rc == 0)
		rc = mapping(r, "the file", top_keys, ARRAY_SIZE(top_keys), NULL);
	if (rc == 0)
		rc = expect(r, YAML_DOCUMENT_END_EVENT, "more than one document");
	if (rc == 0)
		rc = expect(r, YAML_STREAM_END_EVENT, "more than one document");
	if (rc < 0)
		return rc;
	if (!r->seen_version)
		return fail(r, 1, "version is missing; write version: 1");
	if (!r->seen_runners)
		return fail(r, 1, "runners is missing; it lists what to serve (- repo: OWNER/REPO)");
	return 0;
}

int runners_config_parse(const char *shown_name, const char *data, size_t len, struct runners_config **ret,
		struct error *e)
{
	CLEANUP(runners_config_freep) struct runners_config *c = NULL;
	struct error local = ERROR_INIT;
	struct reader r = { .shown_name = shown_name, .e = e ? e : &local };
	int rc;

	if (len > RUNNERS_CONFIG_MAX)
		return error_set(e, EBADMSG, "%s: larger than %d bytes", shown_name, RUNNERS_CONFIG_MAX);
	c = calloc(1, sizeof(*c) + RUNNERS_ENTRIES_MAX * sizeof(c->entries[0]));
	if (!c || !yaml_parser_initialize(&r.parser))
		return error_errno(e, ENOMEM, "cannot read %s", shown_name);
	c->poll_interval_ms = 15 * SECOND_MS;
	r.config = c;
	/* Set by hand, so that a byte order mark cannot choose another one. */
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)data, len);
	rc = read_file(&r);
	if (r.have_event)
		yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	if (rc < 0)
		return rc;
	*ret = TAKE_PTR(c);
	return 0;
}

int runners_config_load(const char *path, struct runners_config **ret, struct error *e)
{
	CLEANUP_FREE char *data = NULL;
	size_t len = 0;
	int rc = file_read(AT_FDCWD, path, RUNNERS_CONFIG_MAX, &data, &len, e);

	if (rc == -ENOENT)
		return error_set(e, ENOENT,
				"%s is missing; it says what to serve. The least is: version: 1, and runners: with "
				"- repo: OWNER/REPO",
				path);
	if (rc < 0)
		return rc;
	return runners_config_parse(path, data, len, ret, e);
}

struct runners_config *runners_config_free(struct runners_config *c)
{
	free(c);
	return NULL;
}

void runners_entry_defaults(struct runners_entry *entry)
{
	static const char *const names[] = { "self-hosted", "linux", "x64", "boxery" };
	struct utsname u;

	*entry = (struct runners_entry){
		.pool = POOL_DEFAULT,
		.min_ready = 1,
		.max = 1,
		.start_timeout_ms = 5 * MINUTE_MS,
		.idle_timeout_ms = 10 * MINUTE_MS,
		.job_timeout_ms = 6 * HOUR_MS,
	};
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)str_copy(entry->labels[entry->n_labels++], names[i]);
	if (uname(&u) == 0 && strcmp(u.machine, "aarch64") == 0)
		(void)str_copy(entry->labels[2], "arm64");
}

void runners_entry_labels(const struct runners_entry *entry, char dst[static GITHUB_LABELS_MAX])
{
	size_t len = 0;

	dst[0] = '\0';
	for (unsigned i = 0; i < entry->n_labels; i++) {
		size_t n = strlen(entry->labels[i]);

		if (len + n + 2 > GITHUB_LABELS_MAX)
			return; /* read_label() keeps the sum below */
		if (i > 0)
			dst[len++] = ',';
		memcpy(dst + len, entry->labels[i], n + 1);
		len += n;
	}
}
