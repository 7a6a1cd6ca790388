/*
 * api_result.h
 *	  What became of a call to the platform, classified once.
 */
#ifndef SPRITE_API_RESULT_H
#define SPRITE_API_RESULT_H

#include "compat.h"
#include "http.h"

#define ERRCODE_SPRITE_RATE_LIMITED		MAKE_SQLSTATE('S','P','0','0','1')
#define ERRCODE_SPRITE_CONFLICT			MAKE_SQLSTATE('S','P','0','0','2')
#define ERRCODE_SPRITE_UNAVAILABLE		MAKE_SQLSTATE('S','P','0','0','3')
#define ERRCODE_SPRITE_UNAUTHORIZED		MAKE_SQLSTATE('S','P','0','0','4')
#define ERRCODE_SPRITE_NOT_FOUND		MAKE_SQLSTATE('S','P','0','0','5')
#define ERRCODE_SPRITE_POLICY_REJECTED	MAKE_SQLSTATE('S','P','0','0','6')
#define ERRCODE_SPRITE_NOT_CONFIRMED	MAKE_SQLSTATE('S','P','0','0','7')

/* The calls by the names that DETAIL gives them. */
#define PHASE_GET			"get"
#define PHASE_CREATE		"create"
#define PHASE_DELETE		"delete"
#define PHASE_LIST			"list"
#define PHASE_POLICY_GET	"policy_get"
#define PHASE_POLICY_SET	"policy_set"
#define PHASE_EXEC			"exec"
#define PHASE_RUN			"run"
#define PHASE_FS_READ		"fs_read"
#define PHASE_FS_WRITE		"fs_write"

typedef enum ApiOutcome
{
	API_OK,
	API_ABSENT,					/* 404 or 410: no such Sprite */
	API_EXISTS,					/* create only: the name is taken */
	API_UNAUTHORIZED,			/* 401, 403 */
	API_RATE_LIMITED,			/* 429 */
	API_CONFLICT,				/* 409 of any other call */
	API_UNAVAILABLE,			/* 5xx, 408: the effect is unknown */
	API_REJECTED,				/* 400, 413, 422: the platform refuses the arguments */
	API_NOT_SENT,				/* no connection: there was no effect */
	API_LOST,					/* no whole reply: the effect is unknown */
	API_TOO_LARGE,				/* the reply passes a limit */
	API_MALFORMED,				/* the reply is not what the contract says */
	API_UNFINISHED,				/* exec only: the reply has no exit code */
	API_NO_FILE					/* files only: there is none, in a Sprite that exists */
} ApiOutcome;

typedef struct ApiResult
{
	ApiOutcome	outcome;
	const char *phase;			/* which call: one of the above */
	int			attempt;		/* set by who retries; 0: not retried */
	long		status;			/* HTTP status; 0: there was none */
	int64		retry_after;	/* seconds; -1: the platform named none */
	bool		timed_out;
	bool		name_taken;		/* 409, or a 400 that says so in prose */
	char	   *code;			/* the platform's error code, or NULL */
	char	   *text;			/* what went wrong, at most 1 KB, or NULL */
	char	   *request_id;		/* Fly-Request-Id, or NULL */
} ApiResult;

/*
 * Fills result from what the HTTP room brought back.  API_OK means no more
 * than a 2xx; whether it is the right 2xx with the right body is for the call
 * to say.  credential is what must never be repeated in text.
 */
extern void api_result_classify(ApiResult *result, const HttpReply *reply,
								const char *credential);

/* Turns a result into API_MALFORMED; problem says what is wrong with the reply. */
extern void api_result_malformed(ApiResult *result, const char *problem);

/*
 * Bytes of the platform as text that is fit for a message: at most 1 KB, no
 * control characters, in the database's encoding, without the credential.
 */
extern char *api_result_clean_text(const char *bytes, size_t len, const char *credential);

/* True when the same call may well succeed a moment later. */
extern bool api_result_is_transient(const ApiResult *result);

/* The SQLSTATE of a failure, and its DETAIL: phase, status, code and so on. */
extern int	api_result_sqlstate(const ApiResult *result);
extern char *api_result_detail(const ApiResult *result);

/* Raises the failure.  action completes "could not ...". */
pg_noreturn extern void api_result_raise(const ApiResult *result, const char *action,
							  const char *name);

#endif							/* SPRITE_API_RESULT_H */
