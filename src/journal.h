/*
 * journal.h
 *	  The table lockdown_journal: the evidence behind the tokens.
 *
 * A row rolls back and a VM does not.  So before any request that can change a
 * VM an intent is committed and flushed by a transaction of its own, and only
 * the caller's transaction settles it, by a confirmation.  While the newest
 * entry for a name is not a confirmation, nobody knows what the VM runs.
 */
#ifndef SPRITE_JOURNAL_H
#define SPRITE_JOURNAL_H

#include "datatype/timestamp.h"
#include "owned_table.h"

#define JOURNAL_TABLE "lockdown_journal"

typedef enum JournalKind
{
	JOURNAL_NONE,				/* the name has no entry */
	JOURNAL_INTENT,
	JOURNAL_CONFIRMED,
	JOURNAL_DRIFTED
} JournalKind;

/* What an entry says.  NULL where it is not known or does not apply. */
typedef struct JournalEntry
{
	const char *server_name;
	const char *sprite_name;
	const char *session_key;
	const char *action;			/* create, push, destroy */
	const char *reason;
	const char *sprite_id;
	const char *from_hash;
	const char *to_hash;
} JournalEntry;

/* The newest entry that counts, those about failures left aside. */
typedef struct JournalState
{
	JournalKind kind;
	char	   *sprite_id;
	char	   *to_hash;
	bool		this_epoch;		/* recorded by this cluster since its last promotion */
	TimestampTz recorded_at;
} JournalState;

/*
 * Reads the newest entry that says something of the VM: one by way of the server
 * for the name, or one by way of another server that may have reached the same
 * VM.  sprite_id is what the platform reports now; NULL: nothing.
 */
extern void journal_read(const OwnedTable *journal, const char *server_name,
						 const char *sprite_name, const char *sprite_id,
						 JournalState *state);

/*
 * Commits an intent by a transaction of its own and returns its number.  53400
 * when there is no background worker for it, 58000 when the worker fails;
 * nothing may be sent then.
 */
extern int64 journal_intend(const OwnedTable *journal, const JournalEntry *entry);

/* Settles an intent, if the caller's transaction commits. */
extern void journal_confirm(const OwnedTable *journal, const JournalEntry *entry, int64 intent);

/*
 * Notes by a transaction of its own how an intent ended, if that is possible.
 * For the record only: the intent stays unsettled.  Raises nothing.
 */
extern void journal_note_failure(const OwnedTable *journal, const JournalEntry *entry,
								 int64 intent, int sqlstate);

#endif							/* SPRITE_JOURNAL_H */
