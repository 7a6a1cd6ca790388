/*
 * policy.c
 *	  Network policies: canonical form, hash, construction, problems.
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include <openssl/evp.h>

#include "lib/stringinfo.h"

#include "domain.h"
#include "policy.h"

#define HASH_BYTES	(POLICY_HASH_LEN / 2)
/* First guess at the size of a message. */
#define MESSAGE_BYTES 128
/* Warned about when allowed: in-VM code reaches the connector gateway there. */
#define PLATFORM_API_HOST "api.sprites.dev"

typedef struct Line
{
	char	   *text;
	size_t		len;
} Line;

/* ------------------------------------------------------------------------
 * Canonical form
 * ------------------------------------------------------------------------
 */

/*
 * The weight of a UTF-8 byte when strings are to sort by UTF-16 code units.
 * The orders differ only above U+FFFF, whose surrogates sort before U+E000:
 * the lead bytes 0xEE and 0xEF of U+E000 to U+FFFF go behind those of four-byte
 * sequences.  No two bytes weigh the same, so only equal strings compare equal.
 */
static inline int
utf16_weight(unsigned char byte)
{
	return byte == 0xEE || byte == 0xEF ? byte + 0x100 : byte;
}

static int
compare_utf16(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t		common = Min(a_len, b_len);

	for (size_t i = 0; i < common; i++)
	{
		if (a[i] != b[i])
			return utf16_weight((unsigned char) a[i]) - utf16_weight((unsigned char) b[i]);
	}
	return a_len < b_len ? -1 : a_len > b_len;
}

static int
compare_lines(const void *a, const void *b)
{
	const Line *x = a;
	const Line *y = b;

	return compare_utf16(x->text, x->len, y->text, y->len);
}

static int
compare_members(const void *a, const void *b)
{
	const PolicyMember *x = a;
	const PolicyMember *y = b;

	return compare_utf16(x->key, strlen(x->key), y->key, strlen(y->key));
}

/* Escapes as ECMAScript's JSON.stringify does; text beyond ASCII stays raw. */
static void
append_json_string(StringInfo out, const char *text)
{
	appendStringInfoChar(out, '"');
	for (; *text != '\0'; text++)
	{
		static const char shorts[] = "\b\f\n\r\t\"\\";
		static const char letters[] = "bfnrt\"\\";
		const char *found = strchr(shorts, *text);

		if (found != NULL)
		{
			appendStringInfoChar(out, '\\');
			appendStringInfoChar(out, letters[found - shorts]);
		}
		else if ((unsigned char) *text < 0x20)
			appendStringInfo(out, "\\u%04x", (unsigned char) *text);
		else
			appendStringInfoChar(out, *text);
	}
	appendStringInfoChar(out, '"');
}

static void
append_rule(StringInfo out, const PolicyRule *rule)
{
	PolicyMember *sorted = palloc(sizeof(PolicyMember) * Max(rule->nmembers, 1));

	if (rule->nmembers > 0)
		memcpy(sorted, rule->members, sizeof(PolicyMember) * rule->nmembers);
	qsort(sorted, rule->nmembers, sizeof(PolicyMember), compare_members);

	appendStringInfoChar(out, '[');
	for (int i = 0; i < rule->nmembers; i++)
	{
		appendStringInfoString(out, i == 0 ? "[" : ",[");
		append_json_string(out, sorted[i].key);
		appendStringInfoChar(out, ',');
		append_json_string(out, sorted[i].value);
		appendStringInfoChar(out, ']');
	}
	appendStringInfoChar(out, ']');
	pfree(sorted);
}

/* The lines share one buffer: a policy may have a hundred thousand rules. */
static Line *
sorted_lines(const Policy *policy, char **buffer)
{
	Line	   *lines = palloc(sizeof(Line) * Max(policy->nrules, 1));
	StringInfoData text;
	size_t		start = 0;

	initStringInfo(&text);
	for (int i = 0; i < policy->nrules; i++)
	{
		append_rule(&text, &policy->rules[i]);
		lines[i].len = text.len - start;
		start = text.len;
	}

	/* the buffer has moved while it grew, so pointers into it come last */
	start = 0;
	for (int i = 0; i < policy->nrules; i++)
	{
		lines[i].text = text.data + start;
		start += lines[i].len;
	}
	qsort(lines, policy->nrules, sizeof(Line), compare_lines);
	*buffer = text.data;
	return lines;
}

