/*
 * workspace.c
 *	  Work in a VM: commands and files.
 *
 * The workspace may have been deleted since the lockdown made it, and the VM may
 * be asleep.  A command makes its own directory and wakes the VM; a file call
 * that fails has both done by one command, and is tried once more.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "http.h"
#include "journal.h"
#include "name_lock.h"
#include "proof.h"
#include "sessions.h"
#include "sprite_lockdown.h"
#include "sprites_api.h"
#include "workspace.h"

/* The first connection to a sleeping VM may be dropped: three tries are enough. */
#define WAKE_TRIES			3
#define WAKE_PAUSE_MS		500

/* Until a command that is to be killed is, or until that is given up. */
#define KILL_BUDGET_MS		5000

/* What a command may write of each output; three times as much is held in memory. */
#define MAX_EXEC_OUTPUT		(256 * 1024 * 1024)

#define SMALL_REPLY			65536

/* ------------------------------------------------------------------------
 * Proof
 * ------------------------------------------------------------------------
 */

static bool
is_proof(const JournalState *state)
{
	if (state->kind != JOURNAL_CONFIRMED || state->sprite_id == NULL || state->to_hash == NULL ||
		!state->this_epoch)
		return false;
	return sprite_proof_max_age <= 0 ||
		(GetCurrentTimestamp() - state->recorded_at) / USECS_PER_SEC <= sprite_proof_max_age;
}

/*
 * Whether the Sprite was handed back under a policy and nothing was sent to
 * change it since.  That nobody else has replaced it is not asked: that would be
 * a request each time.
 */
static bool
is_proven(const WorkspaceCall *call)
{
	const char *server = call->endpoint->server_name;
	JournalState state;

	/* no VM has this id: what other servers did to theirs is left aside */
	journal_read(call->journal, server, call->name, "", &state);
	if (state.kind == JOURNAL_NONE)
		return sessions_claim(call->sessions, server, call->name);
	if (!is_proof(&state))
		return false;

	/* by way of whichever server */
	journal_read(call->journal, server, call->name, state.sprite_id, &state);
	return is_proof(&state);
}

/* Keeps changes of the VM away for as long as the work lasts, and looks at its proof. */
static void
begin_work(const WorkspaceCall *call)
{
	name_lock_work(call->name);
	if (call->allow_unproven || is_proven(call))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_SPRITE_NOT_CONFIRMED),
			 errmsg("Sprite \"%s\" is not proven to run a policy", call->name),
			 errdetail("Nothing was sent to it."),
			 errhint("Get it by sprite_get_or_create() first, or say allow_unproven => true.")));
}

static void
end_work(const WorkspaceCall *call)
{
	name_unlock_work(call->name);
}

/* ------------------------------------------------------------------------
 * Commands
 * ------------------------------------------------------------------------
 */

typedef struct ExecRun
{
	const WorkspaceCall *call;
	ExecCommand *command;
	SpritesApi *api;
	bool		may_run;		/* it was sent, and its end is not known */
	int			attempt;
	MemoryContext kill_context;
} ExecRun;

static void
make_mark(char *mark)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char random[EXEC_MARK_LEN / 2];

	if (!pg_strong_random(random, sizeof(random)))
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not generate random values")));
	for (size_t i = 0; i < sizeof(random); i++)
	{
		*mark++ = digits[random[i] >> 4];
		*mark++ = digits[random[i] & 15];
	}
	*mark = '\0';
}

/* Runs a small script; what it writes is of no interest. */
static void
run_plain(SpritesApi *api, const char *name, StringInfo script, int timeout, ApiResult *result)
{
	size_t		len;

	(void) sprites_api_run_script(api, name, script->data, script->len, timeout, SMALL_REPLY,
								  &len, result);
}

