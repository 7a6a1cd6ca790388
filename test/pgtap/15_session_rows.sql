-- The rows of machine_sessions: what is in them, which column moves when, and several sessions
-- of one Sprite.
SELECT plan(41);
CREATE FUNCTION told(name text, policy jsonb DEFAULT egress_policy(), session_key text DEFAULT NULL) RETURNS text LANGUAGE sql AS
$$ SELECT h.reason FROM sprite_get_or_create(name, policy, session_key) AS h $$;
CREATE FUNCTION session(key text) RETURNS machine_sessions LANGUAGE sql AS $$ SELECT m FROM machine_sessions AS m WHERE session_key = key $$;

-- a new row
BEGIN;
SELECT is(told('a'), 'fresh', 'a hand-back');
SELECT results_eq($$ SELECT * FROM machine_sessions $$,
	$$ SELECT 'a', 'sprites'::name, 'a', sim.vm('a')->>'id', lockdown_token(sim.vm('a')->>'id', hash_egress_policy()), now(), now(), now() $$, 'makes a row, in which all times are that of the transaction');
SELECT is(told('a'), 'proven', 'the same transaction sees it');
COMMIT;

-- a warm call
CREATE TEMP TABLE before AS SELECT * FROM machine_sessions;
BEGIN;
SELECT is(told('a'), 'proven', 'a warm call');
SELECT results_eq($$ SELECT session_key, server_name, sprite_name, sprite_id, egress_policy_token, created_at, last_active_at, updated_at FROM machine_sessions $$,
	$$ SELECT session_key, server_name, sprite_name, sprite_id, egress_policy_token, created_at, now(), updated_at FROM before $$, 'moves last_active_at to this transaction, and nothing else');
SELECT ok((session('a')).last_active_at > last_active_at, 'which is later') FROM before;
COMMIT;

-- a push
BEGIN;
SELECT is(told('a', egress_policy('open')), 'policy_changed', 'a push');
SELECT results_eq($$ SELECT session_key, server_name, sprite_name, sprite_id, egress_policy_token, created_at, last_active_at, updated_at FROM machine_sessions $$,
	$$ SELECT session_key, server_name, sprite_name, sprite_id, lockdown_token(sprite_id, hash_egress_policy('open')), created_at, now(), now() FROM before $$, 'moves the token and both later times');
COMMIT;
-- another VM
SELECT sim.do('a', 'replace');
SELECT is(told('a', egress_policy('open')), 'replaced', 'another VM');
SELECT results_eq($$ SELECT sprite_id, egress_policy_token, created_at FROM machine_sessions $$,
	$$ SELECT sim.vm('a')->>'id', lockdown_token(sim.vm('a')->>'id', hash_egress_policy('open')), created_at FROM before $$, 'takes the place of the old one in the row');

-- a call that fails
TRUNCATE before;
INSERT INTO before SELECT * FROM machine_sessions;
SELECT sim.fault('{"kind": "policy_set", "status": 400}');
SELECT throws_ok($$ SELECT told('a') $$, 'SP006', NULL, 'a push that fails');
SELECT set_eq('SELECT * FROM machine_sessions', 'SELECT * FROM before', 'changes nothing in the row');
SELECT sim.fault('{"kind": "get", "status": 503}');
SELECT throws_ok($$ SELECT told('a', egress_policy('open')) $$, 'SP003', NULL, 'a look that fails');
SELECT set_eq('SELECT * FROM machine_sessions', 'SELECT * FROM before', 'neither, not even last_active_at');

-- the key is the name unless it is given
SELECT is(told('b'), 'fresh', 'a Sprite without a key');
SELECT is(told('b', session_key => 'b'), 'proven', 'has the key that is its name');
SELECT is(told('b', session_key => 'B'), 'no_proof', 'and no other');
SELECT is(told('b', session_key => ' b'), 'no_proof', 'blanks count');
SELECT is((SELECT array_agg(session_key ORDER BY session_key COLLATE "C") FROM machine_sessions WHERE sprite_name = 'b'), '{" b",B,b}', 'so it has three sessions');

-- several sessions of one Sprite: a push for one is known to all
TRUNCATE before;
INSERT INTO before SELECT * FROM machine_sessions;
BEGIN;
SELECT sim.clear();
SELECT is(told('b', egress_policy('open'), 'B'), 'policy_changed', 'one asks for another policy');
SELECT is((SELECT count(*) FROM machine_sessions WHERE sprite_name = 'b' AND egress_policy_token = lockdown_token(sim.vm('b')->>'id', hash_egress_policy('open')) AND updated_at = now()), 3::bigint, 'all rows say what the VM runs now');
SELECT is((SELECT array_agg(session_key) FROM machine_sessions WHERE last_active_at = now()), '{B}', 'one was active');
SELECT is(told('b', egress_policy('open')), 'proven', 'another that asks for the same has it');
SELECT is(sim.requests('policy_set'), 1, 'by the one push');
COMMIT;
SELECT is(told('b'), 'policy_changed', 'one that asks for the old policy is told');
SELECT is(sim.vm('b')->'policy', egress_policy(), 'and gets it');
SELECT is((SELECT count(DISTINCT egress_policy_token) FROM machine_sessions WHERE sprite_name = 'b'), 1::bigint, 'the rows never contradict each other');
SELECT set_eq($$ SELECT * FROM machine_sessions WHERE sprite_name <> 'b' $$, $$ SELECT * FROM before WHERE sprite_name <> 'b' $$, 'those of another Sprite are not touched');
-- also by who has no row
SELECT is((SELECT reason FROM sprite_ensure_lockdown('b', egress_policy('open'))), 'no_proof', 'a push by a caller without a session');
SELECT is((SELECT count(*) FROM machine_sessions WHERE sprite_name = 'b' AND egress_policy_token = lockdown_token(sim.vm('b')->>'id', hash_egress_policy('open'))), 3::bigint, 'is in all rows too');

-- a session that moves
SELECT created_at AS created FROM machine_sessions WHERE session_key = 'B' \gset
SELECT is(told('c', session_key => 'B'), 'fresh', 'a session takes another Sprite');
SELECT is((SELECT row(sprite_name, sprite_id, created_at) FROM machine_sessions WHERE session_key = 'B'), row('c'::text, sim.vm('c')->>'id', :'created'::timestamptz), 'its row moves and stays as old as it is');
SELECT is((SELECT array_agg(session_key ORDER BY session_key COLLATE "C") FROM machine_sessions WHERE sprite_name = 'b'), '{" b",b}', 'the others stay');
SELECT isnt(sim.vm('b'), NULL::jsonb, 'as does the VM that was left');
SELECT is(told('b', egress_policy('open'), 'B'), 'no_proof', 'on its way back it has no proof');
-- a key that is another Sprite's name is that Sprite's session
SELECT is(told('c', session_key => 'b'), 'no_proof', 'a session that is named like another Sprite');
SELECT is(told('b', egress_policy('open')), 'no_proof', 'takes the place of its session, and the reverse');
-- to another server and back
CREATE SERVER "second Server" FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://unused.example');
SELECT sim.point_server('second Server');
SELECT is(reason, 'no_proof', 'a session moves to another server') FROM sprite_get_or_create('b', egress_policy('open'), server => 'second Server');
SELECT is((SELECT server_name FROM machine_sessions WHERE session_key = 'b'), 'second Server', 'which its row names as it is');
SELECT is(told('b', egress_policy('open')), 'no_proof', 'back here it has no proof');
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key = 'b'), 1::bigint, 'there is one row for a key');

SELECT * FROM finish();
