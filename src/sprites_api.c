/*
 * sprites_api.c
 *	  The platform's calls as typed functions.
 */
#include "postgres.h"

#include <json-c/json.h>

#include "lib/stringinfo.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "http.h"
#include "reply.h"
#include "sprite_lockdown.h"
#include "sprites_api.h"

#define JSON_TYPE	"application/json"
#define BYTES_TYPE	"application/octet-stream"

/* The documentation allows 50 items a page; the schema allows 500. */
#define LIST_PAGE_ITEMS	50
/* 100,000 Sprites.  A list that does not end by then will not end. */
#define MAX_LIST_PAGES	2000
#define MAX_CONTINUATION_BYTES 4096

/* Message ids of an exec reply. */
#define EXEC_MESSAGE_EXIT 3

typedef struct ApiCall
{
	const char *phase;
	const char *method;
	char	   *path;
	const char *accept;
	char	   *body;			/* JSON, or NULL */
	const void *bytes;			/* in its place: bytes, and how many */
	size_t		nbytes;
	int			timeout;		/* ms */
	size_t		max_reply;		/* 0: sprite_lockdown.max_response_bytes */
} ApiCall;

SpritesApi *
sprites_api_open(Endpoint *endpoint)
{
	SpritesApi *api = palloc0(sizeof(SpritesApi));

	api->endpoint = endpoint;
	api->deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), sprite_call_timeout);
	return api;
}

int
sprites_api_time_left(const SpritesApi *api)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now >= api->deadline)
		return 0;
	return (int) Min((api->deadline - now) / 1000 + 1, PG_INT32_MAX);
}

static char *
sprite_path(const char *name, const char *rest)
{
	return psprintf("/v1/sprites/%s%s", http_escape_segment(name), rest);
}

/*
 * Performs one call and classifies what came of it.  NULL unless the platform
 * answered with a 2xx.
 */
static HttpReply *
perform(SpritesApi *api, const ApiCall *call, ApiResult *result)
{
	int			time_left = sprites_api_time_left(api);
	HttpRequest request = {0};
	HttpReply  *reply;

	memset(result, 0, sizeof(ApiResult));
	result->phase = call->phase;
	result->retry_after = -1;
	if (time_left == 0)
	{
		result->outcome = API_NOT_SENT;
		result->timed_out = true;
		result->text = pstrdup("sprite_lockdown.call_timeout is used up");
		return NULL;
	}

	request.method = call->method;
	request.url = psprintf("%s%s", api->endpoint->api_url, call->path);
	request.bearer = api->endpoint->credential;
	request.ca_file = api->endpoint->ca_file;
	request.accept = call->accept;
	request.content_type = call->bytes ? BYTES_TYPE : call->body ? JSON_TYPE : NULL;
	request.body = call->bytes ? call->bytes : call->body;
	request.body_len = call->bytes ? call->nbytes : call->body ? strlen(call->body) : 0;
	request.timeout = Min(call->timeout, time_left);
	request.connect_timeout = Min(sprite_connect_timeout, request.timeout);
	request.max_body = call->max_reply > 0 ? call->max_reply : (size_t) sprite_max_response_bytes;
	request.interruptible = !api->uninterruptible;

	reply = http_perform(&request);
	api_result_classify(result, reply, api->endpoint->credential);
	return result->outcome == API_OK ? reply : NULL;
}

/* "application/json", whatever parameters follow. */
static bool
is_json_type(const char *content_type)
{
	size_t		len = strlen(JSON_TYPE);

	return content_type != NULL && pg_strncasecmp(content_type, JSON_TYPE, len) == 0 &&
		(content_type[len] == '\0' || content_type[len] == ';' || content_type[len] == ' ');
}

/*
 * The reply's JSON object, if the status is the expected one.  Otherwise NULL
 * and the result says what is wrong.
 */
static json_object *
json_of_reply(const HttpReply *reply, bool expected_status, ApiResult *result)
{
	const char *problem;
	json_object *object;

	if (!expected_status)
	{
		api_result_malformed(result, "the call does not end with this status");
		return NULL;
	}
	if (!is_json_type(reply->content_type))
	{
		api_result_malformed(result, "the content type is not application/json");
		return NULL;
	}
	object = reply_parse(reply->body, reply->body_len, &problem);
	if (object == NULL)
		api_result_malformed(result, psprintf("the body is not proper JSON: %s", problem));
	return object;
}

