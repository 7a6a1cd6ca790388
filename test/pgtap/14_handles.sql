-- What every function returns, column by column, in each of its cases.
SELECT plan(46);
CREATE FUNCTION url(name text) RETURNS text LANGUAGE sql AS $$ SELECT 'https://' || name || '-j34t.sprites.app' $$;
CREATE FUNCTION id(name text) RETURNS text LANGUAGE sql AS $$ SELECT sim.vm(name)->>'id' $$;
SELECT hash_egress_policy() AS hash \gset

-- sprite_get_or_create
SELECT results_eq($$ SELECT * FROM sprite_get_or_create('a', egress_policy()) $$,
	format($$ SELECT 'a', 'a', id('a'), 'running', url('a'), true, true, 'fresh', %1$L, id('a') || ':' || %1$L $$, :'hash'), 'get_or_create, fresh');
SELECT results_eq($$ SELECT * FROM sprite_get_or_create('a', egress_policy()) $$,
	format($$ SELECT 'a', 'a', id('a'), 'running', url('a'), false, false, 'proven', %1$L, id('a') || ':' || %1$L $$, :'hash'), 'get_or_create, proven');
SELECT results_eq($$ SELECT * FROM sprite_get_or_create('a', egress_policy('open'), 'my key') $$,
	format($$ SELECT 'my key', 'a', id('a'), 'running', url('a'), false, true, 'no_proof', %1$L, id('a') || ':' || %1$L FROM hash_egress_policy('open') $$, (SELECT hash_egress_policy('open'))), 'get_or_create, pushed, with a key');
SELECT sim.do('a', 'sleep');
SELECT is((SELECT status FROM sprite_get_or_create('a', egress_policy('open'))), 'cold', 'the status is the platform''s: a proven VM is not woken');
SELECT is((SELECT status FROM sprite_get_or_create('a', egress_policy())), 'running', 'and that after the push, which wakes it');
SELECT is(pg_typeof(sprite_get_or_create('a', egress_policy()))::text, 'sprite_handle', 'it is one value of a named type');
SELECT is((SELECT array_agg(k ORDER BY k) FROM jsonb_object_keys(to_jsonb(sprite_get_or_create('a', egress_policy()))) AS k),
	'{applied,egress_policy_token,fresh,name,policy_hash,reason,session_key,sprite_id,status,url}', 'with these columns');
CREATE TEMP TABLE kept (h sprite_handle);
INSERT INTO kept SELECT h FROM sprite_get_or_create('a', egress_policy()) AS h;
SELECT is((SELECT (h).egress_policy_token FROM kept), id('a') || ':' || :'hash', 'which a table can hold');

-- sprite_ensure_lockdown
SELECT results_eq($$ SELECT * FROM sprite_ensure_lockdown('b', egress_policy()) $$,
	format($$ SELECT NULL::text, 'b', id('b'), 'running', url('b'), true, true, 'fresh', %1$L, id('b') || ':' || %1$L $$, :'hash'), 'ensure_lockdown, fresh');
SELECT results_eq($$ SELECT * FROM sprite_ensure_lockdown('b', egress_policy(), lockdown_token(id('b'), hash_egress_policy())) $$,
	format($$ SELECT NULL::text, 'b', id('b'), 'running', url('b'), false, false, 'proven', %1$L, id('b') || ':' || %1$L $$, :'hash'), 'ensure_lockdown, proven');
SELECT results_eq($$ SELECT * FROM sprite_ensure_lockdown('b', egress_policy()) $$,
	format($$ SELECT NULL::text, 'b', id('b'), 'running', url('b'), false, true, 'no_proof', %1$L, id('b') || ':' || %1$L $$, :'hash'), 'ensure_lockdown, pushed');
SELECT is((SELECT count(*) FROM machine_sessions WHERE sprite_name = 'b'), 0::bigint, 'it makes no row');

-- sprite_attach
SELECT sim.do('open', 'create');
SELECT sim.clear();
CREATE TEMP TABLE rows_before AS SELECT m::text AS m FROM machine_sessions AS m;
CREATE TEMP TABLE entries_before AS SELECT count(*) AS n FROM lockdown_journal;
SELECT results_eq($$ SELECT * FROM sprite_attach('open') $$,
	$$ SELECT NULL::text, 'open', id('open'), 'cold', url('open'), false, false, NULL::text, NULL::text, NULL::text $$, 'attach to an open VM claims nothing');
SELECT results_eq($$ SELECT * FROM sprite_attach('a') $$,
	$$ SELECT NULL::text, 'a', id('a'), 'running', url('a'), false, false, NULL::text, NULL::text, NULL::text $$, 'nor does it of a VM that is proven');
