/*
 * arguments.c
 *	  Checks of what callers pass in, before anything has happened.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "arguments.h"
#include "policy_sql.h"
#include "sprite_lockdown.h"

/* A DNS label. */
#define MAX_NAME_BYTES 63
/* An index cannot hold much more. */
#define MAX_SESSION_KEY_BYTES 2048
/* What is told of a bad name; the rest adds nothing. */
#define MAX_SHOWN_BYTES 80
/* "iad" and the like. */
#define MAX_REGION_BYTES 64

void
argument_missing(const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be null", argument)));
	pg_unreachable();
}

static char *
shown(const char *text)
{
	int			len = pg_mbcliplen(text, (int) strlen(text), MAX_SHOWN_BYTES);

	return text[len] == '\0' ? pstrdup(text) : psprintf("%.*s...", len, text);
}

static bool
is_label_character(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

/* What is wrong with a name, or NULL. */
static const char *
name_problem(const char *name)
{
	size_t		len = strlen(name);

	if (len == 0)
		return "It is empty.";
	for (size_t i = 0; i < len; i++)
	{
		if (!is_label_character(name[i]))
			return "It holds a character other than a-z, 0-9 and the hyphen.";
	}
	if (len > MAX_NAME_BYTES)
		return "It is longer than 63 characters.";
	if (name[0] == '-' || name[len - 1] == '-')
		return "It begins or ends with a hyphen.";
	return NULL;
}

char *
argument_sprite_name(text *value)
{
	char	   *name = text_to_cstring(value);
	const char *problem = name_problem(name);

	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid Sprite name \"%s\"", shown(name)),
				 errdetail("%s", problem),
				 errhint("A name is one DNS label: a-z, 0-9 and inner hyphens, at most 63 characters.")));
	return name;
}

char *
argument_name_prefix(text *value)
{
	char	   *prefix = text_to_cstring(value);

	for (const char *at = prefix; *at != '\0'; at++)
	{
		if (!is_label_character(*at))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid prefix of a Sprite name \"%s\"", shown(prefix)),
					 errdetail("It holds a character other than a-z, 0-9 and the hyphen.")));
	}
	return prefix;
}

char *
argument_session_key(text *value)
{
	char	   *key = text_to_cstring(value);

	if (key[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("session key must not be empty"),
				 errhint("Leave it out to use the Sprite's name.")));
	if (strlen(key) > MAX_SESSION_KEY_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("session key is longer than %d bytes", MAX_SESSION_KEY_BYTES)));
	return key;
}

static char *
problem_text(const PolicyProblem *problem)
{
	char	   *message = pg_any_to_server(problem->message, (int) strlen(problem->message), PG_UTF8);

	return problem->rule > 0 ? psprintf("Rule %d: %s", problem->rule, message) : message;
}

/*
 * Hashing that does not see order is only sound for a policy whose meaning
 * does not depend on order, and no rules at all mean no lockdown.
 */
static void
check_policy(const Policy *policy)
{
	PolicyProblems *problems = policy_problems(policy);

	for (int i = 0; i < problems->n; i++)
	{
		const PolicyProblem *problem = &problems->items[i];

		if (problem->severity != POLICY_ERROR)
			continue;
		ereport(sprite_policy_check == POLICY_CHECK_STRICT ? ERROR : WARNING,
				(errcode(sprite_policy_check == POLICY_CHECK_STRICT ?
						 ERRCODE_INVALID_PARAMETER_VALUE : ERRCODE_WARNING),
				 errmsg("network policy has an error (%s)", problem->code),
				 errdetail("%s", problem_text(problem)),
				 errhint("policy_problems() lists all that is wrong with a policy.")));
	}
}

Policy *
argument_policy(Jsonb *value, char **hash)
{
	Policy	   *policy = policy_from_jsonb(value);

	check_policy(policy);
	*hash = palloc(POLICY_HASH_LEN + 1);
	if (!policy_hash(policy, *hash))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("SHA3-256 is not available in this OpenSSL")));
	return policy;
}

pg_noreturn static void
raise_bad_config(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid configuration of a Sprite"),
			 errdetail("%s", detail),
			 errhint("It may hold \"ram_mb\", \"cpus\" and \"storage_gb\", positive whole numbers, and \"region\", a text.")));
	pg_unreachable();
}

static int
config_number(const char *key, const JsonbValue *value)
{
	char	   *digits;
	int64		number = 0;

	if (value->type != jbvNumeric)
		raise_bad_config(psprintf("\"%s\" is not a number.", key));
	digits = DatumGetCString(DirectFunctionCall1(numeric_out,
												 NumericGetDatum(value->val.numeric)));
	for (const char *at = digits; *at >= '0' && *at <= '9' && number <= PG_INT32_MAX; at++)
		number = number * 10 + (*at - '0');
	if (strspn(digits, "0123456789") != strlen(digits) || number < 1 || number > PG_INT32_MAX)
		raise_bad_config(psprintf("\"%s\" is not a positive whole number.", key));
	return (int) number;
}

static char *
config_region(const JsonbValue *value)
{
	char	   *region;

	if (value->type != jbvString || value->val.string.len == 0 ||
		value->val.string.len > MAX_REGION_BYTES)
		raise_bad_config("\"region\" is not a text of 1 to 64 bytes.");
	region = pnstrdup(value->val.string.val, value->val.string.len);
	for (const char *at = region; *at != '\0'; at++)
	{
		if (*at <= ' ' || *at > '~')
			raise_bad_config("\"region\" holds a blank, a control character or a character outside ASCII.");
	}
	return region;
}

static void
set_config_member(SpriteConfig *config, const char *key, const JsonbValue *value)
{
	if (strcmp(key, "ram_mb") == 0)
		config->ram_mb = config_number(key, value);
	else if (strcmp(key, "cpus") == 0)
		config->cpus = config_number(key, value);
	else if (strcmp(key, "storage_gb") == 0)
		config->storage_gb = config_number(key, value);
	else if (strcmp(key, "region") == 0)
		config->region = config_region(value);
	else
		raise_bad_config(psprintf("There is no key \"%s\".", shown(key)));
}

SpriteConfig *
argument_config(Jsonb *value)
{
	SpriteConfig *config = palloc0(sizeof(SpriteConfig));
	JsonbIterator *iterator = JsonbIteratorInit(&value->root);
	JsonbIteratorToken token;
	JsonbValue	item;

	if (!JB_ROOT_IS_OBJECT(value))
		raise_bad_config("It is not an object.");
	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		char	   *key;

		if (token != WJB_KEY)
			continue;
		key = pnstrdup(item.val.string.val, item.val.string.len);
		(void) JsonbIteratorNext(&iterator, &item, true);
		set_config_member(config, key, &item);
	}
	return JB_ROOT_COUNT(value) > 0 ? config : NULL;
}
