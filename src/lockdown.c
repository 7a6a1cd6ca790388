/*
 * lockdown.c
 *	  The order in which a hand-back happens.
 *
 * Lock the name, look, create if absent, decide, push and verify, make the
 * workspace, record.  The row is written last and in the caller's transaction,
 * so nothing short of a confirmed lockdown is ever linked to a session.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "http.h"
#include "lockdown.h"
#include "name_lock.h"
#include "sprite_lockdown.h"

/* Where agents work; made on a push only, and by whoever needs it later. */
#define WORKSPACE_DIRECTORY "/workspace"

/*
 * A VM that is not up yet does not refuse an exec, it hangs.  A fresh one is
 * usable after 1-2 s as a rule, so its first try is cut short.
 */
#define FIRST_WORKSPACE_TRY_MS	5000
#define WORKSPACE_TRY_MS		30000

/* Waits between tries grow linearly, unless the platform names a time. */
#define RETRY_PAUSE_MS			500

/*
 * What the caller of a failed hand-back waits at most for the Sprite that it
 * created to be destroyed.  A healthy platform answers a delete within one.
 */
#define UNDO_BUDGET_MS			5000

typedef struct LockdownRun
{
	const LockdownCall *call;
	LockdownResult *result;
	SpritesApi *api;
	int			attempt;		/* of the current step, from 1 */
	int64		intent;			/* the journal's entry; 0: nothing was sent yet */
	const char *action;			/* what the intent is to do */
	bool		recording;		/* all that is left is to write the rows */
	char	   *from_hash;		/* policy confirmed last, if any */

	/* the undo's licence: nothing that this call did not create is destroyed */
	bool		created;
	char	   *created_id;		/* NULL: the platform has not reported one */
	MemoryContext undo_context;
} LockdownRun;

/* A step fills a result; run_step() decides what a failure means. */
typedef void (*Step) (LockdownRun *run, ApiResult *result);

/* ------------------------------------------------------------------------
 * Steps and their retries
 * ------------------------------------------------------------------------
 */

static bool
is_known(const char *text)
{
	return text != NULL && text[0] != '\0';
}

static int
retry_pause(const ApiResult *result, int attempt)
{
	if (result->retry_after > 0)
		return (int) Min(result->retry_after, PG_INT32_MAX / 1000) * 1000;
	return RETRY_PAUSE_MS * attempt;
}

/* Waits before the next try, or returns false when there is none. */
static bool
pause_before_retry(LockdownRun *run, const ApiResult *result, int attempt)
{
	int			pause = retry_pause(result, attempt);

	if (attempt >= sprite_max_attempts || pause >= sprites_api_time_left(run->api))
		return false;
	http_sleep(pause);
	return true;
}

/* Runs one step until it succeeds, or raises what it failed with. */
static void
run_step(LockdownRun *run, Step step, const char *action)
{
	for (run->attempt = 1;; run->attempt++)
	{
		ApiResult	result;

		step(run, &result);
		result.attempt = run->attempt;
		if (result.outcome == API_OK)
			return;
		if (!api_result_is_transient(&result) || !pause_before_retry(run, &result, run->attempt))
			api_result_raise(&result, action, run->call->name);
	}
}

static void
raise_not_confirmed(const LockdownRun *run, const char *phase, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_SPRITE_NOT_CONFIRMED),
			 errmsg("could not confirm the lockdown of Sprite \"%s\"", run->call->name),
			 errdetail("Phase: %s; attempts: %d; %s", phase, run->attempt, detail),
			 errhint("The VM was not handed back. Call again to push the policy anew.")));
}

/* ------------------------------------------------------------------------
 * Journal
 * ------------------------------------------------------------------------
 */

static void
fill_entry(const LockdownRun *run, JournalEntry *entry)
{
	const LockdownCall *call = run->call;
	const LockdownResult *result = run->result;

	memset(entry, 0, sizeof(JournalEntry));
	entry->server_name = call->endpoint->server_name;
	entry->sprite_name = call->name;
	entry->session_key = call->session_key;
	entry->action = run->action;
	entry->reason = result ? lockdown_reason_name(result->reason) : NULL;
	entry->sprite_id = result && is_known(result->sprite.id) ? result->sprite.id : NULL;
	entry->from_hash = run->from_hash;
	entry->to_hash = call->policy_hash;
}

