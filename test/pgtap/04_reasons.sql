-- Every reason of the table that can occur, and that the first that holds is reported.
SELECT plan(48);
CREATE FUNCTION reason(name text, policy jsonb DEFAULT egress_policy(), session_key text DEFAULT NULL) RETURNS text LANGUAGE sql AS
$$ SELECT h.reason FROM sprite_get_or_create(name, policy, session_key) AS h $$;
CREATE FUNCTION right_policy(name text, policy jsonb DEFAULT egress_policy()) RETURNS boolean LANGUAGE sql AS
$$ SELECT sim.vm(name)->'policy' = policy AND NOT sim.ran_open(name) $$;

SELECT is(reason('r'), 'fresh', 'fresh: this call created the VM');
SELECT is(reason('r'), 'proven', 'proven: nothing has changed');

-- no_proof
SELECT sim.do('made-elsewhere', 'create');
SELECT is(reason('made-elsewhere'), 'no_proof', 'no_proof: a Sprite that exists and a session that does not');
SELECT ok(right_policy('made-elsewhere'), 'it is locked down before anything runs in it');
SELECT is(reason('made-elsewhere'), 'proven', 'and then proven');
UPDATE machine_sessions SET egress_policy_token = NULL WHERE session_key = 'r';
SELECT sim.clear();
SELECT is(reason('r'), 'no_proof', 'no_proof: a legacy row without a token');
SELECT is(sim.requests('policy_set'), 1, 'is pushed to once');
SELECT is(reason('r'), 'proven', 'and then recorded');
UPDATE machine_sessions SET egress_policy_token = '' WHERE session_key = 'r';
SELECT is(reason('r'), 'no_proof', 'no_proof: an empty token');
UPDATE machine_sessions SET egress_policy_token = 'nonsense' WHERE session_key = 'r';
SELECT is(reason('r'), 'no_proof', 'no_proof: a token that is none');
DELETE FROM machine_sessions WHERE session_key = 'r';
SELECT is(reason('r'), 'no_proof', 'no_proof: a row that was lost');
SELECT is(reason('other', session_key => 'r'), 'fresh', 'a session may move to another Sprite');
SELECT is(reason('r', session_key => 'r'), 'no_proof', 'no_proof: the row names another Sprite');

-- a row that the original service wrote
SELECT sim.do('service', 'create', jsonb_build_object('policy', egress_policy('allowlist', '{pypi.org}')));
INSERT INTO machine_sessions VALUES ('s', 'sprites', 'service', sim.vm('service')->>'id',
	(sim.vm('service')->>'id') || ':' || hash_egress_policy('allowlist', '{pypi.org}'));
SELECT sim.clear();
SELECT is(reason('service', egress_policy('allowlist', '{pypi.org}'), 's'), 'proven', 'a token that the original service wrote is accepted');
SELECT is(sim.counts(), '{"get": 1}', 'with one request');

-- replaced
SELECT sim.do('r', 'replace');
SELECT sim.clear();
SELECT is(reason('r', session_key => 'r'), 'replaced', 'replaced: the token names another VM');
SELECT is(sim.requests('policy_set'), 1, 'the new one is pushed to');
SELECT ok(right_policy('r'), 'before anything runs in it');
SELECT sim.do('r', 'replace');
SELECT is(reason('r', egress_policy('open'), 'r'), 'replaced', 'replaced comes before policy_changed');
SELECT sim.do('r', 'delete');
SELECT is(reason('r', session_key => 'r'), 'fresh', 'fresh comes before replaced');
SELECT ok(right_policy('r'), 'and the policy is in force');

-- policy_changed
SELECT is(reason('r', egress_policy('open'), 'r'), 'policy_changed', 'policy_changed: by this session');
SELECT is(reason('r', egress_policy(), 'second'), 'no_proof', 'another session asks for another policy');
SELECT is(reason('r', egress_policy('open'), 'r'), 'policy_changed', 'policy_changed: by another session that names the Sprite');
SELECT ok(right_policy('r', egress_policy('open')), 'whoever asks last gets what was asked for');
SELECT is(reason('r', egress_policy('open'), 'second'), 'proven', 'which is then known to both');
SELECT is((SELECT reason FROM sprite_ensure_lockdown('r', egress_policy())), 'no_proof', 'a caller with a table of its own pushes a third');
SELECT is(reason('r', egress_policy('open'), 'r'), 'policy_changed', 'policy_changed: by a call without a session');
-- two legacy rows that contradict each other: one of them lies
INSERT INTO machine_sessions VALUES ('liar', 'sprites', 'r', sim.vm('r')->>'id', (sim.vm('r')->>'id') || ':' || hash_egress_policy());
SELECT is(reason('r', egress_policy('open'), 'r'), 'policy_changed', 'policy_changed: another row says otherwise');
SELECT is((SELECT count(DISTINCT egress_policy_token) FROM machine_sessions WHERE sprite_name = 'r'), 1::bigint, 'afterwards all rows agree');