char *
policy_canonical(const Policy *policy, size_t *len)
{
	char	   *buffer;
	Line	   *lines = sorted_lines(policy, &buffer);
	StringInfoData out;

	initStringInfo(&out);
	for (int i = 0; i < policy->nrules; i++)
	{
		if (i > 0)
			appendStringInfoChar(&out, '\n');
		appendBinaryStringInfo(&out, lines[i].text, (int) lines[i].len);
	}
	pfree(lines);
	pfree(buffer);
	*len = out.len;
	return out.data;
}

bool
policy_hash(const Policy *policy, char hash[POLICY_HASH_LEN + 1])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char raw[EVP_MAX_MD_SIZE];
	unsigned int raw_len = 0;
	size_t		len;
	char	   *canonical = policy_canonical(policy, &len);
	bool		computed = EVP_Digest(canonical, len, raw, &raw_len, EVP_sha3_256(), NULL) == 1;

	pfree(canonical);
	if (!computed || raw_len != HASH_BYTES)
		return false;
	for (int i = 0; i < HASH_BYTES; i++)
	{
		*hash++ = digits[raw[i] >> 4];
		*hash++ = digits[raw[i] & 0x0F];
	}
	*hash = '\0';
	return true;
}

/* The index of the first line after i that differs from it. */
static int
next_distinct(const Line *lines, int n, int i)
{
	int			next = i + 1;

	while (next < n && compare_lines(&lines[next], &lines[i]) == 0)
		next++;
	return next;
}

bool
policy_same_rules(const Policy *a, const Policy *b)
{
	char	   *x_buffer;
	char	   *y_buffer;
	Line	   *x = sorted_lines(a, &x_buffer);
	Line	   *y = sorted_lines(b, &y_buffer);
	int			i = 0;
	int			j = 0;

	while (i < a->nrules && j < b->nrules && compare_lines(&x[i], &y[j]) == 0)
	{
		i = next_distinct(x, a->nrules, i);
		j = next_distinct(y, b->nrules, j);
	}
	pfree(x_buffer);
	pfree(y_buffer);
	pfree(x);
	pfree(y);
	return i == a->nrules && j == b->nrules;
}

/* ------------------------------------------------------------------------
 * Construction
 * ------------------------------------------------------------------------
 */

typedef struct Entry
{
	char	   *text;
	int			position;
} Entry;

static int
compare_entries(const void *a, const void *b)
{
	const Entry *x = a;
	const Entry *y = b;
	int			order = strcmp(x->text, y->text);

	return order != 0 ? order : x->position - y->position;
}

static int
compare_positions(const void *a, const void *b)
{
	return ((const Entry *) a)->position - ((const Entry *) b)->position;
}

char *
policy_sanitize_entry(const char *entry)
{
	return domain_sanitize(entry);
}

char **
policy_sanitize(char **entries, int n, int *nkept)
{
	Entry	   *survivors = palloc(sizeof(Entry) * Max(n, 1));
	char	  **kept = palloc(sizeof(char *) * Max(n, 1));
	int			nsurvivors = 0;
	int			nunique = 0;

	for (int i = 0; i < n; i++)
	{
		char	   *text = entries[i] ? domain_sanitize(entries[i]) : NULL;

		if (text != NULL)
			survivors[nsurvivors++] = (Entry) {.text = text, .position = i};
	}

	/* sorted, the first of equal entries is the one that came first */
	qsort(survivors, nsurvivors, sizeof(Entry), compare_entries);
	for (int i = 0; i < nsurvivors; i++)
	{
		if (i == 0 || strcmp(survivors[i].text, survivors[nunique - 1].text) != 0)
			survivors[nunique++] = survivors[i];
	}
	qsort(survivors, nunique, sizeof(Entry), compare_positions);
	for (int i = 0; i < nunique; i++)
		kept[i] = survivors[i].text;
	pfree(survivors);
	*nkept = nunique;
	return kept;
}

static void
add_rule(Policy *policy, const char *domain, const char *action)
{
	PolicyRule *rule = &policy->rules[policy->nrules++];

	rule->nmembers = 2;
	rule->members = palloc(sizeof(PolicyMember) * 2);
	rule->members[0] = (PolicyMember) {.key = pstrdup("domain"), .value = pstrdup(domain)};
	rule->members[1] = (PolicyMember) {.key = pstrdup("action"), .value = pstrdup(action)};
}

