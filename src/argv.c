/*
 * argv.c
 *	  Argument vectors for commands in a VM whose workspace may be gone.
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "argv.h"

/*
 * $1 is the directory, the rest is the command.  "--" keeps a directory that
 * begins with a hyphen from being an option.  With "./" in front "cd -" does not
 * mean the previous directory, and CDPATH, which is the command's to see, sends
 * nobody elsewhere.  Bash takes a command that begins with a hyphen for an option
 * of exec; the "--" that would help there is a command to dash.
 */
#define SELF_HEALING_SCRIPT \
	"mkdir -p -- \"$1\" 2>/dev/null; " \
	"case $1 in /*) cd -- \"$1\";; *) cd -- \"./$1\";; esac || exit 1; " \
	"shift; case $1 in -*) echo \"sh: the command begins with a hyphen\" >&2; exit 127;; esac; " \
	"exec \"$@\""

#define RECOVERY_SCRIPT "mkdir -p -- \"$@\" 2>/dev/null || true"
#define NO_OP_SCRIPT	"true"

static Argv
shell_argv(const char *script, int nparameters)
{
	Argv		argv = {.items = palloc(sizeof(char *) * (nparameters + 4))};

	argv.items[argv.n++] = pstrdup("sh");
	argv.items[argv.n++] = pstrdup("-c");
	argv.items[argv.n++] = pstrdup(script);
	argv.items[argv.n++] = pstrdup("sh");	/* $0 */
	return argv;
}

Argv
argv_self_healing(const char *command, char **args, int nargs, const char *cwd)
{
	Argv		argv = shell_argv(SELF_HEALING_SCRIPT, nargs + 2);

	argv.items[argv.n++] = pstrdup(cwd);
	argv.items[argv.n++] = pstrdup(command);
	for (int i = 0; i < nargs; i++)
		argv.items[argv.n++] = pstrdup(args[i]);
	return argv;
}

Argv
argv_recovery(char **directories, int n)
{
	Argv		argv = shell_argv(n > 0 ? RECOVERY_SCRIPT : NO_OP_SCRIPT, n);

	for (int i = 0; i < n; i++)
		argv.items[argv.n++] = pstrdup(directories[i]);
	return argv;
}

/* The length of path without the slashes at its end. */
static size_t
without_slashes(const char *path, size_t len)
{
	while (len > 0 && path[len - 1] == '/')
		len--;
	return len;
}

char *
argv_parent_dir(const char *path)
{
	size_t		len = without_slashes(path, strlen(path));

	while (len > 0 && path[len - 1] != '/')
		len--;
	len = without_slashes(path, len);
	return len == 0 ? pstrdup("/") : pnstrdup(path, len);
}
