/*
 * journal.c
 *	  The table lockdown_journal.
 *
 * A transaction of one's own takes a background worker: it is started for one
 * entry, writes and flushes it, and ends.  The entry travels in a segment of
 * dynamic shared memory, in which the worker leaves the entry's number or what
 * went wrong.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "journal.h"

#define LIBRARY_NAME	"sprite_lockdown"
#define WORKER_FUNCTION "sprite_lockdown_journal_worker"
#define MAX_MESSAGE		512

/*
 * The worker waits this long for a lock.  Its caller waits for the worker, so a
 * lock that the caller itself holds would be a deadlock that nobody detects.
 */
#define WORKER_LOCK_TIMEOUT "1500ms"

/* The columns that are written, in the order of the insert's parameters. */
typedef enum JournalColumn
{
	COLUMN_ROLE,
	COLUMN_SERVER,
	COLUMN_SPRITE,
	COLUMN_SESSION,
	COLUMN_KIND,
	COLUMN_ACTION,
	COLUMN_REASON,
	COLUMN_SPRITE_ID,
	COLUMN_FROM_HASH,
	COLUMN_TO_HASH,
	COLUMN_EPOCH,
	COLUMN_INTENT,
	COLUMN_SQLSTATE,
	NUM_JOURNAL_COLUMNS
} JournalColumn;

static OwnedQuery insert_query = {
	.text = "INSERT INTO %s (role_name, server_name, sprite_name, session_key, kind, action, reason,"
	" sprite_id, from_hash, to_hash, epoch, intent_id, sqlstate)"
	" VALUES (CAST($1 AS pg_catalog.name), CAST($2 AS pg_catalog.name), $3, $4, $5, $6, $7,"
	" $8, $9, $10, $11, CAST($12 AS pg_catalog.int8), $13)"
	" RETURNING entry_id",
	.writes = true,
	.nargs = NUM_JOURNAL_COLUMNS,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
	TEXTOID, TEXTOID, TEXTOID}
};

/*
 * Two foreign servers may lead to one account, so entries by way of another
 * server count if they are about this VM.  One that names no VM may be, unless
 * what it began was confirmed of another.  A destroy leaves no VM behind.
 */
static OwnedQuery read_query = {
	.text = "SELECT kind, sprite_id, to_hash, epoch, recorded_at FROM %1$s AS j"
	" WHERE sprite_name OPERATOR(pg_catalog.=) $2 AND kind OPERATOR(pg_catalog.<>) 'failed'"
	" AND (server_name OPERATOR(pg_catalog.=) $1 OR sprite_id OPERATOR(pg_catalog.=) $3"
	" OR (sprite_id IS NULL AND COALESCE(action, '') OPERATOR(pg_catalog.<>) 'destroy'"
	" AND NOT EXISTS (SELECT 1 FROM %1$s AS c"
	" WHERE c.sprite_name OPERATOR(pg_catalog.=) $2 AND c.intent_id OPERATOR(pg_catalog.=) j.entry_id"
	" AND c.kind OPERATOR(pg_catalog.=) 'confirmed' AND c.sprite_id OPERATOR(pg_catalog.<>) $3)))"
	" ORDER BY entry_id DESC LIMIT 1",
	.writes = false,
	.nargs = 3,
	.argtypes = {NAMEOID, TEXTOID, TEXTOID}
};

/* What caller and worker share. */
typedef struct Message
{
	Oid			database;
	Oid			relid;
	bool		written;		/* committed and flushed */
	int64		entry_id;
	int			sqlstate;		/* of the worker's error */
	char		error[MAX_MESSAGE];
	char		columns[FLEXIBLE_ARRAY_MEMBER]; /* packed, see pack_columns() */
} Message;

PGDLLEXPORT void sprite_lockdown_journal_worker(Datum main_arg);

/* ------------------------------------------------------------------------
 * Epoch and columns
 * ------------------------------------------------------------------------
 */

/*
 * What a promotion, a restore to an earlier point and a copy in another cluster,
 * database or table all change.
 */
static char *
current_epoch(const OwnedTable *journal)
{
	if (RecoveryInProgress())
		return pstrdup("recovery");
	return psprintf(UINT64_FORMAT "/%u/%u/%u", GetSystemIdentifier(), current_timeline(),
					MyDatabaseId, journal->relid);
}

