/*
 * lockdown.h
 *	  The order in which a hand-back happens.  No other room knows it.
 *
 * Functions raise what the platform refuses with the SQLSTATE of
 * api_result.h, and SP007 when a lockdown could not be confirmed.
 */
#ifndef SPRITE_LOCKDOWN_ORDER_H
#define SPRITE_LOCKDOWN_ORDER_H

#include "endpoint.h"
#include "journal.h"
#include "policy.h"
#include "proof.h"
#include "sessions.h"
#include "sprites_api.h"

/* What is asked for.  All of it has been checked. */
typedef struct LockdownCall
{
	Endpoint   *endpoint;
	const OwnedTable *sessions;
	const OwnedTable *journal;
	const char *name;
	const char *session_key;	/* NULL: no session row */
	const char *applied_token;	/* without a session row: the caller's claim */
	const Policy *policy;
	const char *policy_hash;
	const SpriteConfig *config; /* NULL: the platform's defaults */
} LockdownCall;

typedef struct LockdownResult
{
	Sprite		sprite;
	bool		fresh;			/* this call created the VM */
	LockdownReason reason;
	char	   *token;			/* NULL: nothing can be proven of this VM */
} LockdownResult;

/*
 * Finds or creates the Sprite, pushes the policy unless it is proven for that
 * very VM instance, and records the proof.  Returns only when the VM runs the
 * policy; otherwise a Sprite that this call created is destroyed again.
 */
extern void lockdown_hand_back(const LockdownCall *call, LockdownResult *result);

/*
 * What lockdown_hand_back() would do now, without doing it: no lock, no
 * effect.  False when the Sprite does not exist.
 */
extern bool lockdown_plan(const LockdownCall *call, LockdownResult *result);

/* Looks the Sprite up by name.  False when it does not exist. */
extern bool lockdown_attach(Endpoint *endpoint, const char *name, Sprite *sprite);

/* Deletes the VM and its session rows.  False when it was already gone. */
extern bool lockdown_destroy(Endpoint *endpoint, const OwnedTable *sessions,
							 const OwnedTable *journal, const char *name);

#endif							/* SPRITE_LOCKDOWN_ORDER_H */
