/*
 * argv.h
 *	  Argument vectors for commands in a VM whose workspace may be gone.  Pure.
 *
 * Text is passed through as it is; results are allocated with palloc.
 */
#ifndef SPRITE_ARGV_H
#define SPRITE_ARGV_H

typedef struct Argv
{
	int			n;
	char	  **items;
} Argv;

/*
 * An argv that makes cwd (failure ignored), enters it or exits 1, and becomes
 * the command.  command, args and cwd are positional data of the script and
 * never text of it.  A command that cannot be found, or that begins with a hyphen,
 * exits 127.
 */
extern Argv argv_self_healing(const char *command, char **args, int nargs, const char *cwd);

/*
 * An argv that makes all the directories and ignores failure; without any it
 * does nothing but wake the VM.
 */
extern Argv argv_recovery(char **directories, int n);

/*
 * The parent of a POSIX path, as dirname gives it, except that a path with no
 * slash, which the platform resolves against the root, has the parent "/".
 */
extern char *argv_parent_dir(const char *path);

#endif							/* SPRITE_ARGV_H */
