/*
 * sessions.c
 *	  The table machine_sessions.
 *
 * Every operator and function in the queries is schema-qualified: they run
 * with the owner's rights under the caller's search_path.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "sessions.h"

#define TABLE_NAME "machine_sessions"
#define MAX_QUERY_ARGS 5

typedef enum SessionQuery
{
	QUERY_READ,
	QUERY_CONTRADICT,
	QUERY_TOUCH,
	QUERY_LINK,
	QUERY_SPREAD,
	QUERY_FORGET,
	NUM_SESSION_QUERIES
} SessionQuery;

typedef struct QueryInfo
{
	const char *text;			/* %s stands for the table */
	bool		writes;
	int			nargs;
	Oid			argtypes[MAX_QUERY_ARGS];
} QueryInfo;

static const QueryInfo queries[NUM_SESSION_QUERIES] = {
	[QUERY_READ] = {
		"SELECT server_name, sprite_name, egress_policy_token, updated_at"
		" FROM %s WHERE session_key OPERATOR(pg_catalog.=) $1",
		false, 1, {TEXTOID}
	},
	[QUERY_CONTRADICT] = {
		"SELECT 1 FROM %s"
		" WHERE server_name OPERATOR(pg_catalog.=) $1 AND sprite_name OPERATOR(pg_catalog.=) $2"
		" AND egress_policy_token OPERATOR(pg_catalog.<>) $3"
		" AND pg_catalog.starts_with(egress_policy_token, $4) LIMIT 1",
		false, 4, {NAMEOID, TEXTOID, TEXTOID, TEXTOID}
	},
	[QUERY_TOUCH] = {
		"UPDATE %s SET last_active_at = pg_catalog.now()"
		" WHERE session_key OPERATOR(pg_catalog.=) $1",
		true, 1, {TEXTOID}
	},
	[QUERY_LINK] = {
		"INSERT INTO %s AS s (server_name, sprite_name, sprite_id, egress_policy_token,"
		" session_key, created_at, last_active_at, updated_at)"
		" VALUES ($1, $2, $3, $4, $5, pg_catalog.now(), pg_catalog.now(), pg_catalog.now())"
		" ON CONFLICT (session_key) DO UPDATE SET server_name = EXCLUDED.server_name,"
		" sprite_name = EXCLUDED.sprite_name, sprite_id = EXCLUDED.sprite_id,"
		" egress_policy_token = EXCLUDED.egress_policy_token,"
		" last_active_at = EXCLUDED.last_active_at, updated_at = EXCLUDED.updated_at",
		true, 5, {NAMEOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID}
	},
	[QUERY_SPREAD] = {
		"UPDATE %s SET sprite_id = $3, egress_policy_token = $4, updated_at = pg_catalog.now()"
		" WHERE server_name OPERATOR(pg_catalog.=) $1 AND sprite_name OPERATOR(pg_catalog.=) $2"
		" AND ($5 IS NULL OR session_key OPERATOR(pg_catalog.<>) $5)",
		true, 5, {NAMEOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID}
	},
	[QUERY_FORGET] = {
		"DELETE FROM %s"
		" WHERE server_name OPERATOR(pg_catalog.=) $1 AND sprite_name OPERATOR(pg_catalog.=) $2",
		true, 2, {NAMEOID, TEXTOID}
	},
};

/* Plans live as long as the backend; relid tells when the table is another. */
typedef struct SavedPlan
{
	Oid			relid;
	SPIPlanPtr	plan;
} SavedPlan;

static SavedPlan saved_plans[NUM_SESSION_QUERIES];

SessionTable *
sessions_open(Oid extension_schema)
{
	SessionTable *table = palloc0(sizeof(SessionTable));
	HeapTuple	tuple;

	table->relid = get_relname_relid(TABLE_NAME, extension_schema);
	tuple = OidIsValid(table->relid) ?
		SearchSysCache1(RELOID, ObjectIdGetDatum(table->relid)) : NULL;
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" of extension sprite_lockdown does not exist", TABLE_NAME),
				 errhint("It must be in the schema of the extension's functions.")));
	table->owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	table->qualified_name = quote_qualified_identifier(get_namespace_name(extension_schema),
													   TABLE_NAME);
	return table;
}

