/*
 * exec_script.c
 *	  A command as a script, and the script's reply.
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "common/base64.h"

#include "exec_script.h"

/* Each byte of a chunk's first is the id of its message; ours all go to stdout. */
#define MESSAGE_STDOUT '\001'

/*
 * What commands leave in a VM is below here, for a day and an hour: the longest
 * time-out is a day.
 */
#define DIRECTORY "/tmp/.sprite_lockdown"

/*
 * All is one function, so nothing runs before all of it has arrived.  Its own
 * errors say nothing: they would end up in the reply.
 *
 * The directory of the command's id is made by whoever comes first, so a script
 * that is sent again after a lost reply does not run the command again.  It stays
 * behind, empty, for as long as a late copy of the request may come.
 */
#define HEAD \
	"sprite_exec()\n{\n" \
	"exec 2>/dev/null\n" \
	"d=" DIRECTORY "; w=$d/$id\n" \
	"mkdir -p \"$d\"\n" \
	"find \"$d\" -mindepth 1 -maxdepth 1 -mmin +1500 -exec rm -rf {} +\n" \
	"if ! mkdir \"$w\"; then\n" \
	"	if [ -d \"$w\" ]; then echo \"$n begun\"; else echo \"$n unusable\"; fi\n" \
	"	return\n" \
	"fi\n" \
	"if ! mkfifo \"$w/o\" \"$w/e\" \"$w/k\" || ! : >\"$w/in\" || ! command -v setsid >/dev/null ||\n" \
	"	! command -v base64 >/dev/null; then\n" \
	"	echo \"$n unusable\"\n" \
	"	return\n" \
	"fi\n"

/*
 * cat keeps what it gets at once, and a limit on the size of its file ends it.
 * The command leads a session of its own.  Who wants it killed writes the reason
 * into the pipe k: a timer, a reader of an output that passes the limit, or the
 * script that a canceled caller sends.  What the command has left running holds
 * its outputs open: it is not waited for beyond a second.
 */
#define RUN \
	"r='(ulimit -f $(($1 / 512 + 1)); exec cat >\"$2\"); if [ \"$(wc -c <\"$2\")\" -ge \"$1\" ]; then echo large >\"$3/k\" & fi'\n" \
	"k='read why <\"$1/k\"; : >\"$1/$why\"; i=0; until kill -s KILL -- \"-$(cat \"$1/pid\")\" || [ $i -ge 50 ]; do i=$((i + 1)); sleep 0.1; done'\n" \
	"t='sleep \"$1\"; echo late >\"$2/k\"'\n" \
	"setsid sh -c \"$k\" sh \"$w\" >/dev/null &\n" \
	"killer=$!\n" \
	"setsid sh -c \"$r\" sh \"$limit\" \"$w/out\" \"$w\" <\"$w/o\" >/dev/null &\n" \
	"ro=$!\n" \
	"setsid sh -c \"$r\" sh \"$limit\" \"$w/err\" \"$w\" <\"$w/e\" >/dev/null &\n" \
	"re=$!\n" \
	"setsid sh -c \"$t\" sh \"$seconds\" \"$w\" >/dev/null &\n" \
	"timer=$!\n" \
	"(exec setsid sh -c 'echo \"$$\" >\"$1/pid\"; shift; exec \"$@\"' sh \"$w\" \"$@\") <\"$w/in\" >\"$w/o\" 2>\"$w/e\"\n" \
	"rc=$?\n" \
	"kill -s KILL -- \"-$timer\" \"-$killer\"\n" \
	"setsid sh -c 'sleep 1; kill -s KILL -- \"-$1\" \"-$2\"' sh \"$ro\" \"$re\" >/dev/null &\n" \
	"grace=$!\n" \
	"wait \"$ro\"; wait \"$re\"\n" \
	"kill -s KILL -- \"-$grace\" \"-$ro\" \"-$re\"\n" \
	": >\"$w/done\"\n" \
	"end=ended\n" \
	"for f in out err; do [ \"$(wc -c <\"$w/$f\")\" -ge \"$limit\" ] && end=large; done\n" \
	"[ -e \"$w/late\" ] && end=late\n" \
	"echo \"$n $end $rc\"\n" \
	"if [ $end = ended ]; then\n" \
	"	echo \"$n out $(wc -c <\"$w/out\")\"; base64 <\"$w/out\"\n" \
	"	echo \"$n err $(wc -c <\"$w/err\")\"; base64 <\"$w/err\"\n" \
	"fi\n" \
	"echo \"$n end\"\n" \
	"rm -f \"$w\"/*\n" \
	"}\n" \
	"sprite_exec </dev/null\n"