static json_object *
perform_json(SpritesApi *api, const ApiCall *call, ApiResult *result)
{
	HttpReply  *reply = perform(api, call, result);

	return reply ? json_of_reply(reply, reply->status == 200, result) : NULL;
}

/* ------------------------------------------------------------------------
 * Sprites
 * ------------------------------------------------------------------------
 */

typedef struct NameSearch
{
	const char *name;
	bool		found;
} NameSearch;

static void
match_name(const Sprite *sprite, void *arg)
{
	NameSearch *search = arg;

	if (strcmp(sprite->name, search->name) == 0)
		search->found = true;
}

/*
 * The platform has been recorded to answer 500 for a name that does not exist.
 * The list tells that from a failure: it alone, never the 500, makes the
 * Sprite absent.
 */
static void
settle_500(SpritesApi *api, const char *name, ApiResult *result)
{
	NameSearch	search = {.name = name};
	ApiResult	listed;

	if (result->status != 500)
		return;
	sprites_api_list(api, name, match_name, &search, &listed);
	if (listed.outcome == API_OK && !search.found)
		result->outcome = API_ABSENT;
}

void
sprites_api_get(SpritesApi *api, const char *name, Sprite *sprite, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_GET,
		.method = "GET",
		.path = sprite_path(name, ""),
		.accept = JSON_TYPE,
		.timeout = sprite_request_timeout
	};
	json_object *object = perform_json(api, &call, result);
	const char *problem;

	memset(sprite, 0, sizeof(Sprite));
	settle_500(api, name, result);
	if (object == NULL)
		return;
	problem = api_json_sprite(object, name, false, sprite);
	if (problem != NULL)
		api_result_malformed(result, problem);
}

static char *
create_body(const char *name, const SpriteConfig *config)
{
	StringInfoData body;
	const char *separator = "";

	initStringInfo(&body);
	appendStringInfoString(&body, "{\"name\":");
	escape_json(&body, name);
	if (config != NULL)
	{
		appendStringInfoString(&body, ",\"config\":{");
		if (config->ram_mb > 0)
		{
			appendStringInfo(&body, "\"ram_mb\":%d", config->ram_mb);
			separator = ",";
		}
		if (config->cpus > 0)
		{
			appendStringInfo(&body, "%s\"cpus\":%d", separator, config->cpus);
			separator = ",";
		}
		if (config->storage_gb > 0)
		{
			appendStringInfo(&body, "%s\"storage_gb\":%d", separator, config->storage_gb);
			separator = ",";
		}
		if (config->region != NULL)
		{
			appendStringInfo(&body, "%s\"region\":", separator);
			escape_json(&body, config->region);
		}
		appendStringInfoChar(&body, '}');
	}
	appendStringInfoChar(&body, '}');
	return body.data;
}

void
sprites_api_create(SpritesApi *api, const char *name, const SpriteConfig *config,
				   Sprite *sprite, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_CREATE,
		.method = "POST",
		.path = "/v1/sprites",
		.accept = JSON_TYPE,
		.body = create_body(name, config),
		.timeout = sprite_request_timeout
	};
	HttpReply  *reply = perform(api, &call, result);
	json_object *object;
	const char *problem;

	memset(sprite, 0, sizeof(Sprite));
	if (result->name_taken)
		result->outcome = API_EXISTS;
	if (reply == NULL)
		return;
	object = json_of_reply(reply, reply->status == 200 || reply->status == 201, result);
	if (object == NULL)
		return;
	problem = api_json_sprite(object, name, false, sprite);
	if (problem != NULL)
		api_result_malformed(result, problem);
}

void
sprites_api_delete(SpritesApi *api, const char *name, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_DELETE,
		.method = "DELETE",
		.path = sprite_path(name, ""),
		.accept = "*/*",
		.timeout = sprite_request_timeout
	};

	(void) perform(api, &call, result);
	settle_500(api, name, result);
}

static char *
list_path(const char *prefix, const char *continuation)
{
	StringInfoData path;

	initStringInfo(&path);
	appendStringInfo(&path, "/v1/sprites?max_results=%d", LIST_PAGE_ITEMS);
	if (prefix[0] != '\0')
		appendStringInfo(&path, "&prefix=%s", http_escape_segment(prefix));
	if (continuation != NULL)
		appendStringInfo(&path, "&continuation_token=%s", http_escape_segment(continuation));
	return path.data;
}

/*
 * Visits the items of one page.  The platform's own filter is not relied on:
 * an item that does not begin with prefix is none that was asked for.
 */
