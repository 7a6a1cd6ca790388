/*
 * handback.c
 *	  SQL entry points: check the arguments, call the order, form the result.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "arguments.h"
#include "compat.h"
#include "entry.h"
#include "lockdown.h"

PG_FUNCTION_INFO_V1(sprite_get_or_create);
PG_FUNCTION_INFO_V1(sprite_ensure_lockdown);
PG_FUNCTION_INFO_V1(sprite_attach);
PG_FUNCTION_INFO_V1(sprite_lockdown_plan);
PG_FUNCTION_INFO_V1(sprite_destroy);
PG_FUNCTION_INFO_V1(sprite_list);
PG_FUNCTION_INFO_V1(sprite_network_policy);

#define HANDLE_COLUMNS	10
#define PLAN_COLUMNS	5
#define LIST_COLUMNS	8

/* ------------------------------------------------------------------------
 * Arguments
 * ------------------------------------------------------------------------
 */

static void
open_tables(FunctionCallInfo fcinfo, LockdownCall *call)
{
	call->sessions = owned_table_open(SESSION_TABLE, entry_schema(fcinfo));
	call->journal = owned_table_open(JOURNAL_TABLE, entry_schema(fcinfo));
}

static void
policy_argument(FunctionCallInfo fcinfo, int i, LockdownCall *call)
{
	char	   *hash;

	if (PG_ARGISNULL(i))
		argument_missing("policy");
	call->policy = argument_policy(PG_GETARG_JSONB_P(i), &hash);
	call->policy_hash = hash;
}

static char *
session_key_argument(FunctionCallInfo fcinfo, int i, const char *name)
{
	return PG_ARGISNULL(i) ? pstrdup(name) : argument_session_key(PG_GETARG_TEXT_PP(i));
}

/* ------------------------------------------------------------------------
 * Results
 * ------------------------------------------------------------------------
 */

static void
set_text(Datum *values, bool *nulls, int i, const char *text)
{
	nulls[i] = text == NULL;
	values[i] = text ? CStringGetTextDatum(text) : (Datum) 0;
}

static Datum
form_handle(FunctionCallInfo fcinfo, const LockdownCall *call, const LockdownResult *result)
{
	Datum		values[HANDLE_COLUMNS];
	bool		nulls[HANDLE_COLUMNS] = {0};
	bool		applied = lockdown_reason_applies(result->reason);

	set_text(values, nulls, 0, call->session_key);
	set_text(values, nulls, 1, result->sprite.name);
	set_text(values, nulls, 2, result->sprite.id);
	set_text(values, nulls, 3, result->sprite.status);
	set_text(values, nulls, 4, result->sprite.url);
	values[5] = BoolGetDatum(result->fresh);
	values[6] = BoolGetDatum(applied);
	set_text(values, nulls, 7, lockdown_reason_name(result->reason));
	set_text(values, nulls, 8, call->policy_hash);
	set_text(values, nulls, 9, result->token);
	return HeapTupleGetDatum(heap_form_tuple(entry_row_type(fcinfo), values, nulls));
}

/* ------------------------------------------------------------------------
 * Hand-backs
 * ------------------------------------------------------------------------
 */

/* To be refused before any request, and not when the rows are written. */
static void
prevent_unless_writable(const char *command)
{
	PreventCommandIfReadOnly(command);
	PreventCommandIfParallelMode(command);
}

/* What both hand-backs share: arguments 3 and 4, the order, and the handle. */
static Datum
hand_back(FunctionCallInfo fcinfo, LockdownCall *call, const char *command)
{
	LockdownResult result;

	if (!PG_ARGISNULL(3))
		call->config = argument_config(PG_GETARG_JSONB_P(3));
	prevent_unless_writable(command);
	call->endpoint = entry_server(fcinfo, 4);
	open_tables(fcinfo, call);
	lockdown_hand_back(call, &result);
	return form_handle(fcinfo, call, &result);
}

Datum
sprite_get_or_create(PG_FUNCTION_ARGS)
{
	LockdownCall call = {0};

	call.name = entry_name(fcinfo, 0);
	policy_argument(fcinfo, 1, &call);
	call.session_key = session_key_argument(fcinfo, 2, call.name);
	return hand_back(fcinfo, &call, "sprite_get_or_create()");
}

Datum
sprite_ensure_lockdown(PG_FUNCTION_ARGS)
{
	LockdownCall call = {0};

	call.name = entry_name(fcinfo, 0);
	policy_argument(fcinfo, 1, &call);
	if (!PG_ARGISNULL(2))
		call.applied_token = text_to_cstring(PG_GETARG_TEXT_PP(2));
	return hand_back(fcinfo, &call, "sprite_ensure_lockdown()");
}

