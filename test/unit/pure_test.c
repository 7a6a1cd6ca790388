/*
 * pure_test.c
 *	  Unit tests of the rooms that need no server: the decision in full, and the
 *	  corners of canonical form and construction that SQL does not reach.
 *
 *	  With arguments it becomes an argument vector instead, for argv_test.sh.
 */
#include "postgres_fe.h"

#include <unistd.h>

#include "argv.h"
#include "policy.h"
#include "proof.h"

static int	tests = 0;
static int	failures = 0;

static void
ok(bool passed, const char *what)
{
	tests++;
	failures += !passed;
	printf("%sok %d - %s\n", passed ? "" : "not ", tests, what);
}

/*
 * The table of reasons, written as data: the first row that holds is the one to
 * be reported.  It is held against lockdown_decide() for every combination.
 */
typedef struct Facts
{
	bool		fresh;
	int			id;				/* 0: NULL, 1: "", 2: the recorded one, 3: another */
	int			token;			/* 0: NULL, 1: "", 2: no token at all, 3: good, 4: other hash */
	bool		in_doubt;
	bool		epoch_changed;
	bool		drifted;
	bool		other_policy;
	int			age;			/* 0: unknown, 1: young, 2: at the limit, 3: over it */
	bool		limited;
} Facts;

static LockdownReason
expected_reason(const Facts *facts)
{
	if (facts->fresh)
		return LOCKDOWN_FRESH;
	if (facts->id < 2)
		return LOCKDOWN_NO_IDENTITY;
	if (facts->token < 3)
		return LOCKDOWN_NO_PROOF;
	if (facts->id == 3)
		return LOCKDOWN_REPLACED;
	if (facts->token == 4 || facts->other_policy)
		return LOCKDOWN_POLICY_CHANGED;
	if (facts->in_doubt)
		return LOCKDOWN_IN_DOUBT;
	if (facts->epoch_changed)
		return LOCKDOWN_EPOCH_CHANGED;
	if (facts->limited && (facts->age == 0 || facts->age == 3))
		return LOCKDOWN_EXPIRED;
	if (facts->drifted)
		return LOCKDOWN_DRIFTED;
	return LOCKDOWN_PROVEN;
}

static LockdownReason
decided_reason(const Facts *facts)
{
	static const char *const ids[] = {NULL, "", "vm:1", "vm:2"};
	static const char *const tokens[] = {NULL, "", "nonsense", "vm:1:aa", "vm:1:bb"};
	static const int64 ages[] = {-1, 0, 60, 61};
	LockdownEvidence evidence = {
		.fresh = facts->fresh,
		.sprite_id = ids[facts->id],
		.policy_hash = "aa",
		.recorded_token = tokens[facts->token],
		.in_doubt = facts->in_doubt,
		.epoch_changed = facts->epoch_changed,
		.drifted = facts->drifted,
		.other_policy = facts->other_policy,
		.proof_age = ages[facts->age],
		.proof_max_age = facts->limited ? 60 : 0
	};

	return lockdown_decide(&evidence);
}

static void
test_decision(void)
{
	int			wrong = 0;
	int			total = 0;
	int			seen[LOCKDOWN_PROVEN + 1] = {0};

	for (int bits = 0; bits < 64; bits++)
		for (int id = 0; id < 4; id++)
			for (int token = 0; token < 5; token++)
				for (int age = 0; age < 4; age++)
				{
					Facts		facts = {
						.fresh = bits & 1, .id = id, .token = token,
						.in_doubt = bits & 2, .epoch_changed = bits & 4,
						.drifted = bits & 8, .other_policy = bits & 16,
						.age = age, .limited = bits & 32
					};
					LockdownReason reason = decided_reason(&facts);

					total++;
					seen[reason]++;
					wrong += reason != expected_reason(&facts);
				}
	printf("# %d combinations\n", total);
	ok(wrong == 0, "the first reason of the table that holds is reported");
	for (int reason = 0; reason <= LOCKDOWN_PROVEN; reason++)
		ok(seen[reason] > 0, lockdown_reason_name(reason));
	ok(!lockdown_reason_applies(LOCKDOWN_PROVEN), "a proven policy is not pushed");
	wrong = 0;
	for (int reason = 0; reason < LOCKDOWN_PROVEN; reason++)
		wrong += !lockdown_reason_applies(reason);
	ok(wrong == 0, "for every other reason it is");
}