static void
deny_internal_surface(Policy *policy)
{
	for (int i = 0; i < internal_surface_len; i++)
		add_rule(policy, internal_surface[i], "deny");
}

Policy *
policy_build(bool open, char **entries, int n)
{
	Policy	   *policy = palloc0(sizeof(Policy));
	int			nkept = 0;
	char	  **kept = open ? NULL : policy_sanitize(entries, n, &nkept);

	policy->rules = palloc0(sizeof(PolicyRule) * (internal_surface_len + nkept + 1));
	if (open)
	{
		deny_internal_surface(policy);
		add_rule(policy, "*", "allow");
		return policy;
	}
	if (nkept > 0)
		deny_internal_surface(policy);
	for (int i = 0; i < nkept; i++)
		add_rule(policy, kept[i], "allow");
	add_rule(policy, "*", "deny");
	return policy;
}

/* ------------------------------------------------------------------------
 * Problems
 * ------------------------------------------------------------------------
 */

/* A rule that is sound by itself, as it is compared with the others. */
typedef struct Subject
{
	const char *domain;			/* or the preset, for an include */
	const char *action;			/* NULL for an include */
	int			rule;
} Subject;

static void pg_attribute_printf(5, 6)
add_problem(PolicyProblems *problems, int rule, PolicySeverity severity,
			const char *code, const char *format,...)
{
	PolicyProblem *problem;
	size_t		size = MESSAGE_BYTES;
	char	   *message;

	for (;;)
	{
		va_list		args;
		size_t		needed;

		message = palloc(size);
		va_start(args, format);
		needed = pvsnprintf(message, size, format, args);
		va_end(args);
		if (needed < size)
			break;
		pfree(message);
		size = needed;
	}

	if (problems->n == problems->allocated)
	{
		problems->allocated *= 2;
		problems->items = repalloc(problems->items,
								   sizeof(PolicyProblem) * problems->allocated);
	}
	problem = &problems->items[problems->n++];
	problem->rule = rule;
	problem->severity = severity;
	problem->code = code;
	problem->message = message;
}

static const char *
member_value(const PolicyRule *rule, const char *key)
{
	for (int i = 0; i < rule->nmembers; i++)
	{
		if (strcmp(rule->members[i].key, key) == 0)
			return rule->members[i].value;
	}
	return NULL;
}

static bool
check_keys(PolicyProblems *problems, const PolicyRule *rule, int number)
{
	bool		known = true;

	for (int i = 0; i < rule->nmembers; i++)
	{
		const char *key = rule->members[i].key;

		if (strcmp(key, "domain") == 0 || strcmp(key, "action") == 0 || strcmp(key, "include") == 0)
			continue;
		add_problem(problems, number, POLICY_ERROR, "unknown_key",
					"the key \"%s\" is unknown", key);
		known = false;
	}
	return known;
}

/* An include stands alone.  Its rules are the platform's, to change at will. */
static bool
check_include(PolicyProblems *problems, const PolicyRule *rule, int number,
			  const char *include)
{
	if (member_value(rule, "domain") != NULL || member_value(rule, "action") != NULL)
		add_problem(problems, number, POLICY_ERROR, "include_with_domain",
					"\"include\" and \"domain\" or \"action\" exclude each other");
	else if (include[0] == '\0')
		add_problem(problems, number, POLICY_ERROR, "empty_include",
					"\"include\" names no preset");
	else
	{
		add_problem(problems, number, POLICY_WARNING, "include",
					"the contents of the preset \"%s\" can change without notice", include);
		return true;
	}
	return false;
}

static void
warn_about_allow(PolicyProblems *problems, const char *domain, int number)
{
	if (strcmp(domain, "*") == 0)
		return;
	if (domain_overlaps_internal(domain))
		add_problem(problems, number, POLICY_WARNING, "allows_internal",
					"\"%s\" allows a part of the platform's internal surface", domain);
	if (domain_is_wildcard(domain) ? domain_is_within(PLATFORM_API_HOST, domain + 2) :
		strcmp(domain, PLATFORM_API_HOST) == 0)
		add_problem(problems, number, POLICY_WARNING, "allows_platform_api",
					"\"%s\" allows the platform's own API, and so an exit that no rule shows", domain);
}

