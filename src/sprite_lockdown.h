/*
 * sprite_lockdown.h
 *	  The module's settings.  Every room may read them; only the module entry
 *	  defines them.
 */
#ifndef SPRITE_LOCKDOWN_H
#define SPRITE_LOCKDOWN_H

/* What a push is followed by before it counts as done. */
typedef enum VerifyPush
{
	VERIFY_PUSH_OFF,			/* the platform's 2xx is believed */
	VERIFY_PUSH_IDENTITY,		/* the id must be unchanged */
	VERIFY_PUSH_POLICY			/* and the policy, read back, must be equal */
} VerifyPush;

/* What becomes of a policy in which policy_problems() finds an error. */
typedef enum PolicyCheck
{
	POLICY_CHECK_STRICT,		/* refused before any request */
	POLICY_CHECK_WARN			/* pushed all the same, with a warning */
} PolicyCheck;

extern int	sprite_connect_timeout; /* ms, resolve + connect + TLS */
extern int	sprite_request_timeout; /* ms, one request */
extern int	sprite_call_timeout;	/* ms, all requests of one SQL call */
extern int	sprite_max_attempts;	/* tries of a step */
extern int	sprite_proof_max_age;	/* s; 0: no limit */
extern int	sprite_verify_push; /* VerifyPush */
extern int	sprite_policy_check;	/* PolicyCheck */
extern int	sprite_max_response_bytes;

#endif							/* SPRITE_LOCKDOWN_H */
