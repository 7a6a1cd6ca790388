/*
 * arguments.h
 *	  Checks of what callers pass in, before anything has happened.
 */
#ifndef SPRITE_ARGUMENTS_H
#define SPRITE_ARGUMENTS_H

#include "utils/jsonb.h"

#include "compat.h"
#include "policy.h"
#include "sprites_api.h"

/* Raises 22004 that names the argument. */
pg_noreturn extern void argument_missing(const char *argument);

/* A Sprite's name: one lower-case DNS label.  22023 otherwise. */
extern char *argument_sprite_name(text *value);

/* The beginning of such a name, or nothing.  22023 otherwise. */
extern char *argument_name_prefix(text *value);

/* Any text of 1 to 2048 bytes.  22023 otherwise. */
extern char *argument_session_key(text *value);

/*
 * A policy that may be pushed under the setting policy_check, in UTF-8.
 * 22023, naming the first error, otherwise; *hash is its policy hash.
 */
extern Policy *argument_policy(Jsonb *value, char **hash);

/*
 * {"ram_mb", "cpus", "storage_gb": whole numbers; "region": text}, each
 * optional.  NULL when none is given.  22023 for anything else.
 */
extern SpriteConfig *argument_config(Jsonb *value);

#endif							/* SPRITE_ARGUMENTS_H */
