/*
 * workspace_sql.c
 *	  SQL entry points of work in a VM.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "compat.h"
#include "entry.h"
#include "journal.h"
#include "sessions.h"
#include "workspace.h"

PG_FUNCTION_INFO_V1(sprite_exec);
PG_FUNCTION_INFO_V1(sprite_read_file);
PG_FUNCTION_INFO_V1(sprite_write_file);

#define EXEC_COLUMNS	3

/* A day: a command that takes longer wants a service, not a transaction. */
#define MIN_TIMEOUT_MS	1
#define MAX_TIMEOUT_MS	(24 * 60 * 60 * 1000)
#define MAX_MODE		07777

/* ------------------------------------------------------------------------
 * Arguments
 * ------------------------------------------------------------------------
 */

/* What the VM gets is UTF-8. */
static char *
to_vm(const char *text)
{
	return pg_server_to_any(text, (int) strlen(text), PG_UTF8);
}

static char *
text_argument(FunctionCallInfo fcinfo, int i, const char *argument)
{
	if (PG_ARGISNULL(i))
		argument_missing(argument);
	return to_vm(text_to_cstring(PG_GETARG_TEXT_PP(i)));
}

static char *
path_argument(FunctionCallInfo fcinfo, int i, const char *argument)
{
	char	   *path = text_argument(fcinfo, i, argument);

	if (path[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" is empty", argument),
				 errhint("Give a path; a relative one is taken from the root of the VM.")));
	return path;
}

static char **
array_argument(FunctionCallInfo fcinfo, int i, const char *argument, int *n)
{
	Datum	   *elements;
	bool	   *nulls;
	char	  **words;

	if (PG_ARGISNULL(i))
		argument_missing(argument);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(i), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, n);
	words = palloc(sizeof(char *) * (*n + 1));
	for (int j = 0; j < *n; j++)
	{
		if (nulls[j])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("element %d of argument \"%s\" is NULL", j + 1, argument)));
		words[j] = to_vm(TextDatumGetCString(elements[j]));
	}
	return words;
}

pg_noreturn static void
raise_bad_env(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid environment"),
			 errdetail("%s", detail),
			 errhint("An environment is an object like {\"LANG\": \"C.UTF-8\"}; it is added to the VM's own.")));
	pg_unreachable();
}

/* {"NAME": "value"} as "NAME=value". */
static void
env_argument(Jsonb *value, ExecCommand *command)
{
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	item;
	char	   *name = NULL;

	if (!JB_ROOT_IS_OBJECT(value))
		raise_bad_env("It is not an object.");
	command->env = palloc(sizeof(char *) * (JB_ROOT_COUNT(value) + 1));
	iterator = JsonbIteratorInit(&value->root);
	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			name = pnstrdup(item.val.string.val, item.val.string.len);
			if (name[0] == '\0' || strchr(name, '=') != NULL)
				raise_bad_env("A name is empty or holds an equals sign.");
		}
		else if (token == WJB_VALUE)
		{
			if (item.type != jbvString)
				raise_bad_env(psprintf("The value of \"%s\" is not a string.", name));
			command->env[command->nenv++] =
				to_vm(psprintf("%s=%.*s", name, item.val.string.len, item.val.string.val));
		}
	}
}

static int
timeout_argument(FunctionCallInfo fcinfo, int i)
{
	Interval   *interval;
	double		ms;

	if (PG_ARGISNULL(i))
		argument_missing("timeout");
	interval = PG_GETARG_INTERVAL_P(i);
	ms = (interval->month * (double) DAYS_PER_MONTH + interval->day) * SECS_PER_DAY * 1000.0 +
		(double) interval->time / 1000.0;
	if (!(ms >= MIN_TIMEOUT_MS && ms <= MAX_TIMEOUT_MS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid time-out"),
				 errdetail("It must be between a millisecond and a day.")));
	return (int) ms;
}

