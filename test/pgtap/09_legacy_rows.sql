-- Rows from before the extension: one without a token is pushed to once and then recorded;
-- a token that the original service wrote is accepted as recorded state.  The tokens are
-- literal, as that service computed them.
SELECT plan(46);
CREATE FUNCTION told(name text, policy jsonb DEFAULT egress_policy(), session_key text DEFAULT NULL) RETURNS text LANGUAGE sql AS
$$ SELECT h.reason FROM sprite_get_or_create(name, policy, session_key) AS h $$;
CREATE FUNCTION is_right(name text, policy jsonb DEFAULT egress_policy()) RETURNS boolean LANGUAGE sql AS
$$ SELECT coalesce(sim.vm(name)->'policy' = policy AND NOT sim.ran_open(name), false) $$;
\set github_hash b5746806ad6709f3e5f77b565eef8790e7db8d10a613a89c460716f86a3f2c80
\set denied_hash cc105704f3aaf8172ccd521026f51e38e128a969cc374bb9297c9f0930ba0507
\set github 'egress_policy(''allowlist'', ''{github.com}'')'
CREATE FUNCTION legacy(key text, name text, id text, token text, server name DEFAULT 'sprites') RETURNS void LANGUAGE sql AS
$$ INSERT INTO machine_sessions VALUES (key, server, name, id, token, '2024-01-01', '2024-02-01', '2024-02-01') $$;

-- no token
SELECT sim.do('old', 'create', '{"id": "vm-1"}');
SELECT legacy('user-7', 'old', 'vm-1', NULL);
SELECT is(told('old', session_key => 'user-7'), 'no_proof', 'a row without a token proves nothing');
SELECT is(sim.counts(), '{"get": 2, "policy_set": 1, "policy_get": 1, "exec": 1}', 'so its Sprite is pushed to once');
SELECT ok(is_right('old'), 'and runs the policy');
SELECT results_eq($$ SELECT session_key, sprite_name, sprite_id, egress_policy_token, created_at = '2024-01-01', last_active_at > '2025-01-01', updated_at > '2025-01-01' FROM machine_sessions $$,
	format($$ VALUES ('user-7', 'old', 'vm-1', 'vm-1:%s', true, true, true) $$, :'denied_hash'), 'the row is kept and has its token now');
SELECT sim.clear();
SELECT is(told('old', session_key => 'user-7'), 'proven', 'the next call finds the proof');
SELECT is(sim.counts(), '{"get": 1}', 'with one request');
-- nor does a row without an id; the push fills it in
SELECT sim.do('older', 'create', '{"id": "vm-2"}');
SELECT legacy('older', 'older', NULL, NULL);
SELECT is(told('older'), 'no_proof', 'a row that knows not even the id');
SELECT is((SELECT sprite_id FROM machine_sessions WHERE session_key = 'older'), 'vm-2', 'learns it');
SELECT is(told('older'), 'proven', 'and is proven');
-- the Sprite is gone since
SELECT legacy('lost', 'lost', 'vm-3', NULL);
SELECT is(told('lost'), 'fresh', 'a row without a token whose Sprite is gone');
SELECT ok(is_right('lost'), 'gets a new one, locked down');

-- a token of the original service
SELECT sim.do('svc', 'create', jsonb_build_object('id', 'vm-4', 'policy', :github));
SELECT legacy('svc-a', 'svc', 'vm-4', 'vm-4:' || :'github_hash'), legacy('svc-b', 'svc', 'vm-4', 'vm-4:' || :'github_hash');
SELECT sim.clear();
SELECT is(told('svc', :github, 'svc-a'), 'proven', 'a token of the original service is recorded state');
SELECT is(told('svc', egress_policy('allowlist', '{GitHub.com}'), 'svc-b'), 'proven', 'for each session that has one');
SELECT is(sim.counts(), '{"get": 2}', 'and costs one request');
SELECT is((sim.vm('svc')->>'pushes')::int, 0, 'nothing is pushed');
SELECT is((SELECT count(*) FROM lockdown_journal WHERE sprite_name = 'svc'), 0::bigint, 'nothing is entered in the journal');
SELECT ok(bool_and(egress_policy_token = 'vm-4:' || :'github_hash' AND updated_at = '2024-02-01' AND last_active_at > '2025-01-01'), 'and the rows change in last_active_at alone') FROM machine_sessions WHERE sprite_name = 'svc';
SELECT is((SELECT p.reason FROM sprite_lockdown_plan('svc', :github, 'svc-a') AS p), 'proven', 'a plan says the same');
SELECT is((SELECT h.egress_policy_token FROM sprite_get_or_create('svc', :github, 'svc-a') AS h), 'vm-4:' || :'github_hash', 'the handle has the very token');
-- a session of its own without a row does not share it
SELECT is(told('svc', :github, 'svc-c'), 'no_proof', 'a session that has no row has no proof');
SELECT is(told('svc', :github, 'svc-a'), 'proven', 'its push leaves the others proven');