static void
test_decision_without_hash(void)
{
	LockdownEvidence evidence = {.sprite_id = "vm1", .recorded_token = "vm1:", .policy_hash = ""};

	ok(lockdown_decide(&evidence) == LOCKDOWN_NO_PROOF, "a token without a hash is no token");
	evidence.recorded_token = ":aa";
	ok(lockdown_decide(&evidence) == LOCKDOWN_NO_PROOF, "a token without an id is no token");
	evidence.recorded_token = "vm1:aa";
	ok(lockdown_decide(&evidence) == LOCKDOWN_POLICY_CHANGED, "an unknown hash equals none");
	evidence.policy_hash = NULL;
	ok(lockdown_decide(&evidence) == LOCKDOWN_POLICY_CHANGED, "nor does a missing one");
}

static void
test_tokens(void)
{
	char	   *id;
	char	   *hash;

	ok(lockdown_token_split("a:b:c", &id, &hash) && strcmp(id, "a:b") == 0 && strcmp(hash, "c") == 0,
	   "a token splits at its last colon");
	ok(!lockdown_token_split(NULL, &id, &hash) && !lockdown_token_split("", &id, &hash) &&
	   !lockdown_token_split("abc", &id, &hash) && !lockdown_token_split(":", &id, &hash),
	   "what is no token does not split");
}

static PolicyRule
rule(const char *domain, const char *action)
{
	PolicyRule	made = {.nmembers = 2, .members = palloc(sizeof(PolicyMember) * 2)};

	made.members[0] = (PolicyMember) {.key = pstrdup("domain"), .value = pstrdup(domain)};
	made.members[1] = (PolicyMember) {.key = pstrdup("action"), .value = pstrdup(action)};
	return made;
}

static void
test_canonical(void)
{
	/* U+FF21, U+1F600 and U+E000: by UTF-16 code units the emoji comes first */
	PolicyRule	rules[] = {rule("\357\274\241", "deny"), rule("\356\200\200", "deny"),
	rule("\360\237\230\200", "deny")};
	Policy		policy = {.nrules = 3, .rules = rules};
	size_t		len;
	char	   *text = policy_canonical(&policy, &len);
	char	   *emoji = strstr(text, "\360\237\230\200");

	ok(emoji < strstr(text, "\356\200\200") && emoji < strstr(text, "\357\274\241"),
	   "lines sort by UTF-16 code units");
	ok(strlen(text) == len, "the length is that of the text");

	rules[0] = rule("\001\037\177\b\f\n\r\t\"\\/", "deny");
	policy.nrules = 1;
	text = policy_canonical(&policy, &len);
	ok(strcmp(text, "[[\"action\",\"deny\"],[\"domain\",\"\\u0001\\u001f\177\\b\\f\\n\\r\\t\\\"\\\\/\"]]") == 0,
	   "strings are escaped as JSON.stringify does");
}

static void
test_sets(void)
{
	PolicyRule	ab[] = {rule("a", "deny"), rule("b", "deny")};
	PolicyRule	baa[] = {rule("b", "deny"), rule("a", "deny"), rule("a", "deny")};
	PolicyRule	ac[] = {rule("a", "deny"), rule("c", "deny")};
	Policy		x = {.nrules = 2, .rules = ab};
	Policy		y = {.nrules = 3, .rules = baa};
	Policy		z = {.nrules = 2, .rules = ac};
	Policy		none = {0};
	Policy		part = {.nrules = 1, .rules = ab};

	ok(policy_same_rules(&x, &y) && policy_same_rules(&y, &x), "sets differ neither by order nor by repetition");
	ok(!policy_same_rules(&x, &z), "another rule makes another set");
	ok(!policy_same_rules(&x, &part) && !policy_same_rules(&part, &x), "so does a missing one");
	ok(!policy_same_rules(&x, &none) && policy_same_rules(&none, &none), "no rules equal no rules only");

	ab[0] = rule("\356", "deny");
	ac[0] = rule("\376", "deny");
	z.nrules = part.nrules = 1;
	ok(!policy_same_rules(&part, &z), "other bytes make other rules, even those that are no UTF-8");
}

static void
test_size(void)
{
	int			n = 100000;
	Policy		policy = {.nrules = n, .rules = palloc(sizeof(PolicyRule) * n)};
	char		hash[POLICY_HASH_LEN + 1];

	for (int i = 0; i < n; i++)
		policy.rules[i] = rule(psprintf("*.a%d.example", (i * 7919) % n), i % 2 ? "allow" : "deny");
	ok(policy_hash(&policy, hash) && strlen(hash) == POLICY_HASH_LEN, "100,000 rules hash");
	ok(policy_problems(&policy)->n == 1, "and are checked");
}

