/*
 * api_result.c
 *	  What became of a call to the platform, classified once.
 */
#include "postgres.h"

#include <json-c/json.h>

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "api_result.h"
#include "reply.h"

/* As much of an error text as helps a reader; the rest is a page of markup. */
#define MAX_ERROR_TEXT 1024
#define MAX_ERROR_CODE 64
#define REDACTED "***"

/* What the log calls an outcome, and the SQLSTATE it is raised with. */
typedef struct OutcomeInfo
{
	int			sqlstate;
	const char *words;
} OutcomeInfo;

static const OutcomeInfo outcomes[] = {
	[API_OK] = {ERRCODE_SUCCESSFUL_COMPLETION, "no failure"},
	[API_ABSENT] = {ERRCODE_SPRITE_NOT_FOUND, "there is no such Sprite"},
	[API_EXISTS] = {ERRCODE_SPRITE_CONFLICT, "the name is taken"},
	[API_UNAUTHORIZED] = {ERRCODE_SPRITE_UNAUTHORIZED, "the platform refuses the token"},
	[API_RATE_LIMITED] = {ERRCODE_SPRITE_RATE_LIMITED, "the platform limits the rate"},
	[API_CONFLICT] = {ERRCODE_SPRITE_CONFLICT, "the platform reports a conflict"},
	[API_UNAVAILABLE] = {ERRCODE_SPRITE_UNAVAILABLE, "the platform is unavailable"},
	[API_REJECTED] = {ERRCODE_INVALID_PARAMETER_VALUE, "the platform rejects the request"},
	[API_NOT_SENT] = {ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION, "the platform cannot be reached"},
	[API_LOST] = {ERRCODE_CONNECTION_FAILURE, "the platform did not answer"},
	[API_TOO_LARGE] = {ERRCODE_PROGRAM_LIMIT_EXCEEDED, "the reply is too large"},
	[API_MALFORMED] = {ERRCODE_PROTOCOL_VIOLATION, "the reply makes no sense"},
	[API_UNFINISHED] = {ERRCODE_SPRITE_NOT_CONFIRMED, "the command's end was not reported"},
	[API_NO_FILE] = {ERRCODE_UNDEFINED_FILE, "there is no such file or directory"},
};

/* ------------------------------------------------------------------------
 * Text
 * ------------------------------------------------------------------------
 */

/*
 * Replaces what is no text: control characters by blanks, bytes that are not
 * UTF-8 by question marks, and, where the database is not UTF-8, all beyond
 * ASCII, since a message must not fail for want of a conversion.
 */
static char *
printable(const char *bytes, size_t len)
{
	bool		keep_utf8 = GetDatabaseEncoding() == PG_UTF8;
	StringInfoData text;

	initStringInfo(&text);
	for (size_t i = 0; i < len;)
	{
		const unsigned char *at = (const unsigned char *) bytes + i;
		int			width = pg_utf_mblen(at);

		if (width == 1 && *at < 0x80)
			appendStringInfoChar(&text, (char) (*at < 0x20 || *at == 0x7F ? ' ' : *at));
		else if (keep_utf8 && width > 1 && i + width <= len && pg_utf8_islegal(at, width))
			appendBinaryStringInfo(&text, bytes + i, width);
		else
		{
			appendStringInfoChar(&text, '?');
			width = 1;
		}
		i += width;
	}
	return text.data;
}

static char *
redact(char *text, const char *credential)
{
	StringInfoData clean;
	size_t		len = credential ? strlen(credential) : 0;
	const char *at = text;
	const char *found;

	if (len == 0 || strstr(text, credential) == NULL)
		return text;
	initStringInfo(&clean);
	while ((found = strstr(at, credential)) != NULL)
	{
		appendBinaryStringInfo(&clean, at, (int) (found - at));
		appendStringInfoString(&clean, REDACTED);
		at = found + len;
	}
	appendStringInfoString(&clean, at);
	return clean.data;
}

