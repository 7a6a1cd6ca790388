/*
 * policy.h
 *	  Network policies: canonical form, hash, construction, problems.
 *
 * Pure: no database, no network, nothing raised.  All text is UTF-8 and
 * NUL-terminated; results are allocated with palloc.
 */
#ifndef SPRITE_POLICY_H
#define SPRITE_POLICY_H

typedef struct PolicyMember
{
	char	   *key;
	char	   *value;
} PolicyMember;

typedef struct PolicyRule
{
	int			nmembers;
	PolicyMember *members;
} PolicyRule;

typedef struct Policy
{
	int			nrules;
	PolicyRule *rules;
	int			nunknown;
	char	  **unknown;		/* keys beside "rules" */
} Policy;

typedef enum PolicySeverity
{
	POLICY_ERROR,				/* its meaning is undefined or depends on order */
	POLICY_WARNING				/* its meaning may not be what was meant */
} PolicySeverity;

typedef struct PolicyProblem
{
	int			rule;			/* from 1; 0: the policy as a whole */
	PolicySeverity severity;
	const char *code;			/* stable, snake_case */
	char	   *message;
} PolicyProblem;

typedef struct PolicyProblems
{
	int			n;
	PolicyProblem *items;		/* by rule */
	int			allocated;
} PolicyProblems;

/* Hex digits of SHA3-256. */
#define POLICY_HASH_LEN 64

/*
 * The canonical form: each rule as a JSON array of its [key, value] pairs sorted
 * by key, the lines sorted by UTF-16 code units and joined by newlines.  Equal
 * for policies that differ only in the order of rules or keys.
 */
extern char *policy_canonical(const Policy *policy, size_t *len);

/*
 * SHA3-256 of the canonical form in lower-case hex; "" hashes for no rules.
 * False when this OpenSSL cannot compute it.
 */
extern bool policy_hash(const Policy *policy, char hash[POLICY_HASH_LEN + 1]);

/* True if the policies are equal as sets: neither order nor repetition counts. */
extern bool policy_same_rules(const Policy *a, const Policy *b);

/* All that is wrong with a policy, errors and warnings, ordered by rule. */
extern PolicyProblems *policy_problems(const Policy *policy);

/*
 * An allowlist entry as it goes into a policy: trimmed and lower-cased as
 * JavaScript does.  NULL if it is no host of two labels or more, no "*." before
 * one, or overlaps the platform's internal surface.
 */
extern char *policy_sanitize_entry(const char *entry);

/* The entries that survive, in order, each once.  NULL entries do not. */
extern char **policy_sanitize(char **entries, int n, int *nkept);

/* The policy for an allowlist (unsanitized), or for the open mode. */
extern Policy *policy_build(bool open, char **entries, int n);

#endif							/* SPRITE_POLICY_H */