/*
 * Puts on record what is about to be sent, once for a hand-back.  From here on
 * only a committed confirmation makes the VM's policy known again.
 */
static void
intend(LockdownRun *run, const char *action, LockdownReason reason)
{
	JournalEntry entry;

	if (run->intent != 0)
		return;
	name_lock_change(run->call->name);
	run->action = action;
	if (run->result != NULL)
		run->result->reason = reason;
	fill_entry(run, &entry);
	run->intent = journal_intend(run->call->journal, &entry);
}

static void
confirm(const LockdownRun *run)
{
	JournalEntry entry;

	fill_entry(run, &entry);
	journal_confirm(run->call->journal, &entry, run->intent);
}

/* ------------------------------------------------------------------------
 * Look and create
 * ------------------------------------------------------------------------
 */

/*
 * A failure is raised at once and not retried: nothing has happened yet, and
 * the caller can judge better than we how long a terminal may wait.
 */
static bool
look(SpritesApi *api, const char *name, Sprite *sprite)
{
	ApiResult	result;

	sprites_api_get(api, name, sprite, &result);
	if (result.outcome == API_ABSENT)
		return false;
	if (result.outcome != API_OK)
		api_result_raise(&result, "look up", name);
	return true;
}

/* The reply of the create had no id; a GET may. */
static void
learn_identity(LockdownRun *run)
{
	if (!look(run->api, run->call->name, &run->result->sprite))
		raise_not_confirmed(run, PHASE_GET, "the Sprite was created and cannot be found.");
	run->created_id = run->result->sprite.id;
}

/*
 * Tries to create the Sprite once.  True when it exists now, by this call
 * (result->fresh) or by another's.
 */
static bool
try_create(LockdownRun *run, ApiResult *result)
{
	const LockdownCall *call = run->call;

	sprites_api_create(run->api, call->name, call->config, &run->result->sprite, result);
	result->attempt = run->attempt;
	if (result->status >= 200 && result->status <= 299)
	{
		run->created = true;
		run->result->fresh = true;
		run->created_id = run->result->sprite.id;

		/* the headers said created; only the rest of the reply was lost */
		if (result->outcome != API_OK && result->outcome != API_LOST)
			api_result_raise(result, "create", call->name);
		if (!is_known(run->created_id))
			learn_identity(run);
		return true;
	}

	/* a lost race, or an effect that only a look can tell: then not fresh */
	if (result->outcome == API_EXISTS || result->outcome == API_LOST ||
		result->outcome == API_UNAVAILABLE)
		return look(run->api, call->name, &run->result->sprite);
	return false;
}

static void
create(LockdownRun *run)
{
	intend(run, "create", LOCKDOWN_FRESH);
	for (run->attempt = 1;; run->attempt++)
	{
		ApiResult	result;

		if (try_create(run, &result))
			return;

		/* "exists" and then not: somebody deleted it in between */
		if ((result.outcome != API_EXISTS && !api_result_is_transient(&result)) ||
			!pause_before_retry(run, &result, run->attempt))
			api_result_raise(&result, "create", run->call->name);
	}
}

/* ------------------------------------------------------------------------
 * Decide
 * ------------------------------------------------------------------------
 */

/* Seconds since the proof was recorded; -1 when that cannot be told. */
static int64
age_of(TimestampTz recorded_at)
{
	TimestampTz now = GetCurrentTimestamp();

	if (TIMESTAMP_NOT_FINITE(recorded_at) || recorded_at > now)
		return -1;
	return (now - recorded_at) / USECS_PER_SEC;
}

/* A row that names another Sprite proves nothing of this one. */
static void
evidence_of_session(const LockdownCall *call, LockdownEvidence *evidence)
{
	SessionRow	row;

	if (!sessions_read(call->sessions, call->session_key, &row) ||
		strcmp(row.server_name, call->endpoint->server_name) != 0 ||
		strcmp(row.sprite_name, call->name) != 0)
		return;
	evidence->recorded_token = row.token;
	evidence->proof_age = age_of(row.updated_at);
}