-- another policy than the token's
SELECT sim.do('svc2', 'create', jsonb_build_object('id', 'vm-5', 'policy', :github));
SELECT legacy('svc2', 'svc2', 'vm-5', 'vm-5:' || :'github_hash');
SELECT sim.clear();
SELECT is(told('svc2'), 'policy_changed', 'another policy than that of the token');
SELECT is(sim.requests('policy_set'), 1, 'is pushed');
SELECT ok(is_right('svc2'), 'and in force');
SELECT is(told('svc2'), 'proven', 'and recorded');

-- another VM than the token's
SELECT sim.do('svc3', 'create', '{"id": "vm-6"}');
SELECT legacy('svc3', 'svc3', 'vm-old', 'vm-old:' || :'denied_hash');
SELECT is(told('svc3'), 'replaced', 'a token of a VM that is no more');
SELECT ok(is_right('svc3'), 'the new one is locked down');
SELECT is((SELECT row(sprite_id, egress_policy_token)::text FROM machine_sessions WHERE session_key = 'svc3'), format('(vm-6,vm-6:%s)', :'denied_hash'), 'and recorded in its place');

-- the id column is information; the token is what counts
SELECT sim.do('svc4', 'create', '{"id": "vm-7"}');
SELECT legacy('svc4', 'svc4', 'vm-7', 'vm-other:' || :'denied_hash');
SELECT is(told('svc4'), 'replaced', 'a row whose id is right and whose token is of another VM proves nothing');

-- tokens that are none
SELECT sim.do('svc5', 'create', '{"id": "vm-8"}');
SELECT legacy('svc5', 'svc5', 'vm-8', NULL);
CREATE FUNCTION with_token(token text) RETURNS text LANGUAGE sql AS
$$ UPDATE machine_sessions SET egress_policy_token = token WHERE session_key = 'svc5'; DELETE FROM lockdown_journal WHERE sprite_name = 'svc5'; SELECT told('svc5') $$;
SELECT is(with_token(t), r, format('token %L', t)) FROM (VALUES ('', 'no_proof'), (':', 'no_proof'), ('vm-8', 'no_proof'), ('vm-8:', 'no_proof'), (':' || :'denied_hash', 'no_proof'),
	('vm-8 :' || :'denied_hash', 'replaced'), ('VM-8:' || :'denied_hash', 'replaced'), ('vm-8:' || upper(:'denied_hash'), 'policy_changed'),
	('vm-8:' || left(:'denied_hash', 63), 'policy_changed'), ('vm-8:' || :'denied_hash' || ' ', 'policy_changed'), ('vm-8::' || :'denied_hash', 'replaced'),
	('vm-8:' || :'denied_hash', 'proven')) AS v(t, r);
-- an id may hold colons itself
SELECT sim.do('svc6', 'create', jsonb_build_object('id', 'a:b:c', 'policy', egress_policy()));
SELECT legacy('svc6', 'svc6', 'a:b:c', 'a:b:c:' || :'denied_hash');
SELECT is(told('svc6'), 'proven', 'an id that holds colons is read whole');

-- a row that names the Sprite at another server
CREATE SERVER elsewhere FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://unused.example');
SELECT sim.do('svc7', 'create', '{"id": "vm-9"}');
SELECT legacy('svc7', 'svc7', 'vm-9', 'vm-9:' || :'denied_hash', 'elsewhere');
SELECT is(told('svc7'), 'no_proof', 'a row of another server proves nothing here');
SELECT ok(is_right('svc7'), 'so the VM is locked down');

-- what a caller claims is not a row
SELECT sim.do('svc8', 'create', '{"id": "vm-10"}');
SELECT is((SELECT h.reason FROM sprite_ensure_lockdown('svc8', egress_policy(), 'vm-10:' || :'denied_hash') AS h), 'no_proof', 'a token that only a caller knows of proves nothing');
SELECT ok(is_right('svc8'), 'so its VM is locked down too');

SELECT * FROM finish();