static const char *
visit_page(json_object *page, const char *prefix, SpriteVisitor visit, void *arg)
{
	json_object *items;
	size_t		n;

	if (!json_object_object_get_ex(page, "sprites", &items) ||
		!json_object_is_type(items, json_type_array))
		return "the list has no array \"sprites\"";
	n = json_object_array_length(items);
	for (size_t i = 0; i < n; i++)
	{
		Sprite		sprite;
		const char *problem = api_json_sprite(json_object_array_get_idx(items, i),
											  NULL, true, &sprite);

		if (problem != NULL)
			return problem;
		if (strncmp(sprite.name, prefix, strlen(prefix)) == 0)
			visit(&sprite, arg);
	}
	return NULL;
}

/*
 * Fetches and visits one page.  *continuation, allocated in context, becomes
 * NULL at the last one: has_more has been seen to lie, in both directions, so
 * a token that is there is what counts.
 */
static void
list_page(SpritesApi *api, const char *prefix, SpriteVisitor visit, void *arg,
		  MemoryContext context, char **continuation, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_LIST,
		.method = "GET",
		.path = list_path(prefix, *continuation),
		.accept = JSON_TYPE,
		.timeout = sprite_request_timeout
	};
	json_object *page = perform_json(api, &call, result);
	const char *next;
	const char *problem;

	if (page == NULL)
		return;
	problem = visit_page(page, prefix, visit, arg);
	if (problem == NULL && !reply_text(page, "next_continuation_token", &next))
		problem = "\"next_continuation_token\" is not a string";
	if (problem == NULL && next != NULL && strlen(next) > MAX_CONTINUATION_BYTES)
		problem = "\"next_continuation_token\" is too long";
	if (problem == NULL && next != NULL && *continuation != NULL && strcmp(next, *continuation) == 0)
		problem = "the list goes round in a circle";
	if (problem != NULL)
	{
		api_result_malformed(result, problem);
		return;
	}
	*continuation = next != NULL && next[0] != '\0' ? MemoryContextStrdup(context, next) : NULL;
}

void
sprites_api_list(SpritesApi *api, const char *prefix, SpriteVisitor visit, void *arg,
				 ApiResult *result)
{
	MemoryContext caller = CurrentMemoryContext;
	char	   *continuation = NULL;

	for (int pages = 0; pages < MAX_LIST_PAGES; pages++)
	{
		MemoryContext page = AllocSetContextCreate(caller, "sprite_lockdown list page",
												   ALLOCSET_DEFAULT_SIZES);
		bool		more;

		MemoryContextSwitchTo(page);
		list_page(api, prefix, visit, arg, caller, &continuation, result);
		MemoryContextSwitchTo(caller);

		more = result->outcome == API_OK && continuation != NULL;
		if (!more)
			return;				/* the last page's memory holds the result's text */
		MemoryContextDelete(page);
	}
	result->outcome = API_TOO_LARGE;
	result->text = psprintf("the list has more than %d pages", MAX_LIST_PAGES);
}

/* ------------------------------------------------------------------------
 * Policy and workspace: answered by the Sprite itself
 * ------------------------------------------------------------------------
 */

void
sprites_api_policy_get(SpritesApi *api, const char *name,
					   ReportedPolicy *reported, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_POLICY_GET,
		.method = "GET",
		.path = sprite_path(name, "/policy/network"),
		.accept = JSON_TYPE,
		.timeout = sprite_request_timeout
	};
	json_object *object = perform_json(api, &call, result);
	const char *problem;

	memset(reported, 0, sizeof(ReportedPolicy));
	if (object == NULL)
		return;
	problem = api_json_policy(object, reported);
	if (problem != NULL)
		api_result_malformed(result, problem);
}

/*
 * Sources disagree on 204 without or 200 with a body.  Neither body is read:
 * only the GET that follows is believed.
 */
void
sprites_api_policy_set(SpritesApi *api, const char *name,
					   const Policy *policy, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_POLICY_SET,
		.method = "POST",
		.path = sprite_path(name, "/policy/network"),
		.accept = "*/*",
		.body = api_json_from_policy(policy),
		.timeout = sprite_request_timeout
	};
	HttpReply  *reply = perform(api, &call, result);

	if (reply != NULL && reply->status != 200 && reply->status != 204)
		api_result_malformed(result, "the call does not end with this status");
}