/* The rule that a problem is in, or -1 if there are not as many problems. */
static int
nesting_problem(PolicyRule *rules, int n, int expected, int which)
{
	Policy		policy = {.nrules = n, .rules = rules};
	PolicyProblems *problems = policy_problems(&policy);

	if (problems->n != expected || strcmp(problems->items[which].code, "nested_wildcards") != 0)
		return -1;
	return problems->items[which].rule;
}

static void
test_nesting(void)
{
	PolicyRule	beside[] = {rule("*", "deny"), rule("*.b.c", "allow"), rule("*.b-a.c", "deny"),
		rule("*.ab.c", "deny"), rule("*.b", "deny"), rule("*.b.c.d", "deny")};
	PolicyRule	passed_on[] = {rule("*.x.b.c", "allow"), rule("*.c", "deny"), rule("*.b.c", "allow"),
		rule("*.b-b.c", "deny"), rule("*", "deny")};
	PolicyRule	skipped[] = {rule("*.d", "allow"), rule("*.c.d", "deny"), rule("*.b.c.d", "allow"),
		rule("*.a.b.c.d", "allow"), rule("*", "deny")};
	PolicyRule	between[] = {rule("*.b.c", "allow"), rule("*.x-b.c", "allow"), rule("*.x.b.c", "deny"), rule("*", "deny")};
	PolicyRule *deep = palloc(sizeof(PolicyRule) * 5000);
	char	   *base = pstrdup("b");
	Policy		policy = {.nrules = 5000, .rules = deep};
	PolicyProblems *problems;

	ok(policy_problems(&(Policy) {.nrules = lengthof(beside), .rules = beside})->n == 0,
	   "wildcards whose names merely end alike are not nested");
	ok(nesting_problem(passed_on, lengthof(passed_on), 2, 0) == 1 &&
	   nesting_problem(passed_on, lengthof(passed_on), 2, 1) == 3,
	   "a wildcard between that agrees hides nothing");
	ok(nesting_problem(skipped, lengthof(skipped), 3, 0) == 2 &&
	   nesting_problem(skipped, lengthof(skipped), 3, 1) == 3 &&
	   nesting_problem(skipped, lengthof(skipped), 3, 2) == 4,
	   "each is held against the nearest that does not agree");

	ok(nesting_problem(between, lengthof(between), 1, 0) == 3,
	   "a label that ends alike hides nothing");

	/* a hundred wildcards above each of the others */
	deep[0] = rule("*", "deny");
	for (int i = 1; i < policy.nrules; i++)
	{
		deep[i] = i <= 100 ? rule(psprintf("*.%s", base), "allow") :
			rule(psprintf("*.x%d.%s", i, base), "deny");
		if (i < 100)
			base = psprintf("a.%s", base);
	}
	problems = policy_problems(&policy);
	ok(problems->n == policy.nrules - 101, "a rule has one problem of nesting, however many lie above it");
}

static void
test_argv(void)
{
	char	   *args[] = {"a b", ""};
	Argv		argv = argv_self_healing("cmd", args, 2, "/w");

	ok(argv.n == 8 && strcmp(argv.items[3], "sh") == 0 && strcmp(argv.items[4], "/w") == 0 &&
	   strcmp(argv.items[5], "cmd") == 0 && strcmp(argv.items[7], "") == 0,
	   "directory, command and arguments are positional");
	ok(argv_recovery(NULL, 0).n == 4 && argv_recovery(args, 1).n == 5, "so are the directories to recover");
	ok(strcmp(argv_parent_dir("///"), "/") == 0 && strcmp(argv_parent_dir("a//"), "/") == 0 &&
	   strcmp(argv_parent_dir("//a/b"), "//a") == 0 && strcmp(argv_parent_dir(""), "/") == 0 &&
	   strcmp(argv_parent_dir("a"), "/") == 0, "parents of odd paths");
}

/* "heal CWD COMMAND [ARG ...]" or "recover [DIRECTORY ...]" */
static int
become(int argc, char **argv)
{
	Argv		made;

	if (argc >= 4 && strcmp(argv[1], "heal") == 0)
		made = argv_self_healing(argv[3], argv + 4, argc - 4, argv[2]);
	else if (strcmp(argv[1], "recover") == 0)
		made = argv_recovery(argv + 2, argc - 2);
	else
		return 2;
	made.items = repalloc(made.items, sizeof(char *) * (made.n + 1));
	made.items[made.n] = NULL;
	execvp(made.items[0], made.items);
	perror(made.items[0]);
	return 2;
}

int
main(int argc, char **argv)
{
	if (argc > 1)
		return become(argc, argv);
	test_decision();
	test_decision_without_hash();
	test_tokens();
	test_canonical();
	test_sets();
	test_size();
	test_nesting();
	test_argv();
	printf("1..%d\n", tests);
	return failures > 0;
}
