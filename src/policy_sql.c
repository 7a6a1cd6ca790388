/*
 * policy_sql.c
 *	  The SQL face of the pure rooms: conversion of values and errors.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "argv.h"
#include "policy.h"
#include "policy_sql.h"
#include "proof.h"

PG_FUNCTION_INFO_V1(hash_policy);
PG_FUNCTION_INFO_V1(egress_policy);
PG_FUNCTION_INFO_V1(hash_egress_policy);
PG_FUNCTION_INFO_V1(sanitize_allowlist);
PG_FUNCTION_INFO_V1(policy_problems_sql);
PG_FUNCTION_INFO_V1(lockdown_token);
PG_FUNCTION_INFO_V1(should_apply_policy);
PG_FUNCTION_INFO_V1(spawn_with_self_healing_cwd);
PG_FUNCTION_INFO_V1(fs_recovery_exec);
PG_FUNCTION_INFO_V1(parent_dir);

#define PROBLEM_COLUMNS 4

/* ------------------------------------------------------------------------
 * Text
 * ------------------------------------------------------------------------
 */

/* A copy in UTF-8, which is what is hashed whatever the database's encoding. */
static char *
to_utf8(const char *text, int len)
{
	char	   *copy = pnstrdup(text, len);

	return pg_server_to_any(copy, len, PG_UTF8);
}

static char *
from_utf8(const char *text)
{
	return pg_any_to_server(text, (int) strlen(text), PG_UTF8);
}

/* ------------------------------------------------------------------------
 * Policy from and to jsonb
 * ------------------------------------------------------------------------
 */

static void
raise_no_policy(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid network policy"),
			 errdetail("%s", detail),
			 errhint("A policy is an object with an array \"rules\" of objects like {\"domain\": \"github.com\", \"action\": \"allow\"}.")));
}

static void
read_rule(JsonbValue *value, int number, PolicyRule *rule)
{
	JsonbIterator *iterator;
	JsonbValue	key;
	JsonbValue	item;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		raise_no_policy(psprintf("Rule %d is not an object.", number));
	rule->nmembers = 0;
	rule->members = palloc0(sizeof(PolicyMember) *
							Max(JsonContainerSize(value->val.binary.data), 1));

	iterator = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&iterator, &item, true);	/* WJB_BEGIN_OBJECT */
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		PolicyMember *member = &rule->members[rule->nmembers++];

		(void) JsonbIteratorNext(&iterator, &item, true);
		member->key = to_utf8(key.val.string.val, key.val.string.len);
		if (item.type != jbvString)
			raise_no_policy(psprintf("In rule %d the value of \"%s\" is not a string.",
									 number, from_utf8(member->key)));
		member->value = to_utf8(item.val.string.val, item.val.string.len);
	}
}

static void
read_rules(JsonbContainer *array, Policy *policy)
{
	JsonbIterator *iterator = JsonbIteratorInit(array);
	JsonbValue	item;

	policy->rules = palloc_extended(sizeof(PolicyRule) * Max(JsonContainerSize(array), 1),
									MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	(void) JsonbIteratorNext(&iterator, &item, true);	/* WJB_BEGIN_ARRAY */
	while (JsonbIteratorNext(&iterator, &item, true) == WJB_ELEM)
	{
		CHECK_FOR_INTERRUPTS();
		read_rule(&item, policy->nrules + 1, &policy->rules[policy->nrules]);
		policy->nrules++;
	}
}

Policy *
policy_from_jsonb(Jsonb *value)
{
	Policy	   *policy = palloc0(sizeof(Policy));
	JsonbIterator *iterator;
	JsonbValue	key;
	JsonbValue	item;
	bool		has_rules = false;

	if (!JB_ROOT_IS_OBJECT(value))
		raise_no_policy("It is not an object.");
	policy->unknown = palloc0(sizeof(char *) * Max(JB_ROOT_COUNT(value), 1));
	iterator = JsonbIteratorInit(&value->root);
	(void) JsonbIteratorNext(&iterator, &item, true);	/* WJB_BEGIN_OBJECT */
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &item, true);
		if (key.val.string.len != strlen("rules") ||
			memcmp(key.val.string.val, "rules", strlen("rules")) != 0)
		{
			policy->unknown[policy->nunknown++] = to_utf8(key.val.string.val, key.val.string.len);
			continue;
		}
		has_rules = true;
		if (item.type != jbvBinary || !JsonContainerIsArray(item.val.binary.data))
			raise_no_policy("\"rules\" is not an array.");
		read_rules(item.val.binary.data, policy);
	}
	if (!has_rules)
		raise_no_policy("There is no \"rules\".");
	return policy;
}