char *
api_result_clean_text(const char *bytes, size_t len, const char *credential)
{
	/* room for a credential that the cut below would leave half standing */
	size_t		head = MAX_ERROR_TEXT + (credential ? strlen(credential) : 0);
	char	   *text = redact(printable(bytes, Min(len, head)), credential);
	size_t		text_len = strlen(text);

	if (text_len > MAX_ERROR_TEXT)
		text_len = pg_mbcliplen(text, (int) text_len, MAX_ERROR_TEXT);
	while (text_len > 0 && text[text_len - 1] == ' ')
		text_len--;
	text[text_len] = '\0';
	return text_len > 0 ? text : NULL;
}

/* Codes of the platform are like sprite_creation_rate_limited; prose is not. */
static bool
is_code(const char *text)
{
	size_t		len = strlen(text);

	return len > 0 && len <= MAX_ERROR_CODE &&
		strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == len;
}

static void
set_text(ApiResult *result, const char *text, const char *credential)
{
	if (text != NULL && result->text == NULL)
		result->text = api_result_clean_text(text, strlen(text), credential);
}

static void
set_code(ApiResult *result, const char *code, const char *credential)
{
	if (code != NULL && result->code == NULL && is_code(code) &&
		(credential == NULL || strstr(code, credential) == NULL))
		result->code = pstrdup(code);
}

/*
 * The four shapes of an error body: {"error", "message", ...} where "error" is
 * a code or prose, {"errors": [prose]}, {"error", "code"}, and plain text.
 */
static void
read_error_object(ApiResult *result, json_object *body, const char *credential)
{
	const char *error = NULL;
	const char *message = NULL;
	const char *code = NULL;
	json_object *errors = NULL;

	(void) reply_text(body, "error", &error);
	(void) reply_text(body, "message", &message);
	if (!reply_text(body, "code", &code) || code == NULL)
		(void) reply_text(body, "error_code", &code);

	set_code(result, code, credential);
	set_code(result, error, credential);
	set_text(result, message, credential);
	set_text(result, error, credential);
	if (json_object_object_get_ex(body, "errors", &errors) &&
		json_object_is_type(errors, json_type_array) && json_object_array_length(errors) > 0)
	{
		json_object *first = json_object_array_get_idx(errors, 0);

		if (json_object_is_type(first, json_type_string))
			set_text(result, json_object_get_string(first), credential);
	}
	if (reply_count(body, "retry_after_seconds") >= 0)
		result->retry_after = reply_count(body, "retry_after_seconds");
}

static void
read_error_body(ApiResult *result, const HttpReply *reply, const char *credential)
{
	const char *problem;
	json_object *body = reply_parse(reply->body, reply->body_len, &problem);

	if (body != NULL)
		read_error_object(result, body, credential);
	if (result->text == NULL)
		result->text = api_result_clean_text(reply->body, reply->body_len, credential);
}

/* ------------------------------------------------------------------------
 * Classification
 * ------------------------------------------------------------------------
 */

static ApiOutcome
outcome_of_status(long status)
{
	if (status >= 200 && status <= 299)
		return API_OK;
	if (status >= 500 && status <= 599)
		return API_UNAVAILABLE;
	switch (status)
	{
		case 400:
		case 413:
		case 414:
		case 422:
		case 431:
			return API_REJECTED;
		case 401:
		case 403:
			return API_UNAUTHORIZED;
		case 404:
		case 410:
			return API_ABSENT;
		case 408:
			return API_UNAVAILABLE;
		case 409:
			return API_CONFLICT;
		case 429:
			return API_RATE_LIMITED;
		default:
			return API_MALFORMED;
	}
}

static ApiOutcome
outcome_of_transport(HttpOutcome outcome)
{
	switch (outcome)
	{
		case HTTP_NOT_SENT:
			return API_NOT_SENT;
		case HTTP_LOST:
			return API_LOST;
		case HTTP_TOO_LARGE:
			return API_TOO_LARGE;
		case HTTP_MALFORMED:
		case HTTP_REPLIED:
			break;
	}
	return API_MALFORMED;
}

