/*
 * entry.h
 *	  What the SQL entry points share.
 */
#ifndef SPRITE_ENTRY_H
#define SPRITE_ENTRY_H

#include "access/tupdesc.h"
#include "endpoint.h"
#include "fmgr.h"

/* Argument i as a Sprite's name.  22004 or 22023 otherwise. */
extern char *entry_name(FunctionCallInfo fcinfo, int i);

/* The schema of the extension. */
extern Oid	entry_schema(FunctionCallInfo fcinfo);

/* Argument i as a foreign server that the caller may use, with its credential. */
extern Endpoint *entry_server(FunctionCallInfo fcinfo, int i);

/* The row that the function returns. */
extern TupleDesc entry_row_type(FunctionCallInfo fcinfo);

#endif							/* SPRITE_ENTRY_H */
