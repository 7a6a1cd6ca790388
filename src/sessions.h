/*
 * sessions.h
 *	  The table machine_sessions: which Sprite a session has, and what is
 *	  recorded of the policy it runs.
 *
 * A token says what a VM runs, so all rows that name a VM carry the same one.
 */
#ifndef SPRITE_SESSIONS_H
#define SPRITE_SESSIONS_H

#include "datatype/timestamp.h"
#include "owned_table.h"

#define SESSION_TABLE "machine_sessions"

typedef struct SessionRow
{
	char	   *server_name;
	char	   *sprite_name;
	char	   *token;			/* NULL: unproven */
	TimestampTz updated_at;		/* when link and token were last written */
} SessionRow;

/* False when the session has no row. */
extern bool sessions_read(const OwnedTable *table, const char *session_key, SessionRow *row);

/*
 * True if a row that names this Sprite says of the same VM instance that it
 * runs another policy than token does.
 */
extern bool sessions_contradict(const OwnedTable *table, const char *sprite_name,
								const char *sprite_id, const char *token);

/* True if a row that names this Sprite has a token, whatever it says. */
extern bool sessions_claim(const OwnedTable *table, const char *server_name,
						   const char *sprite_name);

/* Sets last_active_at and nothing else. */
extern void sessions_touch(const OwnedTable *table, const char *session_key);

/*
 * Records what was confirmed: links the session, if one is given, and brings
 * every other row that names the Sprite up to date, be it by way of another
 * server.  sprite_id and token are NULL for a VM without identity.
 */
extern void sessions_confirm(const OwnedTable *table, const char *session_key,
							 const char *server_name, const char *sprite_name,
							 const char *sprite_id, const char *token);

/* Deletes the rows that name the Sprite. */
extern void sessions_forget(const OwnedTable *table, const char *server_name,
							const char *sprite_name);

#endif							/* SPRITE_SESSIONS_H */