static void
fill_columns(const OwnedTable *journal, const char **columns, const char *kind,
			 const JournalEntry *entry, int64 intent, const char *sqlstate)
{
	columns[COLUMN_ROLE] = GetUserNameFromId(GetUserId(), false);
	columns[COLUMN_SERVER] = entry->server_name;
	columns[COLUMN_SPRITE] = entry->sprite_name;
	columns[COLUMN_SESSION] = entry->session_key;
	columns[COLUMN_KIND] = kind;
	columns[COLUMN_ACTION] = entry->action;
	columns[COLUMN_REASON] = entry->reason;
	columns[COLUMN_SPRITE_ID] = entry->sprite_id;
	columns[COLUMN_FROM_HASH] = entry->from_hash;
	columns[COLUMN_TO_HASH] = entry->to_hash;
	columns[COLUMN_EPOCH] = current_epoch(journal);
	columns[COLUMN_INTENT] = intent > 0 ? psprintf(INT64_FORMAT, intent) : NULL;
	columns[COLUMN_SQLSTATE] = sqlstate;
}

/* Inserts a row in the current transaction and returns its number. */
static int64
insert_entry(const OwnedTable *journal, const char **columns)
{
	Datum		values[NUM_JOURNAL_COLUMNS];
	char		nulls[NUM_JOURNAL_COLUMNS + 1];
	bool		isnull;
	int64		entry_id;

	for (int i = 0; i < NUM_JOURNAL_COLUMNS; i++)
		owned_table_text_arg(values, nulls, i, columns[i]);
	nulls[NUM_JOURNAL_COLUMNS] = '\0';
	SPI_connect();
	owned_table_run(journal, &insert_query, values, nulls);
	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("an entry of table \"%s\" was not written", JOURNAL_TABLE),
				 errhint("A trigger or rule on the table keeps it out.")));
	entry_id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
										   1, &isnull));
	SPI_finish();
	return entry_id;
}

/* Each column as a byte, 1 for a value and 0 for NULL, and a string. */
static size_t
packed_size(const char **columns)
{
	size_t		size = 0;

	for (int i = 0; i < NUM_JOURNAL_COLUMNS; i++)
		size += 1 + (columns[i] ? strlen(columns[i]) : 0) + 1;
	return size;
}

static void
pack_columns(char *at, const char **columns)
{
	for (int i = 0; i < NUM_JOURNAL_COLUMNS; i++)
	{
		size_t		len = columns[i] ? strlen(columns[i]) : 0;

		*at++ = columns[i] ? 1 : 0;
		if (len > 0)
			memcpy(at, columns[i], len);
		at[len] = '\0';
		at += len + 1;
	}
}

static void
unpack_columns(const char *at, const char **columns)
{
	for (int i = 0; i < NUM_JOURNAL_COLUMNS; i++)
	{
		bool		is_value = *at++ != 0;

		columns[i] = is_value ? at : NULL;
		at += strlen(at) + 1;
	}
}

/* ------------------------------------------------------------------------
 * Worker
 * ------------------------------------------------------------------------
 */

static void
write_message(Message *message)
{
	OwnedTable *journal;
	const char *columns[NUM_JOURNAL_COLUMNS];
	int64		entry_id;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	journal = owned_table_find(message->relid);
	if (journal == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" is not visible to other transactions", JOURNAL_TABLE),
				 errhint("Commit CREATE EXTENSION first.")));
	unpack_columns(message->columns, columns);
	entry_id = insert_entry(journal, columns);
	PopActiveSnapshot();
	CommitTransactionCommand();

	message->entry_id = entry_id;
	pg_write_barrier();
	message->written = true;
}

/*
 * The entry is flushed here at least, and written, whatever the database's
 * settings are.  To be set before the connection is made: that may have to wait
 * for a DROP DATABASE, which waits for the caller.
 */