void
api_result_classify(ApiResult *result, const HttpReply *reply, const char *credential)
{
	result->status = reply->status;
	result->timed_out = reply->timed_out;
	result->retry_after = reply->retry_after;
	if (reply->request_id != NULL && (credential == NULL || strstr(reply->request_id, credential) == NULL))
		result->request_id = reply->request_id;

	if (reply->outcome != HTTP_REPLIED)
	{
		result->outcome = outcome_of_transport(reply->outcome);
		result->text = psprintf("%s (%s)", reply->error ? reply->error : "no details", reply->stage);
		return;
	}
	result->outcome = outcome_of_status(reply->status);
	if (result->outcome == API_OK)
		return;
	read_error_body(result, reply, credential);
	result->name_taken = reply->status == 409 ||
		(reply->status == 400 && strstr(reply->body, "already exists") != NULL);
	if (result->outcome == API_MALFORMED && result->text == NULL)
		result->text = psprintf("unexpected HTTP status %ld", reply->status);
}

void
api_result_malformed(ApiResult *result, const char *problem)
{
	result->outcome = API_MALFORMED;
	result->text = pstrdup(problem);
}

bool
api_result_is_transient(const ApiResult *result)
{
	switch (result->outcome)
	{
		case API_RATE_LIMITED:
		case API_UNAVAILABLE:
		case API_LOST:
		case API_NOT_SENT:
		case API_UNFINISHED:
			return true;
		default:
			return false;
	}
}

/* ------------------------------------------------------------------------
 * Raising
 * ------------------------------------------------------------------------
 */

int
api_result_sqlstate(const ApiResult *result)
{
	if (result->outcome == API_REJECTED && strcmp(result->phase, PHASE_POLICY_SET) == 0)
		return ERRCODE_SPRITE_POLICY_REJECTED;
	if (result->outcome == API_REJECTED && strcmp(result->phase, PHASE_EXEC) == 0)
		return ERRCODE_SPRITE_NOT_CONFIRMED;
	return outcomes[result->outcome].sqlstate;
}

char *
api_result_detail(const ApiResult *result)
{
	StringInfoData detail;

	initStringInfo(&detail);
	appendStringInfo(&detail, "Phase: %s", result->phase);
	if (result->status != 0)
		appendStringInfo(&detail, "; HTTP status: %ld", result->status);
	if (result->code != NULL)
		appendStringInfo(&detail, "; platform code: %s", result->code);
	if (result->retry_after >= 0)
		appendStringInfo(&detail, "; retry after: " INT64_FORMAT " s", result->retry_after);
	if (result->timed_out)
		appendStringInfoString(&detail, "; timed out");
	appendStringInfo(&detail, "; attempts: %d", Max(result->attempt, 1));
	if (result->request_id != NULL)
		appendStringInfo(&detail, "; Fly-Request-Id: %s", result->request_id);
	if (result->text != NULL)
		appendStringInfo(&detail, "; text: %s", result->text);
	return detail.data;
}

static const char *
hint_of(const ApiResult *result)
{
	switch (result->outcome)
	{
		case API_UNAUTHORIZED:
			return "Check the token of the user mapping, and whether it is restricted to other names.";
		case API_RATE_LIMITED:
			return "Call again later; nothing is left half done.";
		case API_NOT_SENT:
			return "Check the server's option \"api_url\", the network and, for TLS, \"ca_file\".";
		case API_TOO_LARGE:
			return "The limit is sprite_lockdown.max_response_bytes.";
		default:
			return NULL;
	}
}

void
api_result_raise(const ApiResult *result, const char *action, const char *name)
{
	const char *hint = hint_of(result);
	const char *words = outcomes[result->outcome].words;

	ereport(ERROR,
			(errcode(api_result_sqlstate(result)),
			 name ? errmsg("could not %s Sprite \"%s\": %s", action, name, words) :
			 errmsg("could not %s: %s", action, words),
			 errdetail_internal("%s", api_result_detail(result)),
			 hint ? errhint("%s", hint) : 0));
	pg_unreachable();
}