/*
 * The newest entry for the name decides what the token is worth.  A name
 * without entries is one that this extension has never pushed to.  Then the
 * token on a row is recorded state that another service has left; a token that
 * a caller brings along is only a claim, which nothing supports.
 */
static void
evidence_of_journal(const LockdownCall *call, const Sprite *sprite,
					LockdownEvidence *evidence, char **from_hash)
{
	JournalState state;

	journal_read(call->journal, call->endpoint->server_name, call->name,
				 is_known(sprite->id) ? sprite->id : NULL, &state);
	*from_hash = state.kind == JOURNAL_CONFIRMED ? state.to_hash : NULL;
	switch (state.kind)
	{
		case JOURNAL_NONE:
			if (call->session_key == NULL)
				evidence->recorded_token = NULL;
			return;
		case JOURNAL_INTENT:
			evidence->in_doubt = true;
			return;
		case JOURNAL_DRIFTED:
			/* the entry's time is not that of the proof */
			evidence->drifted = true;
			evidence->epoch_changed = !state.this_epoch;
			return;
		case JOURNAL_CONFIRMED:
			break;
	}
	if (state.sprite_id == NULL || sprite->id == NULL || strcmp(state.sprite_id, sprite->id) != 0)
		evidence->in_doubt = true;
	else if (state.to_hash == NULL || strcmp(state.to_hash, call->policy_hash) != 0)
		evidence->other_policy = true;
	evidence->epoch_changed = !state.this_epoch;
	evidence->proof_age = age_of(state.recorded_at);
}

/* Gathers what is known and decides. */
static LockdownReason
decide(const LockdownCall *call, const Sprite *sprite, bool fresh, char **from_hash)
{
	LockdownEvidence evidence = {0};
	char	   *desired_token = lockdown_token_make(sprite->id, call->policy_hash);

	evidence.fresh = fresh;
	evidence.sprite_id = sprite->id;
	evidence.policy_hash = call->policy_hash;
	evidence.proof_age = -1;
	evidence.proof_max_age = sprite_proof_max_age;
	if (call->session_key != NULL)
		evidence_of_session(call, &evidence);
	else
		evidence.recorded_token = call->applied_token;
	if (desired_token != NULL)
		evidence.other_policy = sessions_contradict(call->sessions, call->name, sprite->id,
													desired_token);
	evidence_of_journal(call, sprite, &evidence, from_hash);
	return lockdown_decide(&evidence);
}

/* ------------------------------------------------------------------------
 * Push and verify
 * ------------------------------------------------------------------------
 */

static void
warn_about_policy(const Policy *policy)
{
	PolicyProblems *problems = policy_problems(policy);

	for (int i = 0; i < problems->n; i++)
	{
		const PolicyProblem *problem = &problems->items[i];

		if (problem->severity == POLICY_WARNING)
			ereport(WARNING,
					(errcode(ERRCODE_WARNING),
					 errmsg("network policy: %s", problem->message)));
	}
}

/* A reply that was lost is settled by what the VM says, not by assuming. */
static void
step_push(LockdownRun *run, ApiResult *result)
{
	const LockdownCall *call = run->call;
	ReportedPolicy reported;
	ApiResult	settled;

	sprites_api_policy_set(run->api, call->name, call->policy, result);
	if (result->outcome != API_LOST || sprite_verify_push != VERIFY_PUSH_POLICY)
		return;
	sprites_api_policy_get(run->api, call->name, &reported, &settled);
	if (settled.outcome == API_OK && reported.policy != NULL &&
		policy_same_rules(reported.policy, call->policy))
		result->outcome = API_OK;
}

static void
step_verify_policy(LockdownRun *run, ApiResult *result)
{
	ReportedPolicy reported;
	char		hash[POLICY_HASH_LEN + 1];

	sprites_api_policy_get(run->api, run->call->name, &reported, result);
	if (result->outcome != API_OK)
		return;
	if (reported.policy == NULL)
		raise_not_confirmed(run, PHASE_POLICY_GET, "the VM reports rules that were never pushed.");
	if (policy_same_rules(reported.policy, run->call->policy))
		return;
	raise_not_confirmed(run, PHASE_POLICY_GET,
						policy_hash(reported.policy, hash) ?
						psprintf("asked for policy %s, the VM reports policy %s.",
								 run->call->policy_hash, hash) :
						"the VM reports another policy.");
}

