/*
 * owned_table.c
 *	  Tables of the extension, read and written as their owner.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "owned_table.h"

OwnedTable *
owned_table_find(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class class;
	OwnedTable *table;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	class = (Form_pg_class) GETSTRUCT(tuple);
	table = palloc0(sizeof(OwnedTable));
	table->relid = relid;
	table->owner = class->relowner;
	table->qualified_name = quote_qualified_identifier(get_namespace_name(class->relnamespace),
													   NameStr(class->relname));
	ReleaseSysCache(tuple);
	return table;
}

OwnedTable *
owned_table_open(const char *name, Oid extension_schema)
{
	Oid			relid = get_relname_relid(name, extension_schema);
	OwnedTable *table = OidIsValid(relid) ? owned_table_find(relid) : NULL;

	if (table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" of extension sprite_lockdown does not exist", name),
				 errhint("It must be in the schema of the extension's functions.")));
	return table;
}

/* By the table's OID: while the network was waited for, its name may have changed. */
static SPIPlanPtr
prepare(const OwnedTable *table, OwnedQuery *query)
{
	const OwnedTable *now = owned_table_find(table->relid);
	SPIPlanPtr	plan;

	if (now == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table %s has been dropped", table->qualified_name)));
	plan = SPI_prepare(psprintf(query->text, now->qualified_name), query->nargs, query->argtypes);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare a query on %s: %s", now->qualified_name,
			 SPI_result_code_string(SPI_result));
	return plan;
}

static SPIPlanPtr
plan_of(const OwnedTable *table, OwnedQuery *query)
{
	SPIPlanPtr	plan = query->plan;

	AcceptInvalidationMessages();
	if (plan != NULL && query->planned_for == table->relid && SPI_plan_is_valid(plan))
		return plan;
	query->plan = NULL;
	if (plan != NULL)
		SPI_freeplan(plan);
	plan = prepare(table, query);
	query->plan = plan;
	query->planned_for = table->relid;
	return plan;
}

void
owned_table_run(const OwnedTable *table, OwnedQuery *query, Datum *values, const char *nulls)
{
	Oid			save_userid;
	int			save_context;
	int			code;

	GetUserIdAndSecContext(&save_userid, &save_context);
	SetUserIdAndSecContext(table->owner, save_context |
						   SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);

	/* an earlier call of the same statement may have written the row */
	if (query->writes || TransactionIdIsValid(GetCurrentTransactionIdIfAny()))
		CommandCounterIncrement();
	code = SPI_execute_snapshot(plan_of(table, query), values, nulls,
								GetLatestSnapshot(), InvalidSnapshot,
								!query->writes, true, 0);
	if (code < 0)
		elog(ERROR, "a query on %s failed: %s", table->qualified_name,
			 SPI_result_code_string(code));

	SetUserIdAndSecContext(save_userid, save_context);
}

void
owned_table_text_arg(Datum *values, char *nulls, int i, const char *text)
{
	values[i] = text ? CStringGetTextDatum(text) : (Datum) 0;
	nulls[i] = text ? ' ' : 'n';
}

char *
owned_table_text(MemoryContext context, int column)
{
	char	   *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);

	return value ? MemoryContextStrdup(context, value) : NULL;
}