static int
mode_argument(FunctionCallInfo fcinfo, int i)
{
	int			mode;

	if (PG_ARGISNULL(i))
		return -1;
	mode = PG_GETARG_INT32(i);
	if (mode < 0 || mode > MAX_MODE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid file mode %d", mode),
				 errdetail("It must be between 0 and 4095, which is 7777 in octal."),
				 errhint("SQL has no octal numbers before PostgreSQL 16: 0644 is 420, 0755 is 493.")));
	return mode;
}

static void
open_call(FunctionCallInfo fcinfo, int server, WorkspaceCall *call)
{
	call->allow_unproven = !PG_ARGISNULL(server + 1) && PG_GETARG_BOOL(server + 1);
	call->endpoint = entry_server(fcinfo, server);
	call->sessions = owned_table_open(SESSION_TABLE, entry_schema(fcinfo));
	call->journal = owned_table_open(JOURNAL_TABLE, entry_schema(fcinfo));
}

/* ------------------------------------------------------------------------
 * Functions
 * ------------------------------------------------------------------------
 */

static bytea *
to_bytea(const char *bytes, size_t len)
{
	bytea	   *result;

	if (len > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the file does not fit a value")));
	result = palloc(VARHDRSZ + len);
	SET_VARSIZE(result, VARHDRSZ + len);
	if (len > 0)
		memcpy(VARDATA(result), bytes, len);
	return result;
}

Datum
sprite_exec(PG_FUNCTION_ARGS)
{
	WorkspaceCall call = {0};
	ExecCommand command = {0};
	ExecReply	reply;
	Datum		values[EXEC_COLUMNS];
	bool		nulls[EXEC_COLUMNS] = {0};
	char	   *program;
	char	  **args;
	int			nargs;

	call.name = entry_name(fcinfo, 0);
	program = text_argument(fcinfo, 1, "command");
	args = array_argument(fcinfo, 2, "args", &nargs);
	command.argv = argv_self_healing(program, args, nargs, path_argument(fcinfo, 3, "cwd"));
	if (!PG_ARGISNULL(4))
		env_argument(PG_GETARG_JSONB_P(4), &command);
	if (!PG_ARGISNULL(5))
	{
		bytea	   *input = PG_GETARG_BYTEA_PP(5);

		command.input = VARDATA_ANY(input);
		command.input_len = VARSIZE_ANY_EXHDR(input);
	}
	command.timeout_ms = timeout_argument(fcinfo, 6);
	open_call(fcinfo, 7, &call);
	workspace_exec(&call, &command, &reply);

	values[0] = Int32GetDatum(reply.exit_code);
	values[1] = PointerGetDatum(to_bytea(reply.out, reply.out_len));
	values[2] = PointerGetDatum(to_bytea(reply.err, reply.err_len));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(entry_row_type(fcinfo), values, nulls)));
}

Datum
sprite_read_file(PG_FUNCTION_ARGS)
{
	WorkspaceCall call = {0};
	char	   *path;
	const char *bytes;
	size_t		len;

	call.name = entry_name(fcinfo, 0);
	path = path_argument(fcinfo, 1, "path");
	open_call(fcinfo, 2, &call);
	if (!workspace_read_file(&call, path, &bytes, &len))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(to_bytea(bytes, len));
}

Datum
sprite_write_file(PG_FUNCTION_ARGS)
{
	WorkspaceCall call = {0};
	char	   *path;
	bytea	   *content;
	int			mode;

	call.name = entry_name(fcinfo, 0);
	path = path_argument(fcinfo, 1, "path");
	if (PG_ARGISNULL(2))
		argument_missing("content");
	content = PG_GETARG_BYTEA_PP(2);
	mode = mode_argument(fcinfo, 3);
	open_call(fcinfo, 4, &call);
	workspace_write_file(&call, path, mode, VARDATA_ANY(content), VARSIZE_ANY_EXHDR(content));
	PG_RETURN_VOID();
}