static bool
same_identity(const char *before, const char *now)
{
	if (!is_known(before) || !is_known(now))
		return !is_known(before) && !is_known(now);
	return strcmp(before, now) == 0;
}

/* The policy that was read back is that of the VM which had the id before. */
static void
step_verify_identity(LockdownRun *run, ApiResult *result)
{
	Sprite		now;

	sprites_api_get(run->api, run->call->name, &now, result);
	if (result->outcome == API_ABSENT)
		raise_not_confirmed(run, PHASE_GET, "the Sprite has vanished.");
	if (result->outcome != API_OK)
		return;
	if (!same_identity(run->result->sprite.id, now.id))
		raise_not_confirmed(run, PHASE_GET, "the VM was replaced during the lockdown.");
	run->result->sprite = now;
}

static void
step_make_workspace(LockdownRun *run, ApiResult *result)
{
	bool		first_try = run->result->fresh && run->attempt == 1;
	int			timeout = first_try ? FIRST_WORKSPACE_TRY_MS : WORKSPACE_TRY_MS;
	int			exit_code = 0;

	sprites_api_make_directory(run->api, run->call->name, WORKSPACE_DIRECTORY,
							   Min(timeout, sprite_request_timeout), &exit_code, result);
	if (result->outcome == API_OK && exit_code != 0)
		raise_not_confirmed(run, PHASE_EXEC,
							psprintf("mkdir of " WORKSPACE_DIRECTORY " ended with exit code %d: %s",
									 exit_code, result->text ? result->text : "no message"));
}

static void
push_and_verify(LockdownRun *run)
{
	warn_about_policy(run->call->policy);
	intend(run, "push", run->result->reason);
	run_step(run, step_push, "push the network policy of");
	if (sprite_verify_push >= VERIFY_PUSH_POLICY)
		run_step(run, step_verify_policy, "read back the network policy of");
	if (sprite_verify_push >= VERIFY_PUSH_IDENTITY)
		run_step(run, step_verify_identity, "verify the identity of");
	run_step(run, step_make_workspace, "make the workspace of");
}

/* ------------------------------------------------------------------------
 * Record and undo
 * ------------------------------------------------------------------------
 */

static void
record(const LockdownRun *run)
{
	const LockdownCall *call = run->call;
	LockdownResult *result = run->result;

	result->token = lockdown_token_make(result->sprite.id, call->policy_hash);
	if (lockdown_reason_applies(result->reason))
	{
		confirm(run);
		sessions_confirm(call->sessions, call->session_key, call->endpoint->server_name,
						 call->name, is_known(result->sprite.id) ? result->sprite.id : NULL,
						 result->token);
	}
	else if (call->session_key != NULL)
		sessions_touch(call->sessions, call->session_key);
}

/*
 * Sees whether the name still leads to the VM that this call created.  When it
 * cannot be told, the VM is left alone: an orphan costs less than somebody's
 * work.
 */
static bool
is_still_ours(LockdownRun *run, ApiResult *result)
{
	Sprite		now;

	if (!is_known(run->created_id))
		return true;
	sprites_api_get(run->api, run->call->name, &now, result);
	return result->outcome == API_OK && same_identity(run->created_id, now.id);
}

/* Destroys what this call created.  Raises nothing. */
static void
undo_create(LockdownRun *run)
{
	ApiResult	result = {.outcome = API_OK};

	run->api->uninterruptible = true;
	run->api->deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), UNDO_BUDGET_MS);
	if (is_still_ours(run, &result))
		sprites_api_delete(run->api, run->call->name, &result);
	if (result.outcome != API_OK && result.outcome != API_ABSENT)
		ereport(WARNING,
				(errcode(api_result_sqlstate(&result)),
				 errmsg("could not destroy Sprite \"%s\", whose lockdown failed", run->call->name),
				 errdetail_internal("%s", api_result_detail(&result))));
}

/*
 * What a failure leaves to be done, after an error (code 0) or on the way out
 * of a terminated backend.  Runs within bounds, with interrupts held and
 * outside any abort processing; must not raise.
 */