static bool
check_domain_rule(PolicyProblems *problems, const PolicyRule *rule, int number)
{
	const char *domain = member_value(rule, "domain");
	const char *action = member_value(rule, "action");
	const char *problem = domain ? domain_problem(domain) : NULL;
	int			before = problems->n;

	if (domain == NULL)
		add_problem(problems, number, POLICY_ERROR, "missing_domain", "there is no \"domain\"");
	else if (problem != NULL)
		add_problem(problems, number, POLICY_ERROR, "invalid_domain",
					"the domain \"%s\" %s", domain, problem);
	if (action == NULL)
		add_problem(problems, number, POLICY_ERROR, "missing_action", "there is no \"action\"");
	else if (strcmp(action, "allow") != 0 && strcmp(action, "deny") != 0)
		add_problem(problems, number, POLICY_ERROR, "unknown_action",
					"the action \"%s\" is neither \"allow\" nor \"deny\"", action);
	if (domain == NULL || action == NULL || problems->n > before)
		return false;
	if (strcmp(action, "allow") == 0)
		warn_about_allow(problems, domain, number);
	return true;
}

/* True if the rule can be compared with the others. */
static bool
check_rule(PolicyProblems *problems, const PolicyRule *rule, int number, Subject *subject)
{
	const char *include = member_value(rule, "include");

	subject->rule = number;
	subject->domain = include ? include : member_value(rule, "domain");
	subject->action = include ? NULL : member_value(rule, "action");
	if (rule->nmembers == 0)
	{
		add_problem(problems, number, POLICY_ERROR, "empty_rule", "the rule is empty");
		return false;
	}
	if (!check_keys(problems, rule, number))
		return false;
	return include ? check_include(problems, rule, number, include) :
		check_domain_rule(problems, rule, number);
}

/* Includes apart, by domain, then in the order of the policy. */
static int
compare_subjects(const void *a, const void *b)
{
	const Subject *x = a;
	const Subject *y = b;
	int			order = (x->action == NULL) - (y->action == NULL);

	if (order == 0)
		order = strcmp(x->domain, y->domain);
	return order != 0 ? order : x->rule - y->rule;
}

static bool
same_subject(const Subject *a, const Subject *b)
{
	return (a->action == NULL) == (b->action == NULL) && strcmp(a->domain, b->domain) == 0;
}

/* Rules for one domain stand side by side; each is held against the first. */
static void
check_repetitions(PolicyProblems *problems, const Subject *subjects, int n)
{
	int			first = 0;

	for (int i = 1; i < n; i++)
	{
		if (!same_subject(&subjects[first], &subjects[i]))
			first = i;
		else if (subjects[i].action != NULL &&
				 strcmp(subjects[first].action, subjects[i].action) != 0)
			add_problem(problems, subjects[i].rule, POLICY_ERROR, "conflicting_actions",
						"the domain \"%s\" has another action in rule %d",
						subjects[i].domain, subjects[first].rule);
		else
			add_problem(problems, subjects[i].rule, POLICY_WARNING, "duplicate_rule",
						"the rule repeats rule %d", subjects[first].rule);
	}
}

/* The first rule for a domain, or NULL. */
static const Subject *
find_domain(const Subject *subjects, int n, const char *domain)
{
	int			low = 0;
	int			high = n;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (subjects[middle].action != NULL && strcmp(subjects[middle].domain, domain) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < n && subjects[low].action != NULL && strcmp(subjects[low].domain, domain) == 0)
		return &subjects[low];
	return NULL;
}

/* A wildcard among the others, which it may lie within. */
typedef struct Nested
{
	const Subject *subject;
	const char *base;			/* what follows "*." */
	int			above;			/* index of the nearest that it lies within, or -1 */
	int			opposite;		/* of the nearest with another action, or -1 */
} Nested;

/*
 * Orders bases from their last byte on, a dot before all else, so that a base is
 * followed at once by all those below it.
 */
