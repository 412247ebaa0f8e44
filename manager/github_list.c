#include "manager/github_list.h"
#include "base/str.h"
#include <errno.h>
#include <string.h>

int github_list_read(const char *data, size_t len, const char *key, json_t **ret_root, json_t **ret_list, struct error *e)
{
	json_error_t why;
	/* NULs in strings are refused by jansson unless asked for; nesting is limited by it too. */
	json_t *root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &why), *list = json_object_get(root, key);
	char text[160];

	if (!root) {
		str_show_n(text, sizeof(text), why.text, strlen(why.text));
		return error_set(e, EBADMSG, "the list of %s is not JSON: %s", key, text);
	}
	if (!json_is_array(list)) {
		json_decref(root);
		return error_set(e, EBADMSG, "the list of %s has no array \"%s\"", key, key);
	}
	*ret_root = root;
	*ret_list = list;
	return 0;
}