static void
undo(int code, Datum arg)
{
	LockdownRun *run = (LockdownRun *) DatumGetPointer(arg);
	MemoryContext old_context;

	/* an orphaned backend has to be gone before anything else is */
	if (run->intent == 0 || !PostmasterIsAlive())
		return;

	old_context = MemoryContextSwitchTo(run->undo_context);
	HOLD_INTERRUPTS();
	if (run->created)
		undo_create(run);

	/* after a failure to write, no catalog may be read before the abort */
	if (code == 0 && !run->recording)
	{
		JournalEntry entry;

		fill_entry(run, &entry);
		journal_note_failure(run->call->journal, &entry, run->intent, geterrcode());
	}
	RESUME_INTERRUPTS();
	MemoryContextSwitchTo(old_context);
}

/* Locks the name and makes ready.  result is NULL if no VM is to be handed back. */
static LockdownRun *
start_run(const LockdownCall *call, LockdownResult *result)
{
	LockdownRun *run = palloc0(sizeof(LockdownRun));

	run->call = call;
	run->result = result;
	run->undo_context = AllocSetContextCreate(CurrentMemoryContext, "sprite_lockdown undo",
											  ALLOCSET_SMALL_SIZES);
	name_lock_call(call->name);
	run->api = sprites_api_open(call->endpoint);
	return run;
}

void
lockdown_hand_back(const LockdownCall *call, LockdownResult *result)
{
	LockdownRun *run;

	memset(result, 0, sizeof(LockdownResult));
	run = start_run(call, result);
	PG_ENSURE_ERROR_CLEANUP(undo, PointerGetDatum(run));
	{
		if (!look(run->api, call->name, &result->sprite))
			create(run);
		result->reason = decide(call, &result->sprite, result->fresh, &run->from_hash);
		if (lockdown_reason_applies(result->reason))
			push_and_verify(run);
		run->recording = true;
		record(run);
	}
	PG_END_ENSURE_ERROR_CLEANUP(undo, PointerGetDatum(run));
}

/* ------------------------------------------------------------------------
 * The rest
 * ------------------------------------------------------------------------
 */

bool
lockdown_plan(const LockdownCall *call, LockdownResult *result)
{
	bool		exists;
	char	   *from_hash;

	memset(result, 0, sizeof(LockdownResult));
	exists = look(sprites_api_open(call->endpoint), call->name, &result->sprite);
	result->reason = decide(call, &result->sprite, !exists, &from_hash);
	return exists;
}

bool
lockdown_attach(Endpoint *endpoint, const char *name, Sprite *sprite)
{
	return look(sprites_api_open(endpoint), name, sprite);
}

/*
 * True if it was there.  A try whose reply was lost may have deleted the
 * Sprite; that a later one finds it gone is then our doing.
 */
static bool
destroy(LockdownRun *run)
{
	bool		maybe_deleted = false;
	ApiResult	result;

	for (run->attempt = 1;; run->attempt++)
	{
		sprites_api_delete(run->api, run->call->name, &result);
		result.attempt = run->attempt;
		if (result.outcome == API_OK || result.outcome == API_ABSENT)
			return result.outcome == API_OK || maybe_deleted;
		if (result.outcome == API_LOST || result.outcome == API_UNAVAILABLE)
			maybe_deleted = true;
		if (!api_result_is_transient(&result) || !pause_before_retry(run, &result, run->attempt))
			api_result_raise(&result, "destroy", run->call->name);
	}
}

bool
lockdown_destroy(Endpoint *endpoint, const OwnedTable *sessions, const OwnedTable *journal,
				 const char *name)
{
	LockdownCall call = {.endpoint = endpoint, .sessions = sessions, .journal = journal, .name = name};
	LockdownRun *run = start_run(&call, NULL);
	bool		was_there;

	PG_ENSURE_ERROR_CLEANUP(undo, PointerGetDatum(run));
	{
		intend(run, "destroy", LOCKDOWN_FRESH);
		was_there = destroy(run);
		run->recording = true;
		confirm(run);
		sessions_forget(sessions, endpoint->server_name, name);
	}
	PG_END_ENSURE_ERROR_CLEANUP(undo, PointerGetDatum(run));
	return was_there;
}
