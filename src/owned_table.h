/*
 * owned_table.h
 *	  Tables of the extension, read and written as their owner.
 *
 * Callers of the extension's functions have no rights on its tables and must
 * have none, so queries run with the owner's.  They see what was committed up
 * to the call, whatever the transaction's isolation level: what another caller
 * did before a lock was ours must not be missed.
 *
 * The text of a query must qualify every operator and function with a schema,
 * since it runs under the caller's search_path.
 */
#ifndef SPRITE_OWNED_TABLE_H
#define SPRITE_OWNED_TABLE_H

#include "executor/spi.h"

#define OWNED_QUERY_MAX_ARGS 15

typedef struct OwnedTable
{
	Oid			relid;
	Oid			owner;
	char	   *qualified_name; /* quoted */
} OwnedTable;

/* A query and its plan, which lives as long as the backend. */
typedef struct OwnedQuery
{
	const char *text;			/* %s or %1$s stands for the table */
	bool		writes;
	int			nargs;
	Oid			argtypes[OWNED_QUERY_MAX_ARGS];
	Oid			planned_for;	/* relid of the table that plan is for */
	SPIPlanPtr	plan;
} OwnedQuery;

/* Finds a table of the extension in its schema; 42P01 when it is not there. */
extern OwnedTable *owned_table_open(const char *name, Oid extension_schema);

/*
 * The same by the table's OID, for a backend that was told it.  NULL when this
 * transaction does not see such a table.
 */
extern OwnedTable *owned_table_find(Oid relid);

/* Runs a query; its rows are in SPI_tuptable.  Needs an open SPI connection. */
extern void owned_table_run(const OwnedTable *table, OwnedQuery *query,
							Datum *values, const char *nulls);

/* Sets an argument from a string, which may be NULL. */
extern void owned_table_text_arg(Datum *values, char *nulls, int i, const char *text);

/* A column of the first row, NULL or in the given memory context. */
extern char *owned_table_text(MemoryContext context, int column);

#endif							/* SPRITE_OWNED_TABLE_H */