static void
push_text(JsonbParseState **state, JsonbIteratorToken token, const char *utf8)
{
	char	   *text = from_utf8(utf8);
	JsonbValue	value = {.type = jbvString};

	value.val.string.val = text;
	value.val.string.len = (int) strlen(text);
	(void) pushJsonbValue(state, token, &value);
}

static Jsonb *
policy_to_jsonb(const Policy *policy)
{
	JsonbParseState *state = NULL;
	JsonbValue *result;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_text(&state, WJB_KEY, "rules");
	(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < policy->nrules; i++)
	{
		(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
		for (int j = 0; j < policy->rules[i].nmembers; j++)
		{
			push_text(&state, WJB_KEY, policy->rules[i].members[j].key);
			push_text(&state, WJB_VALUE, policy->rules[i].members[j].value);
		}
		(void) pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	}
	(void) pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	result = pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(result);
}

static text *
hash_text(const Policy *policy)
{
	char		hash[POLICY_HASH_LEN + 1];

	if (!policy_hash(policy, hash))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("SHA3-256 is not available in this OpenSSL")));
	return cstring_to_text(hash);
}

/* ------------------------------------------------------------------------
 * Arrays of text
 * ------------------------------------------------------------------------
 */

/* The elements as strings in the database's encoding; NULL stays NULL. */
static char **
array_strings(ArrayType *array, int *n)
{
	Datum	   *values;
	bool	   *nulls;
	char	  **strings;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array must have one dimension")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, n);
	strings = palloc(sizeof(char *) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		strings[i] = nulls[i] ? NULL : TextDatumGetCString(values[i]);
	return strings;
}

/* The same without NULLs, which an argument vector cannot hold. */
static char **
argument_strings(ArrayType *array, const char *name, int *n)
{
	char	  **strings = array_strings(array, n);

	for (int i = 0; i < *n; i++)
	{
		if (strings[i] == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not hold nulls", name)));
	}
	return strings;
}

static char **
allowlist_strings(ArrayType *array, int *n)
{
	char	  **strings = array_strings(array, n);

	for (int i = 0; i < *n; i++)
	{
		if (strings[i] != NULL)
			strings[i] = to_utf8(strings[i], (int) strlen(strings[i]));
	}
	return strings;
}

static ArrayType *
text_array(char **strings, int n)
{
	Datum	   *values = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		values[i] = CStringGetTextDatum(strings[i]);
	return construct_array(values, n, TEXTOID, -1, false, TYPALIGN_INT);
}

/* ------------------------------------------------------------------------
 * Policies
 * ------------------------------------------------------------------------
 */

static Policy *
policy_from_options(text *mode_text, ArrayType *allowlist)
{
	char	   *mode = text_to_cstring(mode_text);
	bool		open = strcmp(mode, "open") == 0;
	int			n;
	char	  **entries = allowlist_strings(allowlist, &n);

	if (!open && strcmp(mode, "allowlist") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid egress mode \"%s\"", mode),
				 errhint("Modes are \"allowlist\" and \"open\".")));
	return policy_build(open, entries, n);
}

Datum
hash_policy(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(hash_text(policy_from_jsonb(PG_GETARG_JSONB_P(0))));
}

Datum
egress_policy(PG_FUNCTION_ARGS)
{
	PG_RETURN_JSONB_P(policy_to_jsonb(policy_from_options(PG_GETARG_TEXT_PP(0),
														  PG_GETARG_ARRAYTYPE_P(1))));
}

Datum
hash_egress_policy(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(hash_text(policy_from_options(PG_GETARG_TEXT_PP(0),
												   PG_GETARG_ARRAYTYPE_P(1))));
}

