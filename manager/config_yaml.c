#include "manager/config_yaml.h"
#include "base/str.h"
#include <errno.h>
#include <string.h>

int config_reader_init(
	struct config_reader *r, const char *shown_name, const char *data, size_t len, struct error *e)
{
	*r = (struct config_reader){.shown_name = shown_name, .e = e};
	if (!yaml_parser_initialize(&r->parser))
		return error_errno(e, ENOMEM, "cannot read %s", shown_name);
	/* Set by hand, so that a byte order mark cannot choose another one. */
	yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r->parser, (const unsigned char *)data, len);
	return 0;
}

void config_reader_done(struct config_reader *r)
{
	if (r->have_event)
		yaml_event_delete(&r->event);
	yaml_parser_delete(&r->parser);
}

unsigned config_line(const struct config_reader *r)
{
	return (unsigned)r->event.start_mark.line + 1;
}

int config_fail(struct config_reader *r, unsigned line, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)error_setv(r->e, EBADMSG, format, ap);
	va_end(ap);
	(void)error_wrap(r->e, "%s:%u", r->shown_name, line);
	return -EBADMSG;
}

/* For a value refused by a base/ parser: its sentence, our place and code. */
int config_fail_value(struct config_reader *r, const struct error *why)
{
	return config_fail(r, config_line(r), "%s", why->text);
}

const char *config_shown(const char *s, char buf[static CONFIG_SHOWN_MAX])
{
	str_show_n(buf, CONFIG_SHOWN_MAX, s, strlen(s));
	return buf;
}

static int next(struct config_reader *r)
{
	if (r->have_event)
		yaml_event_delete(&r->event);
	r->have_event = yaml_parser_parse(&r->parser, &r->event) != 0;
	if (r->have_event)
		return 0;
	return config_fail(r, (unsigned)r->parser.problem_mark.line + 1, "not YAML: %s",
		r->parser.problem ? r->parser.problem : "unreadable");
}

static int refuse_decoration(struct config_reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		return config_fail(r, config_line(r), "anchors and aliases are not used in this file");
	if (tag)
		return config_fail(r, config_line(r), "tags are not used in this file");
	return 0;
}

/* Copies the current event's text; the caller moves on. */
int config_scalar(struct config_reader *r, const char *what, char dst[static CONFIG_SCALAR_MAX])
{
	size_t len;
	int rc;

	if (r->event.type == YAML_ALIAS_EVENT)
		return config_fail(r, config_line(r), "anchors and aliases are not used in this file");
	if (r->event.type != YAML_SCALAR_EVENT)
		return config_fail(r, config_line(r), "%s must be a single value", what);
	/* "!" as a tag is how a quoted scalar may be marked by hand; nobody needs it. */
	rc = refuse_decoration(r, r->event.data.scalar.anchor, r->event.data.scalar.tag);
	if (rc < 0)
		return rc;
	len = r->event.data.scalar.length;
	if (len >= CONFIG_SCALAR_MAX)
		return config_fail(
			r, config_line(r), "%s is longer than %d bytes", what, CONFIG_SCALAR_MAX - 1);
	if (memchr(r->event.data.scalar.value, '\0', len))
		return config_fail(r, config_line(r), "%s contains a NUL byte", what);
	memcpy(dst, r->event.data.scalar.value, len);
	dst[len] = '\0';
	return 0;
}

static int add_allowed(struct buf *b, const struct config_key *keys, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = buf_addf(b, "%s%s", i ? ", " : "", keys[i].name);
	return rc;
}

/* The current event is the mapping's start; on success it is its end. */
int config_mapping(
	struct config_reader *r, const char *what, const struct config_key *keys, size_t n_keys, void *target)
{
	CLEANUP_BUF struct buf allowed = BUF_INIT(CONFIG_SCALAR_MAX);
	char text[CONFIG_SCALAR_MAX], safe[CONFIG_SHOWN_MAX];
	uint32_t seen = 0;
	int rc;

	if (r->event.type != YAML_MAPPING_START_EVENT)
		return config_fail(r, config_line(r), "%s must be a mapping (key: value)", what);
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
		line = config_line(r);
		rc = config_scalar(r, "a key", text);
		if (rc < 0)
			return rc;
		while (i < n_keys && strcmp(keys[i].name, text) != 0)
			i++;
		if (i == n_keys) {
			rc = add_allowed(&allowed, keys, n_keys);
			if (rc < 0)
				return error_errno(r->e, -rc, "cannot read %s", r->shown_name);
			return config_fail(r, line, "unknown key \"%s\"; allowed: %s",
				config_shown(text, safe), allowed.data);
		}
		if (seen & (UINT32_C(1) << i))
			return config_fail(r, line, "key \"%s\" is repeated", keys[i].name);
		seen |= UINT32_C(1) << i;
		rc = next(r);
		if (rc < 0)
			return rc;
		rc = keys[i].read(r, target);
		if (rc < 0)
			return rc;
	}
}

int config_duration_ms(struct config_reader *r, const char *what, uint64_t min, uint64_t max, uint64_t *ret)
{
	struct error why = ERROR_INIT;
	char text[CONFIG_SCALAR_MAX];
	int rc = config_scalar(r, what, text);

	if (rc < 0)
		return rc;
	return parse_duration_ms(text, what, min, max, ret, &why) < 0 ? config_fail_value(r, &why) : 0;
}

int config_number(struct config_reader *r, const char *what, uint64_t min, uint64_t max, uint32_t *ret)
{
	struct error why = ERROR_INIT;
	char text[CONFIG_SCALAR_MAX];
	uint64_t v = 0;
	int rc = config_scalar(r, what, text);

	if (rc < 0)
		return rc;
	if (parse_u64(text, what, min, max, &v, &why) < 0)
		return config_fail_value(r, &why);
	*ret = (uint32_t)v;
	return 0;
}

int config_sequence(struct config_reader *r, const char *what,
	int (*read)(struct config_reader *r, void *target), void *target)
{
	int rc;

	if (r->event.type != YAML_SEQUENCE_START_EVENT)
		return config_fail(r, config_line(r), "%s", what);
	rc = refuse_decoration(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag);
	while (rc == 0) {
		rc = next(r);
		if (rc < 0 || r->event.type == YAML_SEQUENCE_END_EVENT)
			break;
		rc = read(r, target);
	}
	return rc;
}

static int expect(struct config_reader *r, yaml_event_type_t type, const char *otherwise)
{
	int rc = next(r);

	if (rc < 0)
		return rc;
	return r->event.type == type ? 0 : config_fail(r, config_line(r), "%s", otherwise);
}

int config_document(struct config_reader *r, const struct config_key *keys, size_t n_keys, void *target)
{
	int rc = expect(r, YAML_STREAM_START_EVENT, "not YAML");

	if (rc == 0)
		rc = expect(r, YAML_DOCUMENT_START_EVENT, "the file is empty");
	if (rc == 0)
		rc = next(r);
	if (rc == 0)
		rc = config_mapping(r, "the file", keys, n_keys, target);
	if (rc == 0)
		rc = expect(r, YAML_DOCUMENT_END_EVENT, "more than one document");
	if (rc == 0)
		rc = expect(r, YAML_STREAM_END_EVENT, "more than one document");
	return rc;
}