static void
set_worker_options(void)
{
	static const char *const options[][2] = {
		{"lock_timeout", WORKER_LOCK_TIMEOUT},
		{"synchronous_commit", "local"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_isolation", "read committed"}
	};

	for (int i = 0; i < (int) lengthof(options); i++)
		SetConfigOption(options[i][0], options[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

/* Leaves the error where the caller finds it.  The core logs it. */
static void
leave_error(Message *message)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);
	ErrorData  *error = CopyErrorData();

	message->sqlstate = error->sqlerrcode;
	strlcpy(message->error, error->message ? error->message : "", MAX_MESSAGE);
	MemoryContextSwitchTo(old_context);
}

void
sprite_lockdown_journal_worker(Datum main_arg)
{
	dsm_segment *segment;
	Message    *message;

	BackgroundWorkerUnblockSignals();
	segment = dsm_attach(DatumGetUInt32(main_arg));
	if (segment == NULL)
		return;					/* the caller has gone */
	message = dsm_segment_address(segment);

	PG_TRY();
	{
		set_worker_options();
		BackgroundWorkerInitializeConnectionByOid(message->database, InvalidOid,
												  BGWORKER_BYPASS_ALLOWCONN);
		write_message(message);
	}
	PG_CATCH();
	{
		leave_error(message);
		PG_RE_THROW();
	}
	PG_END_TRY();
	dsm_detach(segment);
}

static bool
start_worker(dsm_segment *segment, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_notify_pid = MyProcPid
	};

	strlcpy(worker.bgw_name, "sprite_lockdown journal", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "sprite_lockdown journal", sizeof(worker.bgw_type));
	strlcpy(worker.bgw_library_name, LIBRARY_NAME, sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, WORKER_FUNCTION, sizeof(worker.bgw_function_name));
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(segment));
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/*
 * Has a worker write the entry and waits for it.  False when there is none to
 * be had; otherwise *result is what it left.
 */
static bool
write_apart(const OwnedTable *journal, const char **columns, Message *result)
{
	Size		size = offsetof(Message, columns) + packed_size(columns);
	dsm_segment *segment = dsm_create(size, DSM_CREATE_NULL_IF_MAXSEGMENTS);
	BackgroundWorkerHandle *handle;
	Message    *message;
	bool		started;

	if (segment == NULL)
		return false;
	message = dsm_segment_address(segment);
	memset(message, 0, offsetof(Message, columns));
	message->database = MyDatabaseId;
	message->relid = journal->relid;
	pack_columns(message->columns, columns);

	started = start_worker(segment, &handle);
	if (started)
		(void) WaitForBackgroundWorkerShutdown(handle);
	memcpy(result, message, offsetof(Message, columns));
	dsm_detach(segment);
	return started;
}

/* ------------------------------------------------------------------------
 * Entries
 * ------------------------------------------------------------------------
 */

static JournalKind
kind_of(const char *kind)
{
	if (strcmp(kind, "confirmed") == 0)
		return JOURNAL_CONFIRMED;
	/* a kind that is not known proves nothing */
	return strcmp(kind, "drifted") == 0 ? JOURNAL_DRIFTED : JOURNAL_INTENT;
}

void
journal_read(const OwnedTable *journal, const char *server_name,
			 const char *sprite_name, const char *sprite_id, JournalState *state)
{
	MemoryContext caller = CurrentMemoryContext;
	NameData	server;
	Datum		values[3];
	char		nulls[4] = "   ";
	bool		isnull;

	memset(state, 0, sizeof(JournalState));
	namestrcpy(&server, server_name);
	values[0] = NameGetDatum(&server);
	owned_table_text_arg(values, nulls, 1, sprite_name);
	owned_table_text_arg(values, nulls, 2, sprite_id);
	SPI_connect();
	owned_table_run(journal, &read_query, values, nulls);
	if (SPI_processed > 0)
	{
		char	   *epoch = owned_table_text(caller, 4);

		state->kind = kind_of(owned_table_text(caller, 1));
		state->sprite_id = owned_table_text(caller, 2);
		state->to_hash = owned_table_text(caller, 3);
		state->this_epoch = epoch != NULL && strcmp(epoch, current_epoch(journal)) == 0;
		state->recorded_at = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0],
															   SPI_tuptable->tupdesc, 5, &isnull));
	}
	SPI_finish();
}

int64
journal_intend(const OwnedTable *journal, const JournalEntry *entry)
{
	const char *columns[NUM_JOURNAL_COLUMNS];
	Message		result;

	fill_columns(journal, columns, "intent", entry, 0, NULL);
	if (!write_apart(journal, columns, &result))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no background worker is free to write the journal"),
				 errdetail("Nothing was sent to the platform."),
				 errhint("Raise max_worker_processes, or call again.")));
	if (!result.written)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("the journal could not be written"),
				 errdetail("Nothing was sent to the platform. The background worker said: %s",
						   result.error[0] != '\0' ? result.error : "nothing; the server's log has its reason"),
				 errhint("Table \"%s\" must be open to other transactions: a lock on it, or a CREATE EXTENSION that is not committed, keeps them out.",
						 JOURNAL_TABLE)));
	return result.entry_id;
}

void
journal_confirm(const OwnedTable *journal, const JournalEntry *entry, int64 intent)
{
	const char *columns[NUM_JOURNAL_COLUMNS];

	fill_columns(journal, columns, "confirmed", entry, intent, NULL);
	(void) insert_entry(journal, columns);
}

void
journal_note_failure(const OwnedTable *journal, const JournalEntry *entry,
					 int64 intent, int sqlstate)
{
	const char *columns[NUM_JOURNAL_COLUMNS];
	Message		result;

	fill_columns(journal, columns, "failed", entry, intent, unpack_sql_state(sqlstate));
	(void) write_apart(journal, columns, &result);
}
