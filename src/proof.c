/*
 * proof.c
 *	  Token, decision and reason.
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "proof.h"

static const char *const reason_names[] = {
	[LOCKDOWN_FRESH] = "fresh",
	[LOCKDOWN_NO_IDENTITY] = "no_identity",
	[LOCKDOWN_NO_PROOF] = "no_proof",
	[LOCKDOWN_REPLACED] = "replaced",
	[LOCKDOWN_POLICY_CHANGED] = "policy_changed",
	[LOCKDOWN_IN_DOUBT] = "in_doubt",
	[LOCKDOWN_EPOCH_CHANGED] = "epoch_changed",
	[LOCKDOWN_EXPIRED] = "expired",
	[LOCKDOWN_DRIFTED] = "drifted",
	[LOCKDOWN_PROVEN] = "proven"
};

static bool
is_unknown(const char *text)
{
	return text == NULL || text[0] == '\0';
}

char *
lockdown_token_make(const char *sprite_id, const char *policy_hash)
{
	if (is_unknown(sprite_id) || is_unknown(policy_hash))
		return NULL;
	return psprintf("%s:%s", sprite_id, policy_hash);
}

bool
lockdown_token_split(const char *token, char **sprite_id, char **policy_hash)
{
	const char *colon = token ? strrchr(token, ':') : NULL;

	if (colon == NULL || colon == token || colon[1] == '\0')
		return false;
	*sprite_id = pnstrdup(token, colon - token);
	*policy_hash = pstrdup(colon + 1);
	return true;
}

bool
lockdown_should_apply(bool fresh, const char *applied_token, const char *desired_token)
{
	if (fresh || is_unknown(applied_token) || is_unknown(desired_token))
		return true;
	return strcmp(applied_token, desired_token) != 0;
}

static bool
is_too_old(const LockdownEvidence *evidence)
{
	if (evidence->proof_max_age <= 0)
		return false;
	return evidence->proof_age < 0 || evidence->proof_age > evidence->proof_max_age;
}

/*
 * A token that cannot be read is none.  A missing hash of the asked-for policy
 * cannot equal any, so it ends as a changed policy.
 */
LockdownReason
lockdown_decide(const LockdownEvidence *evidence)
{
	char	   *recorded_id;
	char	   *recorded_hash;

	if (evidence->fresh)
		return LOCKDOWN_FRESH;
	if (is_unknown(evidence->sprite_id))
		return LOCKDOWN_NO_IDENTITY;
	if (!lockdown_token_split(evidence->recorded_token, &recorded_id, &recorded_hash))
		return LOCKDOWN_NO_PROOF;
	if (strcmp(recorded_id, evidence->sprite_id) != 0)
		return LOCKDOWN_REPLACED;
	if (is_unknown(evidence->policy_hash) || evidence->other_policy ||
		strcmp(recorded_hash, evidence->policy_hash) != 0)
		return LOCKDOWN_POLICY_CHANGED;
	if (evidence->in_doubt)
		return LOCKDOWN_IN_DOUBT;
	if (evidence->epoch_changed)
		return LOCKDOWN_EPOCH_CHANGED;
	if (is_too_old(evidence))
		return LOCKDOWN_EXPIRED;
	if (evidence->drifted)
		return LOCKDOWN_DRIFTED;
	return LOCKDOWN_PROVEN;
}

const char *
lockdown_reason_name(LockdownReason reason)
{
	return reason_names[reason];
}

bool
lockdown_reason_applies(LockdownReason reason)
{
	return reason != LOCKDOWN_PROVEN;
}
