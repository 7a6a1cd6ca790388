-- A row rolls back and a VM does not: no rollback leaves a proof that is false.
SELECT plan(62);
CREATE FUNCTION reason(name text, policy jsonb DEFAULT egress_policy(), session_key text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT h.reason FROM sprite_get_or_create(name, policy, session_key) AS h); EXCEPTION WHEN SQLSTATE 'SP003' OR SQLSTATE '58000' OR SQLSTATE '22023' THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION runs(name text, policy jsonb DEFAULT egress_policy()) RETURNS boolean LANGUAGE sql AS
$$ SELECT sim.vm(name)->'policy' = policy AND NOT sim.ran_open(name) $$;
CREATE FUNCTION entries(name text) RETURNS text LANGUAGE sql AS
$$ SELECT string_agg(concat_ws(' ', kind, action, sqlstate), ', ' ORDER BY entry_id) FROM lockdown_journal WHERE sprite_name = name $$;

-- the case that a token alone cannot see
SELECT is(reason('hole'), 'fresh', 'policy 1 is recorded');
BEGIN;
SELECT is(h.reason, 'policy_changed', 'policy 2 is pushed') FROM sprite_get_or_create('hole', egress_policy('open')) AS h;
ROLLBACK;
SELECT ok(runs('hole', egress_policy('open')), 'the transaction is rolled back, the VM still runs policy 2');
SELECT is((SELECT egress_policy_token FROM machine_sessions WHERE session_key = 'hole'), lockdown_token(sim.vm('hole')->>'id', hash_egress_policy()), 'the row says policy 1');
SELECT is((SELECT sprite_name || ' ' || action || ' ' || to_hash FROM lockdown_in_doubt), 'hole push ' || hash_egress_policy('open'), 'the Sprite is in doubt');
SELECT is((SELECT p.reason FROM sprite_lockdown_plan('hole', egress_policy()) AS p), 'in_doubt', 'a plan says so');
SELECT is(reason('hole'), 'in_doubt', 'the next call for policy 1 does not believe the row');
SELECT ok(runs('hole'), 'and pushes it');
SELECT is((SELECT count(*) FROM lockdown_in_doubt), 0::bigint, 'which settles the doubt');
SELECT is(reason('hole'), 'proven', 'and is a proof again');

-- a savepoint
BEGIN;
SAVEPOINT s;
SELECT is(h.reason, 'policy_changed', 'a push after a savepoint') FROM sprite_get_or_create('hole', egress_policy('open')) AS h;
ROLLBACK TO s;
SELECT is(h.reason, 'in_doubt', 'that is rolled back is in doubt within the transaction') FROM sprite_get_or_create('hole', egress_policy()) AS h;
COMMIT;
SELECT ok(runs('hole'), 'and after it the VM runs what was asked for last');

-- an error that PL/pgSQL catches
DO $$
BEGIN
	BEGIN
		PERFORM sprite_get_or_create('hole', egress_policy('open'));
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
END
$$;
SELECT is(reason('hole'), 'in_doubt', 'an error after the call that is caught leaves a doubt');
SELECT ok(runs('hole'), 'which the next call settles');

-- the caller's own token
CREATE TEMP TABLE own AS SELECT egress_policy_token AS token FROM sprite_ensure_lockdown('own', egress_policy());
BEGIN;
SELECT is(h.reason, 'policy_changed', 'a caller that keeps its token') FROM own, LATERAL sprite_ensure_lockdown('own', egress_policy('open'), token) AS h;
ROLLBACK;
SELECT is(h.reason, 'in_doubt', 'is told of its own rollback') FROM own, LATERAL sprite_ensure_lockdown('own', egress_policy(), token) AS h;

-- failures
SET sprite_lockdown.max_attempts = 1;
SELECT sim.fault('{"kind": "policy_set", "name": "hole", "status": 503, "apply": true}');
SELECT is(reason('hole', egress_policy('open')), 'SP003', 'a push that fails after its effect');
SELECT is(entries('hole') LIKE '%intent push, failed push SP003', true, 'is on record, with how it ended');
SELECT is(reason('hole'), 'in_doubt', 'and a doubt for the policy before');
SELECT ok(runs('hole'), 'which the next call settles');
SELECT sim.fault('{"kind": "create", "name": "nothing", "status": 503}');
SELECT is(reason('nothing'), 'SP003', 'a create that fails');
SELECT is(entries('nothing'), 'intent create, failed create SP003', 'is on record too');
SELECT is(reason('nothing'), 'fresh', 'fresh comes before in_doubt');
RESET sprite_lockdown.max_attempts;

-- what the journal is told, and when it is not
SELECT is(reason('story'), 'fresh', 'a story: created');
SELECT is(reason('story', egress_policy('open')), 'policy_changed', 'changed');
SELECT is(reason('story', egress_policy('open')), 'proven', 'proven');
SELECT is(sprite_destroy('story'), true, 'and destroyed');
SELECT is(entries('story'), 'intent create, confirmed create, intent push, confirmed push, intent destroy, confirmed destroy', 'all of it is told, a proven call is not');
SELECT results_eq($$ SELECT role_name::text, session_key, reason, from_hash, to_hash, intent_id FROM lockdown_journal WHERE sprite_name = 'story' AND action = 'push' AND kind = 'confirmed' $$,
	$$ SELECT current_user::text, 'story', 'policy_changed', hash_egress_policy(), hash_egress_policy('open'), entry_id FROM lockdown_journal WHERE sprite_name = 'story' AND action = 'push' AND kind = 'intent' $$,
	'who, why, from what to what, and which intent it settles');
