/*
 * workspace.h
 *	  Work in a VM: commands and files.
 *
 * Raises SP007 unless the Sprite is proven to run a policy or the caller does
 * without, and what the platform refuses with the SQLSTATE of api_result.h.
 * Text is in UTF-8 as the VM gets it.
 */
#ifndef SPRITE_WORKSPACE_H
#define SPRITE_WORKSPACE_H

#include "argv.h"
#include "endpoint.h"
#include "exec_script.h"
#include "owned_table.h"

typedef struct WorkspaceCall
{
	Endpoint   *endpoint;
	const OwnedTable *sessions;
	const OwnedTable *journal;
	const char *name;
	bool		allow_unproven;
} WorkspaceCall;

/*
 * Runs a command once and returns what came of it, which is EXEC_ENDED.  command
 * lacks mark, id and max_output, which are made here.  57000 when it was killed
 * by its time-out, 54000 when it wrote too much, 08006 when nobody can tell
 * whether it ran.  A cancel kills it, too.
 */
extern void workspace_exec(const WorkspaceCall *call, ExecCommand *command, ExecReply *reply);

/* False when there is no such file. */
extern bool workspace_read_file(const WorkspaceCall *call, const char *path,
								const char **bytes, size_t *len);

/* Makes the parents.  mode is that of chmod; -1 leaves it to the platform. */
extern void workspace_write_file(const WorkspaceCall *call, const char *path, int mode,
								 const void *bytes, size_t len);

#endif							/* SPRITE_WORKSPACE_H */