static int
compare_bases(const void *a, const void *b)
{
	const Nested *x = a;
	const Nested *y = b;
	size_t		x_len = strlen(x->base);
	size_t		y_len = strlen(y->base);

	while (x_len > 0 && y_len > 0)
	{
		char		x_byte = x->base[--x_len];
		char		y_byte = y->base[--y_len];

		if (x_byte != y_byte)
			return x_byte == '.' ? -1 : y_byte == '.' ? 1 : x_byte - y_byte;
	}
	return (x_len > 0) - (y_len > 0);
}

/* Each wildcard once, in the order of compare_bases(). */
static Nested *
sorted_wildcards(const Subject *subjects, int n, int *nwildcards)
{
	Nested	   *wildcards = palloc(sizeof(Nested) * Max(n, 1));
	int			count = 0;

	for (int i = 0; i < n; i++)
	{
		if (subjects[i].action == NULL || !domain_is_wildcard(subjects[i].domain))
			continue;
		if (i > 0 && same_subject(&subjects[i - 1], &subjects[i]))
			continue;
		wildcards[count].subject = &subjects[i];
		wildcards[count++].base = subjects[i].domain + 2;
	}
	qsort(wildcards, count, sizeof(Nested), compare_bases);
	*nwildcards = count;
	return wildcards;
}

/*
 * Which of two nested wildcards wins is not defined by the platform, so they
 * must agree.  "*" is defined: it yields to everything.  The nearest that does
 * not agree stands for all of them, as a hundred may lie above every rule.
 */
static void
check_nesting(PolicyProblems *problems, const Subject *subjects, int n)
{
	int			count;
	Nested	   *wildcards = sorted_wildcards(subjects, n, &count);

	for (int i = 0; i < count; i++)
	{
		Nested	   *inner = &wildcards[i];
		int			above = i - 1;

		while (above >= 0 && !domain_is_within(inner->base, wildcards[above].base))
			above = wildcards[above].above;
		inner->above = above;
		if (above >= 0 && strcmp(wildcards[above].subject->action, inner->subject->action) == 0)
			inner->opposite = wildcards[above].opposite;
		else
			inner->opposite = above;
		if (inner->opposite >= 0)
		{
			const Subject *outer = wildcards[inner->opposite].subject;

			add_problem(problems, inner->subject->rule, POLICY_ERROR, "nested_wildcards",
						"\"%s\" lies within \"%s\" of rule %d, which has another action",
						inner->subject->domain, outer->domain, outer->rule);
		}
	}
	pfree(wildcards);
}

static int
compare_problems(const void *a, const void *b)
{
	const PolicyProblem *x = a;
	const PolicyProblem *y = b;

	if (x->rule != y->rule)
		return x->rule < y->rule ? -1 : 1;
	if (x->severity != y->severity)
		return x->severity < y->severity ? -1 : 1;
	return strcmp(x->code, y->code) != 0 ? strcmp(x->code, y->code) : strcmp(x->message, y->message);
}

static void
check_whole(PolicyProblems *problems, const Policy *policy, const Subject *subjects, int n)
{
	for (int i = 0; i < policy->nunknown; i++)
		add_problem(problems, 0, POLICY_ERROR, "unknown_key",
					"the key \"%s\" beside \"rules\" is unknown", policy->unknown[i]);
	if (policy->nrules == 0)
		add_problem(problems, 0, POLICY_ERROR, "no_rules",
					"there are no rules, which the platform takes for no restriction at all");
	else if (find_domain(subjects, n, "*") == NULL)
		add_problem(problems, 0, POLICY_ERROR, "no_catch_all",
					"there is no rule for \"*\", and what then becomes of other names is not defined");
}

PolicyProblems *
policy_problems(const Policy *policy)
{
	PolicyProblems *problems = palloc0(sizeof(PolicyProblems));
	Subject    *subjects = palloc(sizeof(Subject) * Max(policy->nrules, 1));
	int			n = 0;

	problems->allocated = 8;
	problems->items = palloc(sizeof(PolicyProblem) * problems->allocated);
	for (int i = 0; i < policy->nrules; i++)
	{
		if (check_rule(problems, &policy->rules[i], i + 1, &subjects[n]))
			n++;
	}
	qsort(subjects, n, sizeof(Subject), compare_subjects);
	check_whole(problems, policy, subjects, n);
	check_repetitions(problems, subjects, n);
	check_nesting(problems, subjects, n);
	qsort(problems->items, problems->n, sizeof(PolicyProblem), compare_problems);
	pfree(subjects);
	return problems;
}
