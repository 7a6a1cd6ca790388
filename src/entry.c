/*
 * entry.c
 *	  What the SQL entry points share.
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/lsyscache.h"

#include "arguments.h"
#include "entry.h"

char *
entry_name(FunctionCallInfo fcinfo, int i)
{
	if (PG_ARGISNULL(i))
		argument_missing("name");
	return argument_sprite_name(PG_GETARG_TEXT_PP(i));
}

/*
 * The extension is not relocatable, so the schema of the function that was
 * called is where its table and its validator are.
 */
Oid
entry_schema(FunctionCallInfo fcinfo)
{
	return get_func_namespace(fcinfo->flinfo->fn_oid);
}

Endpoint *
entry_server(FunctionCallInfo fcinfo, int i)
{
	if (PG_ARGISNULL(i))
		argument_missing("server");
	return endpoint_open(NameStr(*PG_GETARG_NAME(i)), entry_schema(fcinfo));
}

TupleDesc
entry_row_type(FunctionCallInfo fcinfo)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("function returning record called in context that cannot accept type record")));
	return BlessTupleDesc(desc);
}