-- expired
SELECT is(reason('r', egress_policy('open'), 'r'), 'proven', 'without a limit a proof does not age');
UPDATE lockdown_journal SET recorded_at = now() - interval '1 hour' WHERE sprite_name = 'r';
SET sprite_lockdown.proof_max_age = '2h';
SELECT is(reason('r', egress_policy('open'), 'r'), 'proven', 'within the limit neither');
SET sprite_lockdown.proof_max_age = '30min';
SELECT is(reason('r', egress_policy('open'), 'r'), 'expired', 'expired: older than the limit');
SELECT is(reason('r', egress_policy('open'), 'r'), 'proven', 'the push renews it');
UPDATE lockdown_journal SET recorded_at = now() + interval '1 day' WHERE sprite_name = 'r';
SELECT is(reason('r', egress_policy('open'), 'r'), 'expired', 'expired: a proof from the future has no age');
UPDATE lockdown_journal SET recorded_at = 'infinity' WHERE sprite_name = 'r';
SELECT is(reason('r', egress_policy('open'), 'r'), 'expired', 'expired: nor has one from the end of time');
UPDATE lockdown_journal SET recorded_at = '-infinity' WHERE sprite_name = 'r';
SELECT is(reason('r', egress_policy('open'), 'r'), 'expired', 'expired: nor one from its beginning');
SELECT is((SELECT reason FROM sprite_ensure_lockdown('r', egress_policy('open'), lockdown_token(sim.vm('r')->>'id', hash_egress_policy('open')))),
          'proven', 'the age of what a caller claims is that of the confirmation');
UPDATE machine_sessions SET updated_at = now() - interval '1 hour' WHERE session_key = 's';
SELECT is(reason('service', egress_policy('allowlist', '{pypi.org}'), 's'), 'expired', 'expired: a row that another service wrote is as old as its last change');
DELETE FROM lockdown_journal WHERE sprite_name = 'service';
UPDATE machine_sessions SET updated_at = 'infinity' WHERE session_key = 's';
SELECT is(reason('service', egress_policy('allowlist', '{pypi.org}'), 's'), 'expired', 'expired: or has no age');
DELETE FROM lockdown_journal WHERE sprite_name = 'service';
SELECT is((SELECT reason FROM sprite_ensure_lockdown('service', egress_policy('allowlist', '{pypi.org}'), lockdown_token(sim.vm('service')->>'id', hash_egress_policy('allowlist', '{pypi.org}')))),
          'no_proof', 'no_proof: a claim that the journal has never heard of');
RESET sprite_lockdown.proof_max_age;

-- no_identity
SELECT sim.switch('{"id_form": "none"}');
SELECT sim.clear();
SELECT is(reason('r', egress_policy('open'), 'r'), 'no_identity', 'no_identity: the platform reports no id');
SELECT is(reason('r', egress_policy('open'), 'r'), 'no_identity', 'and again');
SELECT is(sim.requests('policy_set'), 2, 'each time it is pushed to');
SELECT is((SELECT array_agg(egress_policy_token) FROM machine_sessions WHERE sprite_name = 'r' AND egress_policy_token IS NOT NULL), NULL, 'and nothing is recorded as proof');
SELECT sim.switch('{"id_form": "empty"}');
SELECT is(reason('r', egress_policy('open'), 'r'), 'no_identity', 'no_identity: an empty id is none');
SELECT is(h.egress_policy_token, NULL, 'the handle has no token') FROM sprite_get_or_create('new', egress_policy()) AS h;
SELECT is((SELECT row(sprite_id, egress_policy_token)::text FROM machine_sessions WHERE session_key = 'new'), '(,)', 'a fresh VM without an id has a row without proof');

SELECT * FROM finish();
