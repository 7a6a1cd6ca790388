/*
 * api_json.c
 *	  From the platform's JSON to structs, and back.
 */
#include "postgres.h"

#include <json-c/json.h>

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "api_json.h"
#include "reply.h"

/* Ids are "sprite-<uuid>" today; this leaves room without inviting abuse. */
#define MAX_ID_BYTES	255
/* A host name and a path. */
#define MAX_TEXT_BYTES	2048

/* Copies a UTF-8 string of the platform into the database's encoding. */
static char *
to_database_encoding(const char *text)
{
	char	   *converted = pg_any_to_server(text, (int) strlen(text), PG_UTF8);

	return converted == text ? pstrdup(text) : converted;
}

static bool
has_control_character(const char *text)
{
	for (; *text != '\0'; text++)
	{
		if ((unsigned char) *text < 0x20 || *text == 0x7F)
			return true;
	}
	return false;
}

/* Reads a text field of bounded length; absent, null and "" all give NULL. */
static bool
read_text(json_object *object, const char *key, size_t max_bytes, char **text)
{
	const char *value;

	*text = NULL;
	if (!reply_text(object, key, &value))
		return false;
	if (value == NULL || value[0] == '\0')
		return true;
	if (strlen(value) > max_bytes || has_control_character(value))
		return false;
	*text = to_database_encoding(value);
	return true;
}

/* Reads exactly n digits. */
static bool
read_digits(const char **at, int n, int *value)
{
	*value = 0;
	for (int i = 0; i < n; i++, (*at)++)
	{
		if (**at < '0' || **at > '9')
			return false;
		*value = *value * 10 + (**at - '0');
	}
	return true;
}

static bool
read_literal(const char **at, char literal)
{
	if (**at != literal)
		return false;
	(*at)++;
	return true;
}

/* The fraction of a second, in microseconds; further digits are dropped. */
static fsec_t
read_fraction(const char **at)
{
	fsec_t		fraction = 0;
	int			unit = USECS_PER_SEC / 10;

	for (; **at >= '0' && **at <= '9'; (*at)++)
	{
		fraction += (**at - '0') * unit;
		unit /= 10;
	}
	return fraction;
}

/* Reads "Z" or "+hh:mm" as the seconds west of Greenwich that tm2timestamp wants. */
static bool
read_zone(const char **at, int *zone)
{
	int			sign = **at == '-' ? 1 : -1;
	int			hours;
	int			minutes;

	*zone = 0;
	if (read_literal(at, 'Z'))
		return true;
	if (!read_literal(at, '+') && !read_literal(at, '-'))
		return false;
	if (!read_digits(at, 2, &hours) || !read_literal(at, ':') || !read_digits(at, 2, &minutes) ||
		hours > MAX_TZDISP_HOUR || minutes > 59)
		return false;
	*zone = sign * (hours * SECS_PER_HOUR + minutes * SECS_PER_MINUTE);
	return true;
}

/*
 * RFC 3339.  timestamptz_in would take far more, depend on DateStyle, and raise
 * an error that speaks of a value the user never wrote.
 */
static bool
parse_timestamp(const char *at, TimestampTz *timestamp)
{
	struct pg_tm tm = {0};
	fsec_t		fraction = 0;
	int			zone;

	if (!read_digits(&at, 4, &tm.tm_year) || !read_literal(&at, '-') ||
		!read_digits(&at, 2, &tm.tm_mon) || !read_literal(&at, '-') ||
		!read_digits(&at, 2, &tm.tm_mday) || !read_literal(&at, 'T') ||
		!read_digits(&at, 2, &tm.tm_hour) || !read_literal(&at, ':') ||
		!read_digits(&at, 2, &tm.tm_min) || !read_literal(&at, ':') ||
		!read_digits(&at, 2, &tm.tm_sec))
		return false;
	if (read_literal(&at, '.'))
		fraction = read_fraction(&at);
	if (!read_zone(&at, &zone) || *at != '\0')
		return false;
	if (tm.tm_year < 1 || tm.tm_mon < 1 || tm.tm_mon > MONTHS_PER_YEAR || tm.tm_mday < 1 ||
		tm.tm_mday > day_tab[isleap(tm.tm_year)][tm.tm_mon - 1] ||
		tm.tm_hour >= HOURS_PER_DAY || tm.tm_min >= MINS_PER_HOUR || tm.tm_sec > SECS_PER_MINUTE)
		return false;
	return tm2timestamp(&tm, fraction, &zone, timestamp) == 0;
}