/* A command that has not begun finds the directory and does not begin. */
#define KILL \
	"exec 2>/dev/null\n" \
	"d=" DIRECTORY "; w=$d/$id\n" \
	"mkdir -p \"$d\"\n" \
	"mkdir \"$w\" && exit 0\n" \
	"echo killed >\"$w/k\" &\n" \
	"i=0\n" \
	"while [ -p \"$w/k\" ] && [ ! -e \"$w/done\" ] && [ $i -lt 20 ]; do\n" \
	"	i=$((i + 1)); sleep 0.1\n" \
	"done\n" \
	"kill -s KILL $!\n"

/* A word that sh takes for what it is. */
static void
append_quoted(StringInfo script, const char *word)
{
	appendStringInfoString(script, " '");
	for (const char *p = word; *p != '\0'; p++)
	{
		if (*p == '\'')
			appendStringInfoString(script, "'\\''");
		else
			appendStringInfoChar(script, *p);
	}
	appendStringInfoChar(script, '\'');
}

static void
append_input(StringInfo script, const ExecCommand *command)
{
	int			encoded_len = pg_b64_enc_len((int) command->input_len);
	int			n;

	if (command->input_len == 0)
		return;
	appendStringInfo(script, "base64 -d >\"$w/in\" <<'%s'\n", command->id);
	enlargeStringInfo(script, encoded_len + 1);
	n = pg_b64_encode((const void *) command->input, (int) command->input_len,
					  script->data + script->len, encoded_len);
	script->len += Max(n, 0);
	script->data[script->len] = '\0';
	appendStringInfo(script, "\n%s\n", command->id);
}

void
exec_script_build(const ExecCommand *command, StringInfo script)
{
	appendStringInfo(script, "n=%s; id=%s; limit=%zu; seconds=%d.%03d\n", command->mark,
					 command->id, command->max_output + 1, command->timeout_ms / 1000,
					 command->timeout_ms % 1000);
	appendStringInfoString(script, HEAD);
	append_input(script, command);
	appendStringInfoString(script, "set --");
	if (command->nenv > 0)
		appendStringInfoString(script, " env");
	for (int i = 0; i < command->nenv; i++)
		append_quoted(script, command->env[i]);
	for (int i = 0; i < command->argv.n; i++)
		append_quoted(script, command->argv.items[i]);
	appendStringInfoChar(script, '\n');
	appendStringInfoString(script, RUN);
}

void
exec_script_build_kill(const char *id, StringInfo script)
{
	appendStringInfo(script, "id=%s\n", id);
	appendStringInfoString(script, KILL);
}

void
exec_script_build_plain(const Argv *argv, StringInfo script)
{
	appendStringInfoString(script, "exec");
	for (int i = 0; i < argv->n; i++)
		append_quoted(script, argv->items[i]);
	appendStringInfoChar(script, '\n');
}

/* Two outputs in base64 with line breaks, an id for every chunk, and the marks. */
size_t
exec_script_max_reply(size_t max_output)
{
	return max_output * 3 + 65536;
}

/* ------------------------------------------------------------------------
 * Reply
 * ------------------------------------------------------------------------
 */

