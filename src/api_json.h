/*
 * api_json.h
 *	  From the platform's JSON to structs, and back.
 *
 * Readers return NULL when all is well and otherwise a phrase that says what is
 * wrong with the document.  Text in the structs is in the database's encoding,
 * except inside a Policy, which is UTF-8; it lives in the current memory
 * context, not in the JSON object.
 */
#ifndef SPRITE_API_JSON_H
#define SPRITE_API_JSON_H

#include "datatype/timestamp.h"
#include "policy.h"

struct json_object;

typedef struct Sprite
{
	char	   *name;
	char	   *id;				/* NULL: the platform reported none */
	char	   *status;
	char	   *url;			/* NULL in short list items, as the next */
	char	   *organization;
	TimestampTz created_at;		/* DT_NOBEGIN: none was reported, as below */
	TimestampTz updated_at;
	TimestampTz last_running_at;
} Sprite;

/* A policy as the VM reports it. */
typedef struct ReportedPolicy
{
	char	   *text;			/* the JSON document, UTF-8 */
	Policy	   *policy;			/* NULL: holds what no pushed policy can hold */
} ReportedPolicy;

/*
 * Reads a Sprite object.  expected_name, if given, is the only name it may
 * bear; a list item (short_form) may lack all but its name.
 */
extern const char *api_json_sprite(struct json_object *object, const char *expected_name,
								   bool short_form, Sprite *sprite);

/* Reads the answer to a policy GET. */
extern const char *api_json_policy(struct json_object *object, ReportedPolicy *reported);

/* The body of a policy push. */
extern char *api_json_from_policy(const Policy *policy);

#endif							/* SPRITE_API_JSON_H */
