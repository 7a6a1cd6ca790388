/*
 * sprite_lockdown.c
 *	  Module entry: magic and settings.
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "utils/guc.h"

#include "sprite_lockdown.h"

PG_MODULE_MAGIC;

#define DEFAULT_CONNECT_TIMEOUT		(10 * 1000)
#define DEFAULT_REQUEST_TIMEOUT		(30 * 1000)
/* Three tries of a workspace that is slow to boot, 5 + 30 + 30 s, must fit. */
#define DEFAULT_CALL_TIMEOUT		(180 * 1000)
#define MIN_TIMEOUT					10
#define MAX_TIMEOUT					(3600 * 1000)

#define DEFAULT_MAX_ATTEMPTS		3
#define MIN_MAX_ATTEMPTS			1
#define MAX_MAX_ATTEMPTS			10

#define DEFAULT_MAX_RESPONSE_BYTES	(8 * 1024 * 1024)
#define MIN_MAX_RESPONSE_BYTES		1024
/* A reply is handed to SQL as one value, which cannot reach 1 GB. */
#define MAX_MAX_RESPONSE_BYTES		(1000 * 1024 * 1024)

int			sprite_connect_timeout = DEFAULT_CONNECT_TIMEOUT;
int			sprite_request_timeout = DEFAULT_REQUEST_TIMEOUT;
int			sprite_call_timeout = DEFAULT_CALL_TIMEOUT;
int			sprite_max_attempts = DEFAULT_MAX_ATTEMPTS;
int			sprite_proof_max_age = 0;
int			sprite_verify_push = VERIFY_PUSH_POLICY;
int			sprite_policy_check = POLICY_CHECK_STRICT;
int			sprite_max_response_bytes = DEFAULT_MAX_RESPONSE_BYTES;

static const struct config_enum_entry verify_push_options[] = {
	{"policy", VERIFY_PUSH_POLICY, false},
	{"identity", VERIFY_PUSH_IDENTITY, false},
	{"off", VERIFY_PUSH_OFF, false},
	{NULL, 0, false}
};

static const struct config_enum_entry policy_check_options[] = {
	{"strict", POLICY_CHECK_STRICT, false},
	{"warn", POLICY_CHECK_WARN, false},
	{NULL, 0, false}
};

void		_PG_init(void);

static void
define_timeout(const char *name, const char *description, int *variable, int initial)
{
	DefineCustomIntVariable(name, description, NULL, variable,
							initial, MIN_TIMEOUT, MAX_TIMEOUT,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
}

/*
 * What weakens the promise is PGC_SUSET: a caller who can switch the proof off
 * has forged it.  The rest only decides how soon a call gives up.
 */
static void
define_promise_settings(void)
{
	DefineCustomEnumVariable("sprite_lockdown.verify_push",
							 "What is read back after a policy push before the push counts.",
							 "policy: the policy and the id; identity: only the id; off: nothing.",
							 &sprite_verify_push, VERIFY_PUSH_POLICY, verify_push_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("sprite_lockdown.policy_check",
							 "Whether a policy with errors is refused or only warned about.",
							 NULL,
							 &sprite_policy_check, POLICY_CHECK_STRICT, policy_check_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("sprite_lockdown.proof_max_age",
							"Age after which a recorded proof must be renewed by a push.",
							"Zero means that a proof does not age.",
							&sprite_proof_max_age, 0, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
}

void
_PG_init(void)
{
	define_timeout("sprite_lockdown.connect_timeout",
				   "Longest time to reach the platform: name resolution, connection and TLS.",
				   &sprite_connect_timeout, DEFAULT_CONNECT_TIMEOUT);
	define_timeout("sprite_lockdown.request_timeout",
				   "Longest time for one request to the platform.",
				   &sprite_request_timeout, DEFAULT_REQUEST_TIMEOUT);
	define_timeout("sprite_lockdown.call_timeout",
				   "Longest time for all the requests and retries of one call.",
				   &sprite_call_timeout, DEFAULT_CALL_TIMEOUT);
	DefineCustomIntVariable("sprite_lockdown.max_attempts",
							"How often a step that fails in passing is tried.",
							NULL,
							&sprite_max_attempts, DEFAULT_MAX_ATTEMPTS,
							MIN_MAX_ATTEMPTS, MAX_MAX_ATTEMPTS,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("sprite_lockdown.max_response_bytes",
							"Largest reply body that is accepted from the platform.",
							NULL,
							&sprite_max_response_bytes, DEFAULT_MAX_RESPONSE_BYTES,
							MIN_MAX_RESPONSE_BYTES, MAX_MAX_RESPONSE_BYTES,
							PGC_USERSET, GUC_UNIT_BYTE, NULL, NULL, NULL);
	define_promise_settings();

#if PG_VERSION_NUM >= 150000
	MarkGUCPrefixReserved("sprite_lockdown");
#else
	EmitWarningsOnPlaceholders("sprite_lockdown");
#endif
}