/*
 * A message of an exec reply ends where its chunk ended, which nobody can see
 * after dechunking, so all that can be read is the end: the exit message is
 * the last two bytes of a reply whose end is known to be one.
 */
static bool
read_exit_code(const HttpReply *reply, int *exit_code)
{
	if (!reply->framed || reply->body_len < 2 ||
		reply->body[reply->body_len - 2] != EXEC_MESSAGE_EXIT)
		return false;
	*exit_code = (unsigned char) reply->body[reply->body_len - 1];
	return true;
}

void
sprites_api_make_directory(SpritesApi *api, const char *name, const char *directory,
						   int timeout, int *exit_code, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_EXEC,
		.method = "POST",
		.path = sprite_path(name, psprintf("/exec?cmd=mkdir&cmd=-p&cmd=%s",
										   http_escape_segment(directory))),
		.accept = "*/*",
		.timeout = timeout
	};
	HttpReply  *reply = perform(api, &call, result);

	if (reply == NULL)
		return;
	if (reply->status != 200)
		api_result_malformed(result, "the call does not end with this status");
	else if (read_exit_code(reply, exit_code))
		result->text = api_result_clean_text(reply->body, reply->body_len - 2,
											 api->endpoint->credential);
	else
		result->outcome = API_UNFINISHED;
}

/* ------------------------------------------------------------------------
 * Work in the VM
 * ------------------------------------------------------------------------
 */

/* The bytes of a reply that is known to be whole; otherwise NULL, and result says why. */
static const char *
whole_bytes(const HttpReply *reply, size_t *len, ApiResult *result)
{
	if (reply == NULL)
		return NULL;
	if (reply->status != 200)
		api_result_malformed(result, "the call does not end with this status");
	else if (!reply->framed)
		result->outcome = API_UNFINISHED;
	if (result->outcome != API_OK)
		return NULL;
	*len = reply->body_len;
	return reply->body;
}

/*
 * The script travels in the body, as the platform's URLs hold no more than a
 * few kilobytes.
 */
const char *
sprites_api_run_script(SpritesApi *api, const char *name, const char *script, size_t len,
					   int timeout, size_t max_reply, size_t *reply_len, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_RUN,
		.method = "POST",
		.path = sprite_path(name, "/exec?cmd=sh&stdin=true&dir=%2F"),
		.accept = "*/*",
		.bytes = script,
		.nbytes = len,
		.timeout = timeout,
		.max_reply = max_reply
	};

	return whole_bytes(perform(api, &call, result), reply_len, result);
}

static char *
file_path(const char *name, const char *what, const char *path)
{
	return sprite_path(name, psprintf("/fs/%s?path=%s&workingDir=%%2F", what,
									  http_escape_segment(path)));
}

/*
 * A daemon that has no such file and a platform that has no such Sprite both
 * say 404; the former names the error, or says it in its words.
 */
static bool
is_no_such_file(const ApiResult *result)
{
	if (result->outcome != API_ABSENT || result->status != 404)
		return false;
	if (result->code != NULL && strcmp(result->code, "ENOENT") == 0)
		return true;
	return result->text != NULL && pg_strcasecmp(result->text, "no such file or directory") == 0;
}

const char *
sprites_api_file_read(SpritesApi *api, const char *name, const char *path,
					  size_t *len, ApiResult *result)
{
	ApiCall		call = {
		.phase = PHASE_FS_READ,
		.method = "GET",
		.path = file_path(name, "read", path),
		.accept = "*/*",
		.timeout = sprite_request_timeout
	};
	HttpReply  *reply = perform(api, &call, result);

	if (is_no_such_file(result))
		result->outcome = API_NO_FILE;
	return whole_bytes(reply, len, result);
}

/* Sources disagree on the name of the parameter that makes parents, so both are sent. */
void
sprites_api_file_write(SpritesApi *api, const char *name, const char *path, int mode,
					   const void *bytes, size_t len, ApiResult *result)
{
	char	   *mode_text = mode >= 0 ? psprintf("&mode=%04o", (unsigned int) mode) : "";
	ApiCall		call = {
		.phase = PHASE_FS_WRITE,
		.method = "PUT",
		.path = psprintf("%s%s&mkdirParents=true&mkdir=true",
						 file_path(name, "write", path), mode_text),
		.accept = "*/*",
		.bytes = bytes,
		.nbytes = len,
		.timeout = sprite_request_timeout
	};

	(void) perform(api, &call, result);
	if (is_no_such_file(result))
		result->outcome = API_NO_FILE;
}