/* After an error or on the way out of a terminated backend.  Must not raise. */
static void
kill_command(int code pg_attribute_unused(), Datum arg)
{
	ExecRun    *run = (ExecRun *) DatumGetPointer(arg);
	MemoryContext old_context;
	StringInfoData script;
	ApiResult	result;

	/* an orphaned backend has to be gone before anything else is */
	if (!run->may_run || !PostmasterIsAlive())
		return;
	run->may_run = false;

	old_context = MemoryContextSwitchTo(run->kill_context);
	HOLD_INTERRUPTS();
	initStringInfo(&script);
	exec_script_build_kill(run->command->id, &script);
	run->api->uninterruptible = true;
	run->api->deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), KILL_BUDGET_MS);
	run_plain(run->api, run->call->name, &script, KILL_BUDGET_MS, &result);
	if (result.outcome != API_OK && result.outcome != API_ABSENT)
		ereport(WARNING,
				(errcode(api_result_sqlstate(&result)),
				 errmsg("could not kill the command in Sprite \"%s\"", run->call->name),
				 errdetail_internal("%s", api_result_detail(&result))));
	RESUME_INTERRUPTS();
	MemoryContextSwitchTo(old_context);
}

static void
raise_unknown(const ExecRun *run, ApiResult *result)
{
	result->attempt = run->attempt;
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("it is not known whether the command in Sprite \"%s\" ran, or how it ended",
					run->call->name),
			 errdetail_internal("%s", api_result_detail(result)),
			 errhint("It was not run a second time.")));
}

static void
check_end(ExecRun *run, const ExecReply *reply, ApiResult *result)
{
	switch (reply->end)
	{
		case EXEC_ENDED:
			return;
		case EXEC_TIMED_OUT:
			ereport(ERROR,
					(errcode(ERRCODE_OPERATOR_INTERVENTION),
					 errmsg("the command in Sprite \"%s\" was killed by its time-out",
							run->call->name)));
		case EXEC_TOO_LARGE:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("the command in Sprite \"%s\" was killed: it wrote too much",
							run->call->name),
					 errhint("The limit, for each of stdout and stderr, is sprite_lockdown.max_response_bytes.")));
		case EXEC_UNUSABLE:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("the command in Sprite \"%s\" cannot be run", run->call->name),
					 errdetail("The VM lacks room in /tmp, or mkfifo, setsid or base64. The command was not run.")));
		case EXEC_BEGUN_BEFORE:
			result->text = "an earlier try has begun, and its reply was lost";
			raise_unknown(run, result);
			break;
		case EXEC_UNKNOWN:
			result->text = "the reply does not tell";
			raise_unknown(run, result);
			break;
	}
}

/* A try that may have begun is no reason not to try again: it is run once. */
static bool
is_worth_another_try(const ExecRun *run, const ApiResult *result)
{
	if (run->attempt >= WAKE_TRIES || result->timed_out || !api_result_is_transient(result))
		return false;
	return (result->retry_after > 0 ? result->retry_after * 1000 : 0) <
		sprites_api_time_left(run->api);
}

static void
run_command(ExecRun *run, ExecReply *reply)
{
	ExecCommand *command = run->command;
	size_t		max_reply = exec_script_max_reply(command->max_output);
	int			timeout = command->timeout_ms + sprite_request_timeout;
	StringInfoData script;
	const char *bytes;
	size_t		len;
	ApiResult	result;

	initStringInfo(&script);
	exec_script_build(command, &script);
	for (run->attempt = 1;; run->attempt++)
	{
		bool		may_have_begun = run->may_run;

		run->may_run = true;
		bytes = sprites_api_run_script(run->api, run->call->name, script.data, script.len,
									   timeout, max_reply, &len, &result);
		result.attempt = run->attempt;
		if (bytes != NULL)
			break;

		/* a refusal comes from before the command; a loss may come from after */
		run->may_run = may_have_begun || result.outcome == API_LOST ||
			result.outcome == API_UNAVAILABLE || result.outcome == API_UNFINISHED ||
			result.outcome == API_TOO_LARGE || result.outcome == API_MALFORMED;
		if (!is_worth_another_try(run, &result))
		{
			if (run->may_run)
				raise_unknown(run, &result);
			api_result_raise(&result, "run a command in", run->call->name);
		}
		http_sleep(result.retry_after > 0 ? (int) result.retry_after * 1000 :
				   WAKE_PAUSE_MS * run->attempt);
	}
	exec_script_read_reply(command->mark, bytes, len, reply);
	run->may_run = reply->end == EXEC_UNKNOWN || reply->end == EXEC_BEGUN_BEFORE;
	check_end(run, reply, &result);
}

