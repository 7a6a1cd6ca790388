/*
 * http_probe.c
 *	  The functions of http.h, callable from SQL.  For tests only.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "http.h"

PG_MODULE_MAGIC;

#define REPLY_COLUMNS 11

extern PGDLLEXPORT Datum http_probe(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum http_probe_sleep(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum http_probe_escape(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum http_probe_url_problem(PG_FUNCTION_ARGS);

static char *
text_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

static const char *
outcome_name(HttpOutcome outcome)
{
	switch (outcome)
	{
		case HTTP_REPLIED:
			return "replied";
		case HTTP_NOT_SENT:
			return "not sent";
		case HTTP_LOST:
			return "lost";
		case HTTP_TOO_LARGE:
			return "too large";
		case HTTP_MALFORMED:
			return "malformed";
	}
	return "?";
}

static void
set_text(Datum *values, bool *nulls, int column, const char *text)
{
	nulls[column] = text == NULL;
	if (text != NULL)
		values[column] = CStringGetTextDatum(text);
}

static Datum
reply_record(FunctionCallInfo fcinfo, const HttpReply *reply)
{
	Datum		values[REPLY_COLUMNS];
	bool		nulls[REPLY_COLUMNS] = {false};
	TupleDesc	desc;
	bytea	   *body;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE ||
		desc->natts != REPLY_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("http_probe must be declared with %d OUT columns", REPLY_COLUMNS)));
	body = palloc(VARHDRSZ + reply->body_len);
	SET_VARSIZE(body, VARHDRSZ + reply->body_len);
	memcpy(VARDATA(body), reply->body, reply->body_len);

	set_text(values, nulls, 0, outcome_name(reply->outcome));
	values[1] = BoolGetDatum(reply->timed_out);
	set_text(values, nulls, 2, reply->stage);
	set_text(values, nulls, 3, reply->error);
	values[4] = Int32GetDatum((int32) reply->status);
	values[5] = PointerGetDatum(body);
	set_text(values, nulls, 6, reply->content_type);
	set_text(values, nulls, 7, reply->request_id);
	values[8] = Int64GetDatum(reply->retry_after);
	values[9] = BoolGetDatum(reply->framed);
	values[10] = BoolGetDatum(reply->body[reply->body_len] == '\0');
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/*
 * http_probe(method, url, bearer, content_type, body, connect_timeout, timeout,
 *			  max_body, ca_file, interruptible)
 */
PG_FUNCTION_INFO_V1(http_probe);

Datum
http_probe(PG_FUNCTION_ARGS)
{
	HttpRequest request = {0};
	bytea	   *body = PG_ARGISNULL(4) ? NULL : PG_GETARG_BYTEA_PP(4);

	request.method = text_argument(fcinfo, 0);
	request.url = text_argument(fcinfo, 1);
	request.bearer = text_argument(fcinfo, 2);
	request.accept = "*/*";
	request.content_type = text_argument(fcinfo, 3);
	if (body != NULL)
	{
		request.body = VARDATA_ANY(body);
		request.body_len = VARSIZE_ANY_EXHDR(body);
	}
	request.connect_timeout = PG_GETARG_INT32(5);
	request.timeout = PG_GETARG_INT32(6);
	request.max_body = (size_t) PG_GETARG_INT64(7);
	request.ca_file = text_argument(fcinfo, 8);
	request.interruptible = PG_GETARG_BOOL(9);
	return reply_record(fcinfo, http_perform(&request));
}

PG_FUNCTION_INFO_V1(http_probe_sleep);

Datum
http_probe_sleep(PG_FUNCTION_ARGS)
{
	http_sleep(PG_GETARG_INT32(0));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(http_probe_escape);

Datum
http_probe_escape(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(http_escape_segment(text_argument(fcinfo, 0))));
}

PG_FUNCTION_INFO_V1(http_probe_url_problem);

Datum
http_probe_url_problem(PG_FUNCTION_ARGS)
{
	char	   *problem;

	if (http_check_url(text_argument(fcinfo, 0), &problem))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}