static SPIPlanPtr
plan_of(const SessionTable *table, SessionQuery query)
{
	const QueryInfo *info = &queries[query];
	SavedPlan  *saved = &saved_plans[query];
	SPIPlanPtr	plan;

	if (saved->plan != NULL && saved->relid == table->relid && SPI_plan_is_valid(saved->plan))
		return saved->plan;
	if (saved->plan != NULL)
	{
		SPIPlanPtr	old = saved->plan;

		saved->plan = NULL;
		SPI_freeplan(old);
	}
	plan = SPI_prepare(psprintf(info->text, table->qualified_name), info->nargs,
					   (Oid *) info->argtypes);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare a query on %s: %s", table->qualified_name,
			 SPI_result_code_string(SPI_result));
	saved->plan = plan;
	saved->relid = table->relid;
	return plan;
}

/*
 * Runs one query as the table's owner, under a snapshot of now.  Needs an open
 * SPI connection.
 */
static void
run_query(const SessionTable *table, SessionQuery query, Datum *values, const char *nulls)
{
	Oid			save_userid;
	int			save_context;
	int			code;

	GetUserIdAndSecContext(&save_userid, &save_context);
	SetUserIdAndSecContext(table->owner, save_context |
						   SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);

	/* an earlier call of the same statement may have written the row */
	if (queries[query].writes || TransactionIdIsValid(GetCurrentTransactionIdIfAny()))
		CommandCounterIncrement();
	code = SPI_execute_snapshot(plan_of(table, query), values, nulls,
								GetLatestSnapshot(), InvalidSnapshot,
								!queries[query].writes, true, 0);
	if (code < 0)
		elog(ERROR, "a query on %s failed: %s", table->qualified_name,
			 SPI_result_code_string(code));

	SetUserIdAndSecContext(save_userid, save_context);
}

static char *
column_text(MemoryContext context, int column)
{
	char	   *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);

	return value ? MemoryContextStrdup(context, value) : NULL;
}

bool
sessions_read(const SessionTable *table, const char *session_key, SessionRow *row)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		values[] = {CStringGetTextDatum(session_key)};
	bool		found;

	memset(row, 0, sizeof(SessionRow));
	SPI_connect();
	run_query(table, QUERY_READ, values, NULL);
	found = SPI_processed > 0;
	if (found)
	{
		bool		isnull;

		row->server_name = column_text(caller, 1);
		row->sprite_name = column_text(caller, 2);
		row->token = column_text(caller, 3);
		row->updated_at = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0],
															SPI_tuptable->tupdesc, 4, &isnull));
	}
	SPI_finish();
	return found;
}

bool
sessions_contradict(const SessionTable *table, const char *server_name,
					const char *sprite_name, const char *sprite_id, const char *token)
{
	NameData	server;
	Datum		values[] = {
		NameGetDatum(&server),
		CStringGetTextDatum(sprite_name),
		CStringGetTextDatum(token),
		CStringGetTextDatum(psprintf("%s:", sprite_id))
	};
	bool		found;

	namestrcpy(&server, server_name);
	SPI_connect();
	run_query(table, QUERY_CONTRADICT, values, NULL);
	found = SPI_processed > 0;
	SPI_finish();
	return found;
}

void
sessions_touch(const SessionTable *table, const char *session_key)
{
	Datum		values[] = {CStringGetTextDatum(session_key)};

	SPI_connect();
	run_query(table, QUERY_TOUCH, values, NULL);
	SPI_finish();
}

static void
set_text_arg(Datum *values, char *nulls, int i, const char *text)
{
	values[i] = text ? CStringGetTextDatum(text) : (Datum) 0;
	nulls[i] = text ? ' ' : 'n';
}

void
sessions_confirm(const SessionTable *table, const char *session_key,
				 const char *server_name, const char *sprite_name,
				 const char *sprite_id, const char *token)
{
	NameData	server;
	Datum		values[MAX_QUERY_ARGS];
	char		nulls[MAX_QUERY_ARGS + 1] = "     ";

	namestrcpy(&server, server_name);
	values[0] = NameGetDatum(&server);
	set_text_arg(values, nulls, 1, sprite_name);
	set_text_arg(values, nulls, 2, sprite_id);
	set_text_arg(values, nulls, 3, token);
	set_text_arg(values, nulls, 4, session_key);

	SPI_connect();
	run_query(table, QUERY_SPREAD, values, nulls);
	if (session_key != NULL)
		run_query(table, QUERY_LINK, values, nulls);
	SPI_finish();
}

void
sessions_forget(const SessionTable *table, const char *server_name, const char *sprite_name)
{
	NameData	server;
	Datum		values[] = {
		NameGetDatum(&server),
		CStringGetTextDatum(sprite_name)
	};

	namestrcpy(&server, server_name);
	SPI_connect();
	run_query(table, QUERY_FORGET, values, NULL);
	SPI_finish();
}
