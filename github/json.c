#include "github/json.h"
#include "base/parse.h"

#include <errno.h>
#include <string.h>

int json_read_object(const char *data, size_t len, json_t **ret, struct error *e)
{
	json_error_t why;

	if (len == 0)
		return error_set(e, EBADMSG, "the answer is empty where JSON was expected");
	if (parse_json_deep(data, len, JSON_DEPTH_LIMIT))
		return error_set(
			e, EBADMSG, "the answer's JSON is nested deeper than %d levels", JSON_DEPTH_LIMIT);
	CLEANUP_JSON json_t *root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &why);
	/* why.text may quote the input */
	if (!root)
		return error_set(e, EBADMSG, "the answer is not JSON (line %d, byte %d of %zu)", why.line,
			why.position, len);
	if (!json_is_object(root))
		return error_set(e, EBADMSG, "the answer is JSON but not an object");
	*ret = TAKE_PTR(root);
	return 0;
}

uint64_t json_id(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);
	return json_is_integer(v) && json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
}

const char *json_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

int json_copy_text(json_t *dst, const json_t *src, const char *key, size_t max)
{
	const json_t *v = json_object_get(src, key);
	json_t *copy;

	if (json_is_string(v)) {
		const char *text = json_string_value(v);
		size_t len = strlen(text);
		if (len > max) {
			/* 10xxxxxx continues a character; the cut goes before its first byte. */
			for (len = max; len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80; len--)
				;
		}
		copy = json_stringn(text, len);
	} else {
		copy = json_null();
	}
	return json_object_set_new(dst, key, copy) < 0 ? -ENOMEM : 0;
}