Datum
sanitize_allowlist(PG_FUNCTION_ARGS)
{
	int			n;
	int			nkept;
	char	  **entries = allowlist_strings(PG_GETARG_ARRAYTYPE_P(0), &n);
	char	  **kept = policy_sanitize(entries, n, &nkept);

	PG_RETURN_ARRAYTYPE_P(text_array(kept, nkept));
}

static HeapTuple
problem_tuple(TupleDesc desc, const PolicyProblem *problem)
{
	Datum		values[PROBLEM_COLUMNS];
	bool		nulls[PROBLEM_COLUMNS] = {problem->rule == 0, false, false, false};

	values[0] = Int32GetDatum(problem->rule);
	values[1] = CStringGetTextDatum(problem->severity == POLICY_ERROR ? "error" : "warning");
	values[2] = CStringGetTextDatum(problem->code);
	values[3] = CStringGetTextDatum(from_utf8(problem->message));
	return heap_form_tuple(desc, values, nulls);
}

Datum
policy_problems_sql(PG_FUNCTION_ARGS)
{
	FuncCallContext *context;
	PolicyProblems *problems;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext old_context;
		TupleDesc	desc;

		context = SRF_FIRSTCALL_INIT();
		old_context = MemoryContextSwitchTo(context->multi_call_memory_ctx);
		if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("function returning record called in context that cannot accept type record")));
		context->tuple_desc = BlessTupleDesc(desc);
		context->user_fctx = policy_problems(policy_from_jsonb(PG_GETARG_JSONB_P(0)));
		MemoryContextSwitchTo(old_context);
	}
	context = SRF_PERCALL_SETUP();
	problems = context->user_fctx;
	if (context->call_cntr < (uint64) problems->n)
	{
		/* formed first: the macro counts before it evaluates its argument */
		HeapTuple	tuple = problem_tuple(context->tuple_desc,
										  &problems->items[context->call_cntr]);

		SRF_RETURN_NEXT(context, HeapTupleGetDatum(tuple));
	}
	SRF_RETURN_DONE(context);
}

/* ------------------------------------------------------------------------
 * Proof
 * ------------------------------------------------------------------------
 */

static char *
text_argument(FunctionCallInfo fcinfo, int i)
{
	return PG_ARGISNULL(i) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(i));
}

Datum
lockdown_token(PG_FUNCTION_ARGS)
{
	char	   *token = lockdown_token_make(text_argument(fcinfo, 0), text_argument(fcinfo, 1));

	if (token == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(token));
}

Datum
should_apply_policy(PG_FUNCTION_ARGS)
{
	bool		fresh = PG_ARGISNULL(0) || PG_GETARG_BOOL(0);

	PG_RETURN_BOOL(lockdown_should_apply(fresh, text_argument(fcinfo, 1),
										 text_argument(fcinfo, 2)));
}

/* ------------------------------------------------------------------------
 * Argument vectors
 * ------------------------------------------------------------------------
 */

static char *
nonempty_argument(text *value, const char *name)
{
	char	   *string = text_to_cstring(value);

	if (string[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must not be empty", name)));
	return string;
}

Datum
spawn_with_self_healing_cwd(PG_FUNCTION_ARGS)
{
	int			nargs;
	char	   *command = nonempty_argument(PG_GETARG_TEXT_PP(0), "command");
	char	  **args = argument_strings(PG_GETARG_ARRAYTYPE_P(1), "args", &nargs);
	char	   *cwd = nonempty_argument(PG_GETARG_TEXT_PP(2), "cwd");
	Argv		argv = argv_self_healing(command, args, nargs, cwd);

	PG_RETURN_ARRAYTYPE_P(text_array(argv.items, argv.n));
}

Datum
fs_recovery_exec(PG_FUNCTION_ARGS)
{
	int			n;
	char	  **directories = argument_strings(PG_GETARG_ARRAYTYPE_P(0), "directories", &n);
	Argv		argv = argv_recovery(directories, n);

	PG_RETURN_ARRAYTYPE_P(text_array(argv.items, argv.n));
}

Datum
parent_dir(PG_FUNCTION_ARGS)
{
	char	   *path = text_to_cstring(PG_GETARG_TEXT_PP(0));

	PG_RETURN_TEXT_P(cstring_to_text(argv_parent_dir(path)));
}
