/*
 * sprites_api.h
 *	  The platform's calls as typed functions.
 *
 * A call never raises an error for what the platform or the network did: it
 * fills an ApiResult, which says once and for all what kind of failure it was,
 * and the caller decides whether to try again, go on or raise it.  Only
 * cancel, terminate and lack of memory leave a call by an error.
 *
 * Text is in the database's encoding, except inside a Policy, which is UTF-8.
 * Results live in the current memory context.
 */
#ifndef SPRITE_API_H
#define SPRITE_API_H

#include "api_json.h"
#include "api_result.h"
#include "datatype/timestamp.h"
#include "endpoint.h"
#include "policy.h"

/*
 * The platform as one SQL call sees it.  deadline bounds all its requests;
 * uninterruptible is for the undo after an error alone.
 */
typedef struct SpritesApi
{
	Endpoint   *endpoint;
	TimestampTz deadline;
	bool		uninterruptible;
} SpritesApi;

/* What a create may ask for; zero or NULL leaves it to the platform. */
typedef struct SpriteConfig
{
	int			ram_mb;
	int			cpus;
	int			storage_gb;
	const char *region;			/* UTF-8 */
} SpriteConfig;

typedef void (*SpriteVisitor) (const Sprite *sprite, void *arg);

extern SpritesApi *sprites_api_open(Endpoint *endpoint);

/*
 * GET of one Sprite.  A 500 is settled with the list, since it is also how the
 * platform has been seen to answer for a name that does not exist: API_ABSENT
 * if the list lacks the name, the 500 itself otherwise.
 */
extern void sprites_api_get(SpritesApi *api, const char *name,
							Sprite *sprite, ApiResult *result);

/* config may be NULL.  A 2xx means created even when outcome is not API_OK. */
extern void sprites_api_create(SpritesApi *api, const char *name, const SpriteConfig *config,
							   Sprite *sprite, ApiResult *result);

/* A 500 is settled as in sprites_api_get(). */
extern void sprites_api_delete(SpritesApi *api, const char *name, ApiResult *result);

/* Visits every Sprite whose name begins with prefix (ASCII), page by page. */
extern void sprites_api_list(SpritesApi *api, const char *prefix,
							 SpriteVisitor visit, void *arg, ApiResult *result);

extern void sprites_api_policy_get(SpritesApi *api, const char *name,
								   ReportedPolicy *reported, ApiResult *result);
extern void sprites_api_policy_set(SpritesApi *api, const char *name,
								   const Policy *policy, ApiResult *result);

/*
 * Runs "mkdir -p directory" in the VM.  timeout is in ms.  *exit_code is set
 * when outcome is API_OK, and result->text then holds what the command said.
 */
extern void sprites_api_make_directory(SpritesApi *api, const char *name, const char *directory,
									   int timeout, int *exit_code, ApiResult *result);

/*
 * Runs a script by sh in the VM.  timeout is in ms, max_reply in bytes.  The
 * reply's bytes, ids of messages and all, when outcome is API_OK.
 */
extern const char *sprites_api_run_script(SpritesApi *api, const char *name,
										  const char *script, size_t len, int timeout,
										  size_t max_reply, size_t *reply_len,
										  ApiResult *result);

/*
 * A file's bytes.  path is in UTF-8 and taken from the root.  API_NO_FILE when
 * the VM has no such file, or nothing to write it into.
 */
extern const char *sprites_api_file_read(SpritesApi *api, const char *name, const char *path,
										 size_t *len, ApiResult *result);

/* mode is that of chmod; -1 leaves it to the platform. */
extern void sprites_api_file_write(SpritesApi *api, const char *name, const char *path,
								   int mode, const void *bytes, size_t len, ApiResult *result);

/* The ms that are left of the call's time budget; at least 0. */
extern int	sprites_api_time_left(const SpritesApi *api);

#endif							/* SPRITE_API_H */