/* The handle of an attach says where the VM is; it claims nothing more. */
Datum
sprite_attach(PG_FUNCTION_ARGS)
{
	char	   *name = entry_name(fcinfo, 0);
	Endpoint   *endpoint = entry_server(fcinfo, 1);
	Datum		values[HANDLE_COLUMNS] = {0};
	bool		nulls[HANDLE_COLUMNS] = {0};
	Sprite		sprite;

	if (!lockdown_attach(endpoint, name, &sprite))
		PG_RETURN_NULL();

	set_text(values, nulls, 1, sprite.name);
	set_text(values, nulls, 2, sprite.id);
	set_text(values, nulls, 3, sprite.status);
	set_text(values, nulls, 4, sprite.url);
	values[5] = BoolGetDatum(false);
	values[6] = BoolGetDatum(false);
	nulls[0] = nulls[7] = nulls[8] = nulls[9] = true;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(entry_row_type(fcinfo), values, nulls)));
}

Datum
sprite_lockdown_plan(PG_FUNCTION_ARGS)
{
	LockdownCall call = {0};
	LockdownResult result;
	Datum		values[PLAN_COLUMNS];
	bool		nulls[PLAN_COLUMNS] = {0};
	bool		exists;

	call.name = entry_name(fcinfo, 0);
	policy_argument(fcinfo, 1, &call);
	call.session_key = session_key_argument(fcinfo, 2, call.name);
	call.endpoint = entry_server(fcinfo, 3);
	open_tables(fcinfo, &call);

	exists = lockdown_plan(&call, &result);
	values[0] = BoolGetDatum(exists);
	set_text(values, nulls, 1, result.sprite.id);
	values[2] = BoolGetDatum(!exists);
	values[3] = BoolGetDatum(lockdown_reason_applies(result.reason));
	set_text(values, nulls, 4, lockdown_reason_name(result.reason));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(entry_row_type(fcinfo), values, nulls)));
}

Datum
sprite_destroy(PG_FUNCTION_ARGS)
{
	char	   *name = entry_name(fcinfo, 0);
	Endpoint   *endpoint;
	LockdownCall call = {0};

	prevent_unless_writable("sprite_destroy()");
	endpoint = entry_server(fcinfo, 1);
	open_tables(fcinfo, &call);
	PG_RETURN_BOOL(lockdown_destroy(endpoint, call.sessions, call.journal, name));
}

/* ------------------------------------------------------------------------
 * What the platform says
 * ------------------------------------------------------------------------
 */

typedef struct ListSink
{
	Tuplestorestate *store;
	TupleDesc	desc;
} ListSink;

static void
set_timestamp(Datum *values, bool *nulls, int i, TimestampTz timestamp)
{
	nulls[i] = TIMESTAMP_NOT_FINITE(timestamp);
	values[i] = TimestampTzGetDatum(timestamp);
}

static void
put_sprite(const Sprite *sprite, void *arg)
{
	ListSink   *sink = arg;
	Datum		values[LIST_COLUMNS];
	bool		nulls[LIST_COLUMNS] = {0};

	set_text(values, nulls, 0, sprite->name);
	set_text(values, nulls, 1, sprite->id);
	set_text(values, nulls, 2, sprite->status);
	set_text(values, nulls, 3, sprite->url);
	set_timestamp(values, nulls, 4, sprite->created_at);
	set_timestamp(values, nulls, 5, sprite->updated_at);
	set_timestamp(values, nulls, 6, sprite->last_running_at);
	set_text(values, nulls, 7, sprite->organization);
	tuplestore_putvalues(sink->store, sink->desc, values, nulls);
}

/* Opens a tuplestore that outlives this call, as materialize mode wants it. */
static ListSink
open_sink(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *info = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old_context;
	ListSink	sink;

	if (info == NULL || !IsA(info, ReturnSetInfo) || !(info->allowedModes & SFRM_Materialize))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	old_context = MemoryContextSwitchTo(info->econtext->ecxt_per_query_memory);
	sink.desc = CreateTupleDescCopy(entry_row_type(fcinfo));
	sink.store = tuplestore_begin_heap((info->allowedModes & SFRM_Materialize_Random) != 0,
									   false, work_mem);
	MemoryContextSwitchTo(old_context);
	info->returnMode = SFRM_Materialize;
	info->setResult = sink.store;
	info->setDesc = sink.desc;
	return sink;
}

Datum
sprite_list(PG_FUNCTION_ARGS)
{
	char	   *prefix = PG_ARGISNULL(0) ? pstrdup("") : argument_name_prefix(PG_GETARG_TEXT_PP(0));
	Endpoint   *endpoint = entry_server(fcinfo, 1);
	ListSink	sink = open_sink(fcinfo);
	ApiResult	result;

	sprites_api_list(sprites_api_open(endpoint), prefix, put_sprite, &sink, &result);
	if (result.outcome != API_OK)
		api_result_raise(&result, "list Sprites", NULL);
	return (Datum) 0;
}

Datum
sprite_network_policy(PG_FUNCTION_ARGS)
{
	char	   *name = entry_name(fcinfo, 0);
	Endpoint   *endpoint = entry_server(fcinfo, 1);
	ReportedPolicy reported;
	ApiResult	result;
	char	   *text;

	sprites_api_policy_get(sprites_api_open(endpoint), name, &reported, &result);
	if (result.outcome != API_OK)
		api_result_raise(&result, "read the network policy of", name);
	text = pg_any_to_server(reported.text, (int) strlen(reported.text), PG_UTF8);
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}
