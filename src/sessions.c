/*
 * sessions.c
 *	  The table machine_sessions.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "sessions.h"

static OwnedQuery read_query = {
	.text = "SELECT server_name, sprite_name, egress_policy_token, updated_at"
	" FROM %s WHERE session_key OPERATOR(pg_catalog.=) $1",
	.writes = false,
	.nargs = 1,
	.argtypes = {TEXTOID}
};

static OwnedQuery contradict_query = {
	.text = "SELECT 1 FROM %s"
	" WHERE sprite_name OPERATOR(pg_catalog.=) $1"
	" AND egress_policy_token OPERATOR(pg_catalog.<>) $2"
	" AND pg_catalog.starts_with(egress_policy_token, $3) LIMIT 1",
	.writes = false,
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID}
};

static OwnedQuery claim_query = {
	.text = "SELECT 1 FROM %s"
	" WHERE server_name OPERATOR(pg_catalog.=) $1 AND sprite_name OPERATOR(pg_catalog.=) $2"
	" AND egress_policy_token OPERATOR(pg_catalog.<>) '' LIMIT 1",
	.writes = false,
	.nargs = 2,
	.argtypes = {NAMEOID, TEXTOID}
};

static OwnedQuery touch_query = {
	.text = "UPDATE %s SET last_active_at = pg_catalog.now()"
	" WHERE session_key OPERATOR(pg_catalog.=) $1",
	.writes = true,
	.nargs = 1,
	.argtypes = {TEXTOID}
};

static OwnedQuery link_query = {
	.text = "INSERT INTO %s AS s (server_name, sprite_name, sprite_id, egress_policy_token,"
	" session_key, created_at, last_active_at, updated_at)"
	" VALUES ($1, $2, $3, $4, $5, pg_catalog.now(), pg_catalog.now(), pg_catalog.now())"
	" ON CONFLICT (session_key) DO UPDATE SET server_name = EXCLUDED.server_name,"
	" sprite_name = EXCLUDED.sprite_name, sprite_id = EXCLUDED.sprite_id,"
	" egress_policy_token = EXCLUDED.egress_policy_token,"
	" last_active_at = EXCLUDED.last_active_at, updated_at = EXCLUDED.updated_at",
	.writes = true,
	.nargs = 5,
	.argtypes = {NAMEOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID}
};

static OwnedQuery spread_query = {
	.text = "UPDATE %s SET sprite_id = $3, egress_policy_token = $4, updated_at = pg_catalog.now()"
	" WHERE sprite_name OPERATOR(pg_catalog.=) $2"
	" AND (server_name OPERATOR(pg_catalog.=) $1 OR pg_catalog.starts_with(egress_policy_token, $6))"
	" AND ($5 IS NULL OR session_key OPERATOR(pg_catalog.<>) $5)",
	.writes = true,
	.nargs = 6,
	.argtypes = {NAMEOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID}
};

static OwnedQuery forget_query = {
	.text = "DELETE FROM %s"
	" WHERE server_name OPERATOR(pg_catalog.=) $1 AND sprite_name OPERATOR(pg_catalog.=) $2",
	.writes = true,
	.nargs = 2,
	.argtypes = {NAMEOID, TEXTOID}
};

bool
sessions_read(const OwnedTable *table, const char *session_key, SessionRow *row)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		values[] = {CStringGetTextDatum(session_key)};
	bool		found;

	memset(row, 0, sizeof(SessionRow));
	SPI_connect();
	owned_table_run(table, &read_query, values, NULL);
	found = SPI_processed > 0;
	if (found)
	{
		bool		isnull;

		row->server_name = owned_table_text(caller, 1);
		row->sprite_name = owned_table_text(caller, 2);
		row->token = owned_table_text(caller, 3);
		row->updated_at = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0],
															SPI_tuptable->tupdesc, 4, &isnull));
	}
	SPI_finish();
	return found;
}

/* What every token of the VM begins with; NULL when its id is not known. */
static char *
token_prefix(const char *sprite_id)
{
	return sprite_id ? psprintf("%s:", sprite_id) : NULL;
}

static bool
finds_any(const OwnedTable *table, OwnedQuery *query, Datum *values)
{
	bool		found;

	SPI_connect();
	owned_table_run(table, query, values, NULL);
	found = SPI_processed > 0;
	SPI_finish();
	return found;
}

bool
sessions_contradict(const OwnedTable *table, const char *sprite_name, const char *sprite_id,
					const char *token)
{
	Datum		values[] = {
		CStringGetTextDatum(sprite_name),
		CStringGetTextDatum(token),
		CStringGetTextDatum(token_prefix(sprite_id))
	};

	return finds_any(table, &contradict_query, values);
}

bool
sessions_claim(const OwnedTable *table, const char *server_name, const char *sprite_name)
{
	NameData	server;
	Datum		values[] = {
		NameGetDatum(&server),
		CStringGetTextDatum(sprite_name)
	};

	namestrcpy(&server, server_name);
	return finds_any(table, &claim_query, values);
}

void
sessions_touch(const OwnedTable *table, const char *session_key)
{
	Datum		values[] = {CStringGetTextDatum(session_key)};

	SPI_connect();
	owned_table_run(table, &touch_query, values, NULL);
	SPI_finish();
}

void
sessions_confirm(const OwnedTable *table, const char *session_key,
				 const char *server_name, const char *sprite_name,
				 const char *sprite_id, const char *token)
{
	NameData	server;
	Datum		values[6];
	char		nulls[7] = "      ";

	namestrcpy(&server, server_name);
	values[0] = NameGetDatum(&server);
	owned_table_text_arg(values, nulls, 1, sprite_name);
	owned_table_text_arg(values, nulls, 2, sprite_id);
	owned_table_text_arg(values, nulls, 3, token);
	owned_table_text_arg(values, nulls, 4, session_key);
	owned_table_text_arg(values, nulls, 5, token_prefix(sprite_id));

	SPI_connect();
	owned_table_run(table, &spread_query, values, nulls);
	if (session_key != NULL)
		owned_table_run(table, &link_query, values, nulls);
	SPI_finish();
}

void
sessions_forget(const OwnedTable *table, const char *server_name, const char *sprite_name)
{
	NameData	server;
	Datum		values[] = {
		NameGetDatum(&server),
		CStringGetTextDatum(sprite_name)
	};

	namestrcpy(&server, server_name);
	SPI_connect();
	owned_table_run(table, &forget_query, values, NULL);
	SPI_finish();
}
