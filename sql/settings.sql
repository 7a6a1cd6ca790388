-- Settings: types, units, ranges, and who may change what weakens the promise.
CREATE EXTENSION sprite_lockdown;
SELECT hash_egress_policy() IS NOT NULL AS loaded;
SELECT name, setting, unit, context, vartype, min_val, max_val, enumvals
FROM pg_settings WHERE name LIKE 'sprite_lockdown.%' ORDER BY name COLLATE "C";

SET sprite_lockdown.request_timeout = '2min';
SHOW sprite_lockdown.request_timeout;
SET sprite_lockdown.proof_max_age = '1d';
SHOW sprite_lockdown.proof_max_age;
SET sprite_lockdown.max_response_bytes = '1MB';
SHOW sprite_lockdown.max_response_bytes;

\set VERBOSITY sqlstate
SET sprite_lockdown.request_timeout = 0;
SET sprite_lockdown.connect_timeout = '2h';
SET sprite_lockdown.max_attempts = 0;
SET sprite_lockdown.max_attempts = 11;
SET sprite_lockdown.verify_push = 'no';
SET sprite_lockdown.policy_check = 'off';
SET sprite_lockdown.proof_max_age = -1;
SET sprite_lockdown.max_response_bytes = 1;
SET sprite_lockdown.no_such_setting = 1;

CREATE ROLE regress_sprite_caller;
SET ROLE regress_sprite_caller;
SET sprite_lockdown.request_timeout = '5s';
SET sprite_lockdown.max_attempts = 1;
SET sprite_lockdown.verify_push = 'off';
SET sprite_lockdown.policy_check = 'warn';
SET sprite_lockdown.proof_max_age = 0;
RESET ROLE;

-- a setting made before the library is loaded is dropped when it is
\c -
SET ROLE regress_sprite_caller;
SET sprite_lockdown.verify_push = 'off';
\set VERBOSITY terse
SELECT hash_egress_policy() IS NOT NULL AS loaded;
SHOW sprite_lockdown.verify_push;
RESET ROLE;
DROP ROLE regress_sprite_caller;
DROP EXTENSION sprite_lockdown;
