/*
 * reply.c
 *	  A JSON reply of the platform, parsed with distrust.
 */
#include "postgres.h"

#include <json-c/json.h>
#include <limits.h>

#include "reply.h"

/* The deepest reply is a list of Sprites with their settings: four levels. */
#define MAX_REPLY_DEPTH 16

typedef struct JsonScan
{
	const char *at;
	const char *end;
	size_t		members;		/* name/value pairs written in the text */
	const char *problem;
} JsonScan;

static bool
is_json_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void
free_object(void *arg)
{
	json_object_put((json_object *) arg);
}

/* Reads the four digits of a \u escape, or returns -1. */
static int
scan_code_unit(JsonScan *scan)
{
	int			unit = 0;

	if (scan->end - scan->at < 4)
		return -1;
	for (int i = 0; i < 4; i++)
	{
		char		c = *scan->at++;

		if (c >= '0' && c <= '9')
			unit = unit * 16 + (c - '0');
		else if (c >= 'a' && c <= 'f')
			unit = unit * 16 + (c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			unit = unit * 16 + (c - 'A' + 10);
		else
			return -1;
	}
	return unit;
}

static void
scan_unicode_escape(JsonScan *scan)
{
	int			unit = scan_code_unit(scan);

	if (unit < 0)
		scan->problem = "a \\u escape is incomplete";
	else if (unit == 0)
		scan->problem = "a string holds a NUL character";
	else if (unit >= 0xDC00 && unit <= 0xDFFF)
		scan->problem = "a string holds a lone surrogate";
	else if (unit >= 0xD800 && unit <= 0xDBFF)
	{
		if (scan->end - scan->at < 6 || scan->at[0] != '\\' || scan->at[1] != 'u')
		{
			scan->problem = "a string holds a lone surrogate";
			return;
		}
		scan->at += 2;
		unit = scan_code_unit(scan);
		if (unit < 0xDC00 || unit > 0xDFFF)
			scan->problem = "a string holds a lone surrogate";
	}
}

static void
scan_string(JsonScan *scan)
{
	while (scan->at < scan->end && scan->problem == NULL)
	{
		unsigned char c = (unsigned char) *scan->at++;

		if (c == '"')
			return;
		if (c < 0x20)
			scan->problem = "a string holds a control character";
		else if (c == '\\' && scan->at < scan->end)
		{
			if (*scan->at++ == 'u')
				scan_unicode_escape(scan);
		}
	}
}

/*
 * Looks at the raw text for what json-c reads leniently.  It need not know the
 * grammar: it counts the colons outside strings, each of which belongs to one
 * member in a text that json-c accepts.
 */
static void
scan_text(JsonScan *scan)
{
	while (scan->at < scan->end && scan->problem == NULL)
	{
		unsigned char c = (unsigned char) *scan->at++;

		if (c == '"')
			scan_string(scan);
		else if (c == ':')
			scan->members++;
		else if (c >= 'A' && c <= 'Z' && c != 'E')
			scan->problem = "a value is not JSON";	/* NaN, Infinity, TRUE */
		else if (c == '/' || c == '\'' || c >= 0x80)
			scan->problem = "there is text outside a string";
		else if (c < 0x20 && !is_json_space((char) c))
			scan->problem = "there is a control character";
	}
}

/* Counts the members that json-c kept; a duplicate key has replaced its twin. */
static size_t
count_members(json_object *value)
{
	size_t		members = 0;

	if (json_object_is_type(value, json_type_object))
	{
		struct lh_entry *entry = json_object_get_object(value)->head;

		for (; entry != NULL; entry = entry->next)
			members += 1 + count_members((json_object *) lh_entry_v(entry));
	}
	else if (json_object_is_type(value, json_type_array))
	{
		size_t		n = json_object_array_length(value);

		for (size_t i = 0; i < n; i++)
			members += count_members(json_object_array_get_idx(value, i));
	}
	return members;
}

static json_object *
parse_strictly(const char *body, size_t len, const char **problem)
{
	json_tokener *tokener = json_tokener_new_ex(MAX_REPLY_DEPTH);
	json_object *object;

	if (tokener == NULL)
	{
		*problem = "out of memory";
		return NULL;
	}
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	object = json_tokener_parse_ex(tokener, body, (int) len);
	if (json_tokener_get_error(tokener) == json_tokener_continue)
		*problem = "the document is cut short";
	else if (json_tokener_get_error(tokener) != json_tokener_success)
		*problem = json_tokener_error_desc(json_tokener_get_error(tokener));
	else if (json_tokener_get_parse_end(tokener) != len)
		*problem = "something follows the document";
	json_tokener_free(tokener);

	if (*problem != NULL)
	{
		json_object_put(object);
		return NULL;
	}
	return object;
}

json_object *
reply_parse(const char *body, size_t len, const char **problem)
{
	JsonScan	scan = {.at = body, .end = body + len};
	MemoryContextCallback *callback;
	json_object *object;

	*problem = NULL;
	while (len > 0 && is_json_space(body[len - 1]))
		len--;
	if (len == 0 || len > INT_MAX)
	{
		*problem = len == 0 ? "it is empty" : "it is too long";
		return NULL;
	}

	scan.end = body + len;
	scan_text(&scan);
	if (scan.problem != NULL)
	{
		*problem = scan.problem;
		return NULL;
	}

	/* Allocated first, so that running out of memory cannot leak the object. */
	callback = palloc0(sizeof(MemoryContextCallback));
	object = parse_strictly(body, len, problem);
	if (object == NULL)
	{
		if (*problem == NULL)
			*problem = "it is not an object";	/* the literal null */
		return NULL;
	}
	callback->func = free_object;
	callback->arg = object;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);

	if (!json_object_is_type(object, json_type_object))
		*problem = "it is not an object";
	else if (count_members(object) != scan.members)
		*problem = "a key appears twice";
	return *problem == NULL ? object : NULL;
}

bool
reply_text(json_object *object, const char *key, const char **value)
{
	json_object *field;

	*value = NULL;
	if (!json_object_object_get_ex(object, key, &field) || field == NULL)
		return true;
	if (!json_object_is_type(field, json_type_string))
		return false;
	*value = json_object_get_string(field);
	return true;
}

int64
reply_count(json_object *object, const char *key)
{
	json_object *field;
	int64		count;

	if (!json_object_object_get_ex(object, key, &field) ||
		!json_object_is_type(field, json_type_int))
		return -1;

	/* json-c saturates an overflowing number, which the range then refuses */
	count = json_object_get_int64(field);
	return count >= 0 && count <= PG_INT32_MAX ? count : -1;
}