static bool
read_timestamp(json_object *object, const char *key, TimestampTz *timestamp)
{
	const char *value;

	*timestamp = DT_NOBEGIN;
	if (!reply_text(object, key, &value))
		return false;
	return value == NULL || parse_timestamp(value, timestamp);
}

const char *
api_json_sprite(json_object *object, const char *expected_name,
				bool short_form, Sprite *sprite)
{
	memset(sprite, 0, sizeof(Sprite));
	if (!json_object_is_type(object, json_type_object))
		return "the Sprite is not an object";
	if (!read_text(object, "name", MAX_ID_BYTES, &sprite->name) || sprite->name == NULL)
		return "the Sprite has no proper \"name\"";
	if (expected_name != NULL && strcmp(sprite->name, expected_name) != 0)
		return "the Sprite has another name than the one asked for";
	if (!read_text(object, "id", MAX_ID_BYTES, &sprite->id))
		return "the Sprite has no proper \"id\"";
	if (!read_text(object, "status", MAX_TEXT_BYTES, &sprite->status) ||
		(sprite->status == NULL && !short_form))
		return "the Sprite has no proper \"status\"";
	if (!read_text(object, "url", MAX_TEXT_BYTES, &sprite->url) ||
		(sprite->url == NULL && !short_form))
		return "the Sprite has no proper \"url\"";
	if (!read_text(object, "organization", MAX_TEXT_BYTES, &sprite->organization))
		return "the Sprite has no proper \"organization\"";
	if (!read_timestamp(object, "created_at", &sprite->created_at) ||
		!read_timestamp(object, "updated_at", &sprite->updated_at) ||
		!read_timestamp(object, "last_running_at", &sprite->last_running_at))
		return "the Sprite has a time that is not RFC 3339";
	return NULL;
}

/*
 * Copies one rule.  A null member counts as absent, as a server that writes
 * out every field of a rule would have it.  False when a value is no string:
 * such a rule is none of ours.
 */
static bool
read_rule(json_object *object, PolicyRule *rule)
{
	struct lh_entry *entry;

	rule->members = palloc0(sizeof(PolicyMember) * Max(json_object_object_length(object), 1));
	rule->nmembers = 0;
	for (entry = json_object_get_object(object)->head; entry != NULL; entry = entry->next)
	{
		PolicyMember *member = &rule->members[rule->nmembers];
		json_object *value = (json_object *) lh_entry_v(entry);

		if (value == NULL)
			continue;
		if (!json_object_is_type(value, json_type_string))
			return false;
		member->key = pstrdup((const char *) lh_entry_k(entry));
		member->value = pstrdup(json_object_get_string(value));
		rule->nmembers++;
	}
	return true;
}

const char *
api_json_policy(json_object *object, ReportedPolicy *reported)
{
	Policy	   *policy = palloc0(sizeof(Policy));
	json_object *rules = NULL;

	reported->text = pstrdup(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
	reported->policy = NULL;

	/* absent or null rules are no rules: an open VM */
	json_object_object_get_ex(object, "rules", &rules);
	if (rules != NULL && !json_object_is_type(rules, json_type_array))
		return "\"rules\" is not an array";

	policy->nrules = rules ? (int) json_object_array_length(rules) : 0;
	policy->rules = palloc_extended(sizeof(PolicyRule) * Max(policy->nrules, 1),
									MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < policy->nrules; i++)
	{
		json_object *rule = json_object_array_get_idx(rules, i);

		if (!json_object_is_type(rule, json_type_object))
			return "a rule is not an object";
		if (!read_rule(rule, &policy->rules[i]))
			return NULL;
	}
	reported->policy = policy;
	return NULL;
}

char *
api_json_from_policy(const Policy *policy)
{
	StringInfoData body;

	initStringInfo(&body);
	appendStringInfoString(&body, "{\"rules\":[");
	for (int i = 0; i < policy->nrules; i++)
	{
		const PolicyRule *rule = &policy->rules[i];

		appendStringInfoString(&body, i == 0 ? "{" : ",{");
		for (int j = 0; j < rule->nmembers; j++)
		{
			if (j > 0)
				appendStringInfoChar(&body, ',');
			escape_json(&body, rule->members[j].key);
			appendStringInfoChar(&body, ':');
			escape_json(&body, rule->members[j].value);
		}
		appendStringInfoChar(&body, '}');
	}
	appendStringInfoString(&body, "]}");
	return body.data;
}
