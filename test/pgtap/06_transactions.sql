-- A hand-back in transactions of every kind, several in one, and in SQL of every form.
SELECT plan(33);
CREATE FUNCTION reason(name text, policy jsonb DEFAULT egress_policy(), session_key text DEFAULT NULL) RETURNS text LANGUAGE sql AS
$$ SELECT h.reason FROM sprite_get_or_create(name, policy, session_key) AS h $$;

-- isolation levels
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(reason('rr'), 'fresh', 'REPEATABLE READ: create');
SELECT is(reason('rr'), 'proven', 'sees its own row');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(reason('rr'), 'proven', 'SERIALIZABLE: proven');
SELECT is(reason('rr', egress_policy('open')), 'policy_changed', 'and changed');
COMMIT;
SELECT is(reason('rr', egress_policy('open')), 'proven', 'which is there afterwards');

-- a rollback takes the row with it, and the next call does not believe it was there
BEGIN;
SELECT is(reason('rb'), 'fresh', 'a created Sprite');
ROLLBACK;
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key = 'rb'), 0::bigint, 'whose row was rolled back');
SELECT is(reason('rb'), 'no_proof', 'is pushed to again');
BEGIN;
SELECT is(reason('sp'), 'fresh', 'before the savepoint');
SAVEPOINT s;
SELECT is(reason('sp2'), 'fresh', 'after it');
ROLLBACK TO s;
SELECT is(reason('sp'), 'proven', 'what was before is there');
SELECT is(reason('sp2'), 'no_proof', 'what was after is not');
COMMIT;
SELECT is((SELECT array_agg(session_key ORDER BY 1) FROM machine_sessions WHERE session_key LIKE 'sp%'), '{sp,sp2}', 'both are there in the end');

-- an error that PL/pgSQL catches
CREATE FUNCTION caught() RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.fault('{"kind": "policy_set", "name": "pl", "status": 400}');
	PERFORM sprite_get_or_create('pl', egress_policy());
	RETURN 'none';
EXCEPTION WHEN SQLSTATE 'SP006' THEN
	RETURN SQLSTATE;
END
$$;
SELECT is(caught(), 'SP006', 'an error can be caught');
SELECT is(sim.vm('pl'), NULL::jsonb, 'the VM is gone nevertheless');
SELECT is(reason('pl'), 'fresh', 'and the transaction goes on');

-- several in one statement
SELECT results_eq($$ SELECT h.name, h.reason FROM unnest('{m1,m2,m3}'::text[]) AS n, LATERAL sprite_get_or_create(n, egress_policy()) AS h ORDER BY 1 $$,
	$$ VALUES ('m1', 'fresh'), ('m2', 'fresh'), ('m3', 'fresh') $$, 'several names in one statement');
SELECT results_eq($$ SELECT h.reason FROM generate_series(1, 3) AS i, LATERAL sprite_get_or_create('m4', CASE WHEN i = 3 THEN egress_policy('open') ELSE egress_policy() END) AS h ORDER BY i $$,
	$$ VALUES ('fresh'), ('proven'), ('policy_changed') $$, 'one name several times in one statement');
SELECT is((SELECT count(*) FROM sim.vms() AS v WHERE (v->>'alive')::boolean AND NOT (v->>'enforced')::boolean), 0::bigint, 'and no VM is left open');

-- forms
PREPARE hand_back AS SELECT reason FROM sprite_get_or_create($1, egress_policy());
SELECT results_eq($$ EXECUTE hand_back('m1') $$, $$ VALUES ('proven') $$, 'a prepared statement');
BEGIN;
DECLARE c CURSOR FOR SELECT h.reason FROM unnest('{m1,m2}'::text[]) AS n, LATERAL sprite_get_or_create(n, egress_policy()) AS h;
SELECT results_eq('FETCH 1 FROM c', $$ VALUES ('proven') $$, 'a cursor');
COMMIT;
CREATE TABLE log (reason text);
INSERT INTO log SELECT reason FROM sprite_get_or_create('m1', egress_policy());
SELECT results_eq('SELECT reason FROM log', $$ VALUES ('proven') $$, 'INSERT ... SELECT');
SELECT sim.clear();
SELECT is(count(*), 1::bigint, 'SELECT * FROM calls once') FROM sprite_get_or_create('m1', egress_policy());
SELECT is(sim.requests(), 1, 'one call, one request');
SELECT sim.clear();
SELECT (sprite_get_or_create('m1', egress_policy())).* INTO TEMP TABLE star;
SELECT is(sim.requests(), 10, 'SELECT (f()).* calls once for each column, as the manual warns');
-- a plan that wants to run in parallel cannot take the call along
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
CREATE TABLE names AS SELECT 'm1'::text AS n FROM generate_series(1, 5);
SELECT is((SELECT count(*) FROM names, LATERAL sprite_get_or_create(n, egress_policy()) AS h WHERE h.reason = 'proven'), 5::bigint, 'a query that could be parallel');
-- nor does a function that claims to be safe
CREATE FUNCTION unsafe(name text) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN (SELECT h.reason FROM sprite_get_or_create(name, egress_policy('open')) AS h); END $$;
CREATE FUNCTION unsafe_destroy(name text) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN sprite_destroy(name); END $$;
-- by its new name, and by its old one
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('debug_parallel_query', 'force_parallel_mode');
SELECT sim.clear();
SELECT throws_ok('SELECT unsafe(n) FROM names', '25000', NULL, 'a hand-back in a parallel worker is refused');
SELECT throws_ok('SELECT unsafe_destroy(n) FROM names', '25000', NULL, 'so is a destroy');
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('debug_parallel_query', 'force_parallel_mode');
SELECT is(sim.requests(), 0, 'and nothing is sent');
SELECT is(reason('m1'), 'proven', 'nor is anything in doubt');

-- several sessions on one Sprite
SELECT is(reason('shared', session_key => 'a'), 'fresh', 'one session');
SELECT is(reason('shared', session_key => 'b'), 'no_proof', 'another session has no proof of its own yet');
SELECT is((SELECT count(*) FROM machine_sessions WHERE sprite_name = 'shared'), 2::bigint, 'two rows for one Sprite');

SELECT * FROM finish();