void
workspace_exec(const WorkspaceCall *call, ExecCommand *command, ExecReply *reply)
{
	ExecRun    *run = palloc0(sizeof(ExecRun));
	char		mark[EXEC_MARK_LEN + 1];
	char		id[EXEC_MARK_LEN + 1];

	make_mark(mark);
	make_mark(id);
	command->mark = pstrdup(mark);
	command->id = pstrdup(id);
	command->max_output = Min(sprite_max_response_bytes, MAX_EXEC_OUTPUT);
	run->call = call;
	run->command = command;
	run->kill_context = AllocSetContextCreate(CurrentMemoryContext, "sprite_lockdown kill",
											  ALLOCSET_SMALL_SIZES);
	begin_work(call);
	run->api = sprites_api_open(call->endpoint);
	run->api->deadline = TimestampTzPlusMilliseconds(run->api->deadline, command->timeout_ms);

	PG_ENSURE_ERROR_CLEANUP(kill_command, PointerGetDatum(run));
	{
		run_command(run, reply);
	}
	PG_END_ENSURE_ERROR_CLEANUP(kill_command, PointerGetDatum(run));
	end_work(call);
}

/* ------------------------------------------------------------------------
 * Files
 * ------------------------------------------------------------------------
 */

/* One command that wakes the VM and makes the directory, if one is given. */
static void
recover(SpritesApi *api, const char *name, char *directory)
{
	Argv		argv = argv_recovery(&directory, directory ? 1 : 0);
	StringInfoData script;
	ApiResult	result;

	initStringInfo(&script);
	exec_script_build_plain(&argv, &script);
	run_plain(api, name, &script, sprite_request_timeout, &result);
	if (result.outcome != API_OK && !api_result_is_transient(&result))
		api_result_raise(&result, "wake", name);
}

/* An answer that another try would not change. */
static bool
is_final(const ApiResult *result)
{
	switch (result->outcome)
	{
		case API_OK:
		case API_ABSENT:
		case API_UNAUTHORIZED:
		case API_RATE_LIMITED:
		case API_TOO_LARGE:
			return true;
		default:
			return false;
	}
}

bool
workspace_read_file(const WorkspaceCall *call, const char *path, const char **bytes, size_t *len)
{
	SpritesApi *api;
	ApiResult	result;

	begin_work(call);
	api = sprites_api_open(call->endpoint);
	*bytes = sprites_api_file_read(api, call->name, path, len, &result);
	if (!is_final(&result) && result.outcome != API_NO_FILE && result.outcome != API_REJECTED)
	{
		recover(api, call->name, NULL);
		*bytes = sprites_api_file_read(api, call->name, path, len, &result);
		result.attempt = 2;
	}
	if (result.outcome != API_OK && result.outcome != API_NO_FILE)
		api_result_raise(&result, "read a file of", call->name);
	end_work(call);
	return result.outcome == API_OK;
}

void
workspace_write_file(const WorkspaceCall *call, const char *path, int mode,
					 const void *bytes, size_t len)
{
	SpritesApi *api;
	ApiResult	result;

	begin_work(call);
	api = sprites_api_open(call->endpoint);
	sprites_api_file_write(api, call->name, path, mode, bytes, len, &result);
	if (!is_final(&result))
	{
		recover(api, call->name, argv_parent_dir(psprintf("/%s", path)));
		sprites_api_file_write(api, call->name, path, mode, bytes, len, &result);
		result.attempt = 2;
	}
	if (result.outcome != API_OK)
		api_result_raise(&result, "write a file of", call->name);
	end_work(call);
}
