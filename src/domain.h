/*
 * domain.h
 *	  Domain patterns of network policies.  Pure; text is UTF-8.
 */
#ifndef SPRITE_DOMAIN_H
#define SPRITE_DOMAIN_H

/* In the order in which a built policy denies them. */
extern const char *const internal_surface[];
extern const int internal_surface_len;

/* True for "*.base". */
extern bool domain_is_wildcard(const char *pattern);

/*
 * What is wrong with a pattern in a rule (a host, "*.base" or "*"), as a phrase
 * that follows "the domain", or NULL.  One label is enough, and labels may
 * hold underscores: the internal surface needs both.
 */
extern const char *domain_problem(const char *pattern);

/* True if name is zone or ends with a dot and zone. */
extern bool domain_is_within(const char *name, const char *zone);

/*
 * True if a pattern is inside the internal surface or, as a wildcard, above a
 * part of it.  "*" is not looked at: it is above everything.
 */
extern bool domain_overlaps_internal(const char *pattern);

/* An allowlist entry in canonical form, or NULL when it does not survive. */
extern char *domain_sanitize(const char *entry);

#endif							/* SPRITE_DOMAIN_H */