typedef struct Reader
{
	const char *at;
	const char *end;
	const char *mark;
} Reader;

/* Takes "<mark> <word>" and, if number is not NULL, " <number>", to the line's end. */
static bool
take_line(Reader *reader, const char *word, uint64 *number)
{
	const char *at = reader->at;
	size_t		word_len = strlen(word);

	if ((size_t) (reader->end - at) < EXEC_MARK_LEN + 1 + word_len + 1 ||
		memcmp(at, reader->mark, EXEC_MARK_LEN) != 0 || at[EXEC_MARK_LEN] != ' ' ||
		memcmp(at + EXEC_MARK_LEN + 1, word, word_len) != 0)
		return false;
	at += EXEC_MARK_LEN + 1 + word_len;
	if (number != NULL)
	{
		const char *digits;

		if (*at++ != ' ')
			return false;
		*number = 0;
		for (digits = at; at < reader->end && *at >= '0' && *at <= '9'; at++)
		{
			if (at - digits > 12)
				return false;
			*number = *number * 10 + (uint64) (*at - '0');
		}
		if (at == digits)
			return false;
	}
	if (at == reader->end || *at != '\n')
		return false;
	reader->at = at + 1;
	return true;
}

/* Takes an output: its line, and base64 to the next line of ours. */
static bool
take_output(Reader *reader, const char *word, char **bytes, size_t *len)
{
	uint64		expected;
	char	   *encoded;
	int			encoded_len = 0;
	int			decoded_len;

	if (!take_line(reader, word, &expected) || (uint64) (reader->end - reader->at) < expected)
		return false;
	encoded = palloc(reader->end - reader->at + 1);
	while (reader->at < reader->end &&
		   ((size_t) (reader->end - reader->at) <= EXEC_MARK_LEN ||
			memcmp(reader->at, reader->mark, EXEC_MARK_LEN) != 0 || reader->at[EXEC_MARK_LEN] != ' '))
	{
		if (*reader->at != '\n')
			encoded[encoded_len++] = *reader->at;
		reader->at++;
	}
	*bytes = palloc(encoded_len + 1);
	decoded_len = pg_b64_decode(encoded, encoded_len, (void *) *bytes, encoded_len);
	pfree(encoded);
	*len = (size_t) expected;
	return decoded_len >= 0 && (uint64) decoded_len == expected;
}

static ExecEnd
read_end(Reader *reader, ExecReply *reply)
{
	uint64		exit_code;

	if (take_line(reader, "begun", NULL))
		return EXEC_BEGUN_BEFORE;
	if (take_line(reader, "unusable", NULL))
		return EXEC_UNUSABLE;
	if (take_line(reader, "late", &exit_code))
		return take_line(reader, "end", NULL) ? EXEC_TIMED_OUT : EXEC_UNKNOWN;
	if (take_line(reader, "large", &exit_code))
		return take_line(reader, "end", NULL) ? EXEC_TOO_LARGE : EXEC_UNKNOWN;
	if (!take_line(reader, "ended", &exit_code) || exit_code > 255 ||
		!take_output(reader, "out", &reply->out, &reply->out_len) ||
		!take_output(reader, "err", &reply->err, &reply->err_len) ||
		!take_line(reader, "end", NULL))
		return EXEC_UNKNOWN;
	reply->exit_code = (int) exit_code;
	return EXEC_ENDED;
}

void
exec_script_read_reply(const char *mark, const char *bytes, size_t len, ExecReply *reply)
{
	char	   *clean = palloc(len + 1);
	char	   *to = clean;
	Reader		reader = {.at = clean, .mark = mark};

	memset(reply, 0, sizeof(ExecReply));
	for (size_t i = 0; i < len; i++)
	{
		if (bytes[i] != MESSAGE_STDOUT)
			*to++ = bytes[i];
	}
	reader.end = to;
	reply->end = read_end(&reader, reply);
	pfree(clean);
}
