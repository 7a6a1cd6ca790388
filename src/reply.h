/*
 * reply.h
 *	  A JSON reply of the platform, parsed with distrust.
 *
 * json-c decides the grammar.  What it lets pass even in its strict mode, and
 * what two readers of one document could understand differently, is refused
 * here: duplicate keys, NaN and Infinity, NUL and lone surrogates in strings,
 * anything after the document, nesting deeper than a reply of the platform
 * can have.
 */
#ifndef SPRITE_REPLY_H
#define SPRITE_REPLY_H

/*
 * json-c's own name for this type is also that of a function of the backend's,
 * so json-c.h and utils/builtins.h exclude each other.
 */
struct json_object;

/*
 * Parses len bytes of body into an object.  The object lives as long as the
 * current memory context.  NULL, with *problem set to a static phrase, when
 * the body is not one well-formed JSON object.
 */
extern struct json_object *reply_parse(const char *body, size_t len, const char **problem);

/*
 * Looks up a text field.  True with *value NULL when it is absent or null;
 * false when it is there and is not a string.  The string is UTF-8, belongs to
 * the object, and holds no NUL.
 */
extern bool reply_text(struct json_object *object, const char *key, const char **value);

/* A whole number in [0, INT32_MAX], or -1 when absent, no number or out of range. */
extern int64 reply_count(struct json_object *object, const char *key);

#endif							/* SPRITE_REPLY_H */
