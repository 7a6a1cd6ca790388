/*
 * policy_sql.h
 *	  The SQL face of the pure rooms.
 */
#ifndef SPRITE_POLICY_SQL_H
#define SPRITE_POLICY_SQL_H

#include "utils/jsonb.h"

#include "policy.h"

/*
 * Reads a policy; its text becomes UTF-8.  22023, naming the rule, unless it is
 * an object with an array "rules" of objects whose values are all strings.
 */
extern Policy *policy_from_jsonb(Jsonb *value);

#endif							/* SPRITE_POLICY_SQL_H */
