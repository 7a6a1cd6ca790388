/*
 * exec_reply_fuzz.c
 *	  Feeds the decoder of exec replies with whatever libFuzzer makes up.
 *
 * What must hold: it reads nothing that is not there, which the sanitizers see
 * to, and it takes nothing for the end of a command that lacks the last mark.
 */
#include "postgres_fe.h"

#include "exec_script.h"

#define MARK "0123456789abcdef0123456789abcdef"

extern int	LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

/* The input as the decoder sees it has the mark and the word somewhere. */
static bool
holds_end(const uint8 *data, size_t size)
{
	static const char end[] = MARK " end\n";
	char	   *clean = malloc(size + 1);
	size_t		len = 0;
	bool		found = false;

	for (size_t i = 0; i < size; i++)
	{
		if (data[i] != 1)
			clean[len++] = (char) data[i];
	}
	for (size_t i = 0; !found && i + sizeof(end) - 1 <= len; i++)
		found = memcmp(clean + i, end, sizeof(end) - 1) == 0;
	free(clean);
	return found;
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	ExecReply	reply;

	exec_script_read_reply(MARK, (const char *) data, size, &reply);
	if (reply.end == EXEC_ENDED)
	{
		if (reply.exit_code < 0 || reply.exit_code > 255 || reply.out == NULL || reply.err == NULL ||
			reply.out_len + reply.err_len > size || !holds_end(data, size))
			abort();
		/* every byte that is claimed is there */
		for (size_t i = 0; i < reply.out_len; i++)
			((volatile char *) reply.out)[i] ^= 1;
		for (size_t i = 0; i < reply.err_len; i++)
			((volatile char *) reply.err)[i] ^= 1;
	}
	free(reply.out);
	free(reply.err);
	return 0;
}