SELECT is(sim.counts(), '{"get": 2}', 'one request each');
SELECT is((SELECT row(pushes, open)::text FROM (SELECT sim.vm('open')->>'pushes' AS pushes, sim.vm('open')->>'enforced' AS open) AS v), '(0,false)', 'the open VM is as open as it was');
SELECT results_eq($$ SELECT h IS NULL, h.name, h.fresh FROM sprite_attach('nothing') AS h $$, $$ VALUES (true, NULL::text, NULL::boolean) $$, 'attach to nothing is NULL in all columns');
SELECT is(sim.vm('nothing'), NULL::jsonb, 'and creates nothing');
SELECT sim.do('open', 'delete');
SELECT ok(sprite_attach('open') IS NULL, 'nor does it notice what was there once');
SELECT set_eq('SELECT m::text FROM machine_sessions AS m', 'SELECT m FROM rows_before', 'attach changes no row');
SELECT is((SELECT count(*) FROM lockdown_journal), (SELECT n FROM entries_before), 'and makes no entry');

-- sprite_lockdown_plan
SELECT sim.do('open', 'create');
SELECT sim.clear();
SELECT results_eq($$ SELECT * FROM sprite_lockdown_plan('nothing', egress_policy()) $$, $$ VALUES (false, NULL::text, true, true, 'fresh') $$, 'plan, to be created');
SELECT results_eq($$ SELECT * FROM sprite_lockdown_plan('open', egress_policy()) $$, $$ SELECT true, id('open'), false, true, 'no_proof' $$, 'plan, to be pushed');
SELECT results_eq($$ SELECT * FROM sprite_lockdown_plan('a', egress_policy()) $$, $$ SELECT true, id('a'), false, false, 'proven' $$, 'plan, proven');
SELECT results_eq($$ SELECT * FROM sprite_lockdown_plan('a', egress_policy(), 'no such key') $$, $$ SELECT true, id('a'), false, true, 'no_proof' $$, 'plan, for a session that has no row');
SELECT results_eq($$ SELECT * FROM sprite_lockdown_plan('a', egress_policy('open'), 'my key') $$, $$ SELECT true, id('a'), false, true, 'policy_changed' $$, 'plan, for another policy');
SELECT is(sim.counts(), '{"get": 5}', 'one request each');
SELECT set_eq('SELECT m::text FROM machine_sessions AS m', 'SELECT m FROM rows_before', 'plan changes no row');
SELECT is((SELECT count(*) FROM lockdown_journal), (SELECT n FROM entries_before), 'and makes no entry');
BEGIN READ ONLY;
SELECT is((SELECT reason FROM sprite_lockdown_plan('a', egress_policy())), 'proven', 'a transaction that only reads may ask');
SELECT is((SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), 0::bigint, 'which takes no lock');
ROLLBACK;

-- sprite_network_policy
SELECT sim.clear();
SELECT is(sprite_network_policy('a'), egress_policy(), 'network_policy of a VM that is locked down');
SELECT is(sprite_network_policy('open'), '{"rules": []}', 'network_policy of an open VM');
SELECT is(sim.counts(), '{"policy_get": 2}', 'one request each');
SELECT sim.fault('{"kind": "policy_get", "body": "{\"rules\": [{\"domain\": \"x\", \"action\": 7}], \"n\": 1.50, \"u\": \"\u00e9\"}"}');
SELECT is(sprite_network_policy('a'), U&'{"rules": [{"domain": "x", "action": 7}], "n": 1.50, "u": "\00e9"}'::jsonb, 'network_policy is what the VM says, whatever it is');
SELECT throws_ok($$ SELECT sprite_network_policy('nothing') $$, 'SP005', NULL, 'network_policy of nothing is SP005');

-- sprite_destroy
INSERT INTO machine_sessions VALUES ('of another server', 'elsewhere', 'a', NULL, NULL), ('of another Sprite', 'sprites', 'aa', NULL, NULL);
SELECT sim.clear();
SELECT is(sprite_destroy('a'), true, 'destroy of a Sprite is true');
SELECT is(sim.counts(), '{"delete": 1}', 'by one request');
SELECT is(sim.vm('a'), NULL::jsonb, 'the VM is gone');
SELECT is((SELECT array_agg(session_key ORDER BY session_key) FROM machine_sessions), '{"of another Sprite","of another server"}', 'with the rows of all its sessions and no other');
SELECT is(sprite_destroy('a'), false, 'destroy of what is gone is false');
INSERT INTO machine_sessions VALUES ('left over', 'sprites', 'a', 'x', 'x:y');
SELECT is(sprite_destroy('a'), false, 'as it is when only a row is left');
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key = 'left over'), 0::bigint, 'which goes too');
SELECT is(reason, 'fresh', 'the name is free') FROM sprite_get_or_create('a', egress_policy());
SELECT is(sim.vm('a')->'policy', egress_policy(), 'and its next VM is locked down');

-- sprite_list is a set; the rest of it is a test of its own
SELECT is((SELECT array_agg(name ORDER BY name) FROM sprite_list()), '{a,b,open}', 'list has what there is');

SELECT * FROM finish();