SELECT is(reason('bad', '{"rules": []}'), '22023', 'a call that is refused');
SELECT is(entries('bad'), NULL, 'is no entry');

SELECT is(reason('kept'), 'fresh', 'a Sprite');
SET sprite_lockdown.max_attempts = 1;
SELECT sim.fault('{"kind": "delete", "name": "kept", "status": 503}');
SELECT throws_ok($$ SELECT sprite_destroy('kept') $$, 'SP003', NULL, 'whose destroy fails');
RESET sprite_lockdown.max_attempts;
SELECT is(entries('kept'), 'intent create, confirmed create, intent destroy, failed destroy SP003', 'how it ended is told');
SELECT is(reason('kept'), 'in_doubt', 'and it is in doubt');

-- a rolled-back destroy
SELECT is(reason('back'), 'fresh', 'a Sprite');
BEGIN;
SELECT is(sprite_destroy('back'), true, 'that is destroyed in a transaction');
ROLLBACK;
SELECT is((SELECT action FROM lockdown_in_doubt WHERE sprite_name = 'back'), 'destroy', 'that is rolled back is in doubt');
SELECT is(reason('back'), 'fresh', 'and created anew');

-- other epochs, drift
SELECT is(reason('epoch'), 'fresh', 'a proof');
UPDATE lockdown_journal SET epoch = '1/1/1' WHERE sprite_name = 'epoch';
SELECT is(reason('epoch'), 'epoch_changed', 'of another epoch is none');
SELECT is(reason('epoch'), 'proven', 'and renewed by a push');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, epoch) SELECT current_user, 'sprites', 'epoch', 'drifted', epoch FROM lockdown_journal ORDER BY entry_id DESC LIMIT 1;
SELECT is(reason('epoch'), 'drifted', 'an entry of drift takes the proof away');
SELECT is(reason('epoch'), 'proven', 'until the next push');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, epoch) VALUES (current_user, 'sprites', 'epoch', 'drifted', '-');
SELECT is(reason('epoch'), 'epoch_changed', 'one of another epoch says so first');
UPDATE lockdown_journal SET sprite_id = 'another' WHERE sprite_name = 'epoch' AND kind = 'confirmed';
SELECT is(reason('epoch'), 'in_doubt', 'a confirmation of another VM proves nothing of this one');
SELECT is(reason('epoch', egress_policy('open')), 'policy_changed', 'policy_changed comes before what the journal adds');

-- pruning keeps what proofs and doubts rest on
BEGIN; SELECT reason('epoch'); ROLLBACK;
UPDATE lockdown_journal SET recorded_at = now() - interval '1 year';
CREATE TEMP TABLE names AS SELECT DISTINCT sprite_name FROM lockdown_journal;
SELECT ok(prune_lockdown_journal('30 days') > 0, 'old entries can be pruned');
SELECT is((SELECT count(DISTINCT sprite_name) FROM lockdown_journal), (SELECT count(*) FROM names), 'every name keeps its newest');
SELECT is(prune_lockdown_journal('30 days'), 0::bigint, 'what was pruned is gone');
SELECT is(reason('hole'), 'proven', 'proofs stay');
SELECT is(reason('epoch', egress_policy('open')), 'in_doubt', 'and doubts');

-- what the database has set is not for the worker
SELECT format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()) \gexec
SELECT format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()) \gexec
SELECT is(reason('settings'), 'fresh', 'the database''s settings for transactions do not keep the worker from writing');
UPDATE pg_database SET datallowconn = false WHERE datname = current_database();
SELECT is(reason('settings', egress_policy('open')), 'policy_changed', 'nor that it lets nobody in any more');
SELECT is(entries('settings'), 'intent create, confirmed create, intent push, confirmed push', 'and all is on record');
UPDATE pg_database SET datallowconn = true WHERE datname = current_database();
SELECT format('ALTER DATABASE %I RESET ALL', current_database()) \gexec

-- callers cannot write it, nor hide from it
CREATE ROLE pgtap_journal;
GRANT USAGE ON SCHEMA sprite TO pgtap_journal;
SET ROLE pgtap_journal;
SELECT throws_ok('SELECT * FROM sprite.lockdown_journal', '42501', NULL, 'the journal is for nobody');
SELECT throws_ok('SELECT * FROM sprite.lockdown_in_doubt', '42501', NULL, 'nor its view');
SELECT throws_ok('SELECT sprite.prune_lockdown_journal(''1 day'')', '42501', NULL, 'nor its pruning');
RESET ROLE;
DROP OWNED BY pgtap_journal;
DROP ROLE pgtap_journal;

-- a lock of the caller's own that the intent needs is an error within seconds, and nothing is sent
SELECT sim.clear();
BEGIN;
LOCK TABLE lockdown_journal IN ACCESS EXCLUSIVE MODE;
CREATE TEMP TABLE started AS SELECT clock_timestamp() AS at;
SELECT is(reason('locked'), '58000', 'a transaction that locks the journal away');
SELECT ok(clock_timestamp() - at < interval '5 s', 'is told soon') FROM started;
ROLLBACK;
SELECT is(sim.counts(), '{"get": 1}', 'and has sent nothing that changes a VM');

SELECT * FROM finish();
