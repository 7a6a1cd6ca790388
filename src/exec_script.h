/*
 * exec_script.h
 *	  A command as a script that sh reads from its input in the VM, and the reply
 *	  that the script makes.  Pure.
 *
 * The platform's exec has no framing: message ids are strewn over what a command
 * writes, its outputs cannot be told apart, and what it writes can look like an
 * exit.  So the script keeps stdout and stderr in files and reports them in
 * base64 between marks that the command does not know.
 *
 * Text is in UTF-8; results are allocated with palloc.
 */
#ifndef SPRITE_EXEC_SCRIPT_H
#define SPRITE_EXEC_SCRIPT_H

#include "argv.h"
#include "lib/stringinfo.h"

#define EXEC_MARK_LEN 32

typedef struct ExecCommand
{
	const char *mark;			/* EXEC_MARK_LEN hex digits that nobody can guess */
	const char *id;				/* as many, which name the command in the VM */
	Argv		argv;
	char	  **env;			/* "NAME=value" */
	int			nenv;
	const void *input;
	size_t		input_len;
	int			timeout_ms;
	size_t		max_output;		/* bytes of stdout, and as many of stderr */
} ExecCommand;

typedef enum ExecEnd
{
	EXEC_ENDED,					/* exit_code and outputs are set */
	EXEC_TIMED_OUT,				/* killed; outputs are not set */
	EXEC_TOO_LARGE,				/* killed; outputs are not set */
	EXEC_BEGUN_BEFORE,			/* by an earlier try with the same id; not run again */
	EXEC_UNUSABLE,				/* the VM lacks what the script needs; not run */
	EXEC_UNKNOWN				/* the reply does not tell */
} ExecEnd;

typedef struct ExecReply
{
	ExecEnd		end;
	int			exit_code;		/* 0 to 255 */
	char	   *out;
	size_t		out_len;
	char	   *err;
	size_t		err_len;
} ExecReply;

/* Runs the command, once however often the script is sent. */
extern void exec_script_build(const ExecCommand *command, StringInfo script);

/* Kills the command of that id, and keeps it from beginning later. */
extern void exec_script_build_kill(const char *id, StringInfo script);

/* Runs an argv as it is, for its effect. */
extern void exec_script_build_plain(const Argv *argv, StringInfo script);

/* The most bytes that a reply to such a command can have. */
extern size_t exec_script_max_reply(size_t max_output);

/* Reads a reply; anything that is not exactly one is EXEC_UNKNOWN. */
extern void exec_script_read_reply(const char *mark, const char *bytes, size_t len,
								   ExecReply *reply);

#endif							/* SPRITE_EXEC_SCRIPT_H */
