/*
 * proof.h
 *	  Token, decision and reason.  Pure: no database, no network.
 */
#ifndef SPRITE_PROOF_H
#define SPRITE_PROOF_H

/* In the order in which the first that holds is reported. */
typedef enum LockdownReason
{
	LOCKDOWN_FRESH,
	LOCKDOWN_NO_IDENTITY,
	LOCKDOWN_NO_PROOF,
	LOCKDOWN_REPLACED,
	LOCKDOWN_POLICY_CHANGED,
	LOCKDOWN_IN_DOUBT,
	LOCKDOWN_EPOCH_CHANGED,
	LOCKDOWN_EXPIRED,
	LOCKDOWN_DRIFTED,
	LOCKDOWN_PROVEN
} LockdownReason;

typedef struct LockdownEvidence
{
	bool		fresh;			/* this call created the VM */
	const char *sprite_id;		/* as the platform reports it now */
	const char *policy_hash;	/* of the asked-for policy */
	const char *recorded_token; /* the claim; NULL or empty: none */
	bool		in_doubt;
	bool		epoch_changed;
	bool		drifted;
	bool		other_policy;	/* the VM is known to run another policy */
	int64		proof_age;		/* seconds; -1: unknown */
	int64		proof_max_age;	/* seconds; 0: no limit */
} LockdownEvidence;

/* "<sprite id>:<policy hash>"; NULL when either is NULL or empty. */
extern char *lockdown_token_make(const char *sprite_id, const char *policy_hash);
/* Splits a token at its last colon: an id may hold one.  False if it is none. */
extern bool lockdown_token_split(const char *token, char **sprite_id, char **policy_hash);
/*
 * Whether to push, from the tokens alone: true for a fresh VM, on anything
 * unknown (NULL or empty), and when they differ.
 */
extern bool lockdown_should_apply(bool fresh, const char *applied_token,
								  const char *desired_token);

/* The first reason that holds.  Anything unknown counts against the proof. */
extern LockdownReason lockdown_decide(const LockdownEvidence *evidence);
/* The reason as it stands in a handle. */
extern const char *lockdown_reason_name(LockdownReason reason);

/* True for every reason but LOCKDOWN_PROVEN. */
extern bool lockdown_reason_applies(LockdownReason reason);

#endif							/* SPRITE_PROOF_H */
