-- A hand-back in every form that SQL and PL/pgSQL have of calling a function: as often as it is
-- called, in the order in which it is called, and with its locks gone at the end.
SELECT plan(45);
CREATE FUNCTION open_vms() RETURNS bigint LANGUAGE sql AS
$$ SELECT count(*) FROM sim.vms() AS v WHERE (v->>'alive')::boolean AND NOT (v->>'enforced')::boolean OR (v->>'exec_while_open')::boolean $$;

-- prepared statements: custom and generic plans, and a policy that is a parameter
PREPARE hand_back(text, jsonb) AS SELECT reason FROM sprite_get_or_create($1, $2);
SELECT results_eq($$ EXECUTE hand_back('p', egress_policy()) $$, $$ VALUES ('fresh') $$, 'prepared: created');
SELECT results_eq($$ EXECUTE hand_back('p', egress_policy()) $$, $$ VALUES ('proven') $$, 'proven');
SELECT results_eq($$ EXECUTE hand_back('p', egress_policy('open')) $$, $$ VALUES ('policy_changed') $$, 'changed');
SET plan_cache_mode = force_generic_plan;
SELECT results_eq($$ EXECUTE hand_back('p', egress_policy()) $$, $$ VALUES ('policy_changed') $$, 'the same with a generic plan');
SELECT results_eq($$ EXECUTE hand_back('p2', egress_policy()) $$, $$ VALUES ('fresh') $$, 'for another name');
RESET plan_cache_mode;
DEALLOCATE hand_back;

-- cursors
SELECT sim.clear();
BEGIN;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT n, h.reason FROM unnest('{c1,c2,c3}'::text[]) AS n, LATERAL sprite_get_or_create(n, egress_policy()) AS h;
SELECT results_eq('FETCH 2 FROM c', $$ VALUES ('c1', 'fresh'), ('c2', 'fresh') $$, 'a cursor that is read in part');
SELECT is(sim.requests('create'), 2, 'has called as often as it was read');
COMMIT;
SELECT results_eq('FETCH ALL FROM c', $$ VALUES ('c3', 'fresh') $$, 'one that is held past its transaction');
SELECT is(sim.requests('create'), 3, 'has called for the rest at the commit');
MOVE ABSOLUTE 0 IN c;
SELECT results_eq('FETCH ALL FROM c', $$ VALUES ('c1', 'fresh'), ('c2', 'fresh'), ('c3', 'fresh') $$, 'and can be read again');
SELECT is(sim.requests('get', 'c1'), 2, 'without another call');
CLOSE c;
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key ~ '^c[123]$'), 3::bigint, 'all of it is recorded');

-- one name twice in one statement
SELECT results_eq($$ SELECT (a).reason, (b).reason FROM (SELECT sprite_get_or_create('t', egress_policy()) AS a, sprite_get_or_create('t', egress_policy()) AS b OFFSET 0) AS s $$, $$ SELECT 'fresh', 'proven' $$, 'two calls in a target list');
SELECT results_eq($$ WITH a AS MATERIALIZED (SELECT reason FROM sprite_get_or_create('t', egress_policy('open'))), b AS MATERIALIZED (SELECT a.reason AS first, h.reason FROM a, LATERAL sprite_get_or_create('t', egress_policy('open')) AS h) SELECT * FROM b $$,
	$$ VALUES ('policy_changed', 'proven') $$, 'two in a query WITH');
SELECT results_eq($$ SELECT reason FROM sprite_get_or_create('t', egress_policy()) UNION ALL SELECT reason FROM sprite_get_or_create('t', egress_policy('open')) UNION ALL SELECT reason FROM sprite_get_or_create('t', egress_policy('open')) $$,
	$$ VALUES ('policy_changed'), ('policy_changed'), ('proven') $$, 'three that contradict each other: each gets what it asks for');
SELECT is(sim.vm('t')->'policy', egress_policy('open'), 'and the VM runs what was asked for last');
SELECT is((SELECT egress_policy_token FROM machine_sessions WHERE session_key = 't'), lockdown_token(sim.vm('t')->>'id', hash_egress_policy('open')), 'as its row says');
-- by two functions
SELECT results_eq($$ SELECT h.reason, e.reason, a.status, p.reason FROM sprite_get_or_create('t2', egress_policy()) AS h, LATERAL sprite_ensure_lockdown(h.name, egress_policy(), h.egress_policy_token) AS e,
	LATERAL sprite_attach(e.name) AS a, LATERAL sprite_lockdown_plan(a.name, egress_policy()) AS p $$, $$ VALUES ('fresh', 'proven', 'running', 'proven') $$, 'one after the other in one statement');

-- within other statements
CREATE TABLE work (id int PRIMARY KEY, sprite text, reason text, handle sprite_handle);
INSERT INTO work (id, sprite, handle) SELECT i, h.name, h FROM generate_series(1, 3) AS i, LATERAL sprite_get_or_create('w' || i, egress_policy()) AS h;
SELECT results_eq('SELECT sprite, (handle).reason FROM work ORDER BY id', $$ VALUES ('w1', 'fresh'), ('w2', 'fresh'), ('w3', 'fresh') $$, 'INSERT');
UPDATE work SET reason = (SELECT h.reason FROM sprite_get_or_create(work.sprite, egress_policy()) AS h);
SELECT results_eq('SELECT reason FROM work', $$ VALUES ('proven'), ('proven'), ('proven') $$, 'UPDATE');
SELECT results_eq($$ DELETE FROM work WHERE sprite_destroy(sprite) RETURNING id $$, $$ VALUES (1), (2), (3) $$, 'DELETE');
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key LIKE 'w_'), 0::bigint, 'of all of them');
CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN SELECT h.reason INTO NEW.reason FROM sprite_get_or_create(NEW.sprite, egress_policy()) AS h; RETURN NEW; END $$;
CREATE TRIGGER on_insert BEFORE INSERT ON work FOR EACH ROW EXECUTE FUNCTION on_insert();
SELECT results_eq($$ INSERT INTO work VALUES (4, 'w4'), (5, 'w5') RETURNING reason $$, $$ VALUES ('fresh'), ('fresh') $$, 'a trigger');
CREATE FUNCTION wrapper(name text) RETURNS text LANGUAGE sql AS $$ SELECT reason FROM sprite_get_or_create(name, egress_policy()) $$;
SELECT results_eq($$ SELECT wrapper('w4') FROM generate_series(1, 2) $$, $$ VALUES ('proven'), ('proven') $$, 'an SQL function');

-- PL/pgSQL
CREATE FUNCTION forms() RETURNS SETOF text LANGUAGE plpgsql AS
$$
DECLARE
	h sprite_handle;
	r record;
	reasons text;
BEGIN
	h := sprite_get_or_create('f', egress_policy());
	RETURN NEXT h.reason;
	SELECT * INTO STRICT h FROM sprite_get_or_create('f', egress_policy());
	RETURN NEXT h.reason;
	SELECT * INTO r FROM sprite_get_or_create('f', egress_policy('open'));
	RETURN NEXT r.reason;
	EXECUTE 'SELECT reason FROM sprite_get_or_create($1, $2)' INTO reasons USING 'f', egress_policy();
	RETURN NEXT reasons;
	PERFORM sprite_get_or_create('f', egress_policy('open'));
	FOR r IN SELECT reason FROM sprite_get_or_create('f', egress_policy('open')) LOOP
		RETURN NEXT r.reason;
	END LOOP;
	IF (sprite_get_or_create('f', egress_policy())).applied THEN
		RETURN NEXT 'applied';
	END IF;
END
$$;
SELECT results_eq('SELECT forms()', $$ VALUES ('fresh'), ('proven'), ('policy_changed'), ('policy_changed'), ('proven'), ('applied') $$, 'assignment, INTO, EXECUTE, PERFORM, FOR and IF');

-- a loop in which some fail: those are undone and the others stay
CREATE FUNCTION some_fail() RETURNS SETOF text LANGUAGE plpgsql AS
$$
DECLARE
	n text;
BEGIN
	FOREACH n IN ARRAY '{l1,l2,l3,l4}'::text[] LOOP
		BEGIN
			RETURN NEXT n || ' ' || (sprite_get_or_create(n, egress_policy())).reason;
		EXCEPTION WHEN SQLSTATE 'SP006' THEN
			RETURN NEXT n || ' ' || SQLSTATE;
		END;
	END LOOP;
END
$$;
SELECT sim.fault('{"kind": "policy_set", "name": "l2", "status": 400}'), sim.fault('{"kind": "policy_set", "name": "l4", "status": 400}');
SELECT results_eq('SELECT some_fail()', $$ VALUES ('l1 fresh'), ('l2 SP006'), ('l3 fresh'), ('l4 SP006') $$, 'a loop goes on after what fails');
SELECT is((SELECT array_agg(session_key ORDER BY session_key) FROM machine_sessions WHERE session_key LIKE 'l_'), '{l1,l3}', 'what succeeded is recorded');
SELECT is((SELECT array_agg(v->>'name' ORDER BY v->>'name') FROM sim.vms() AS v WHERE (v->>'alive')::boolean AND v->>'name' LIKE 'l_'), '{l1,l3}', 'and has a VM, and nothing else');

-- a procedure that commits between calls gives each lock back
CREATE PROCEDURE one_by_one(INOUT locks int[]) LANGUAGE plpgsql AS
$$
BEGIN
	FOR i IN 1..3 LOOP
		PERFORM sprite_get_or_create('o' || i, egress_policy());
		locks := locks || (SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory');
		COMMIT;
		locks := locks || (SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory');
	END LOOP;
END
$$;
CALL one_by_one('{}') \gset
SELECT is(:'locks'::text, '{2,0,2,0,2,0}', 'the locks end with their transaction');
BEGIN;
SELECT is((SELECT count(DISTINCT (h).name) FROM (SELECT sprite_get_or_create('o' || i, egress_policy()) AS h FROM generate_series(1, 3) AS i OFFSET 0) AS s), 3::bigint, 'three in one transaction');
SELECT is((SELECT array_agg(mode || ' ' || granted) FROM pg_locks WHERE locktype = 'advisory'), array_fill('ExclusiveLock true'::text, '{3}'), 'hold a lock each');
SAVEPOINT s;
SELECT is((SELECT reason FROM sprite_get_or_create('o4', egress_policy())), 'fresh', 'a fourth after a savepoint');
ROLLBACK TO s;
SELECT is((SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), 3::bigint, 'gives its own back when that is rolled back');
COMMIT;
SELECT is((SELECT reason FROM sprite_get_or_create('o4', egress_policy())), 'no_proof', 'and is not believed');
-- an application's own advisory locks are others
SELECT pg_advisory_lock(i) FROM generate_series(1, 100) AS i;
SELECT is((SELECT reason FROM sprite_get_or_create('o4', egress_policy())), 'proven', 'advisory locks of the application are none of ours');
SELECT pg_advisory_unlock_all();

-- isolation levels, with several names and calls
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT results_eq($$ SELECT h.reason FROM unnest('{i1,i2,i1}'::text[]) WITH ORDINALITY AS u(n, o), LATERAL sprite_get_or_create(n, egress_policy()) AS h ORDER BY o $$, $$ VALUES ('fresh'), ('fresh'), ('proven') $$, 'SERIALIZABLE: several in one statement');
SELECT is(sprite_destroy('i2'), true, 'one is destroyed');
SELECT is((SELECT reason FROM sprite_get_or_create('i2', egress_policy())), 'fresh', 'and created again');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT results_eq($$ SELECT h.reason FROM unnest('{i1,i2,i3}'::text[]) AS n, LATERAL sprite_get_or_create(n, egress_policy()) AS h $$, $$ VALUES ('proven'), ('proven'), ('fresh') $$, 'REPEATABLE READ: what was before and what is new');
COMMIT;
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key LIKE 'i_'), 3::bigint, 'all of it is there');

-- the backend's state: plans that are thrown away, settings that are reset, the extension made anew
DISCARD PLANS;
SELECT is((SELECT reason FROM sprite_get_or_create('i1', egress_policy())), 'proven', 'after DISCARD PLANS');
ALTER TABLE machine_sessions ADD COLUMN note text DEFAULT 'n';
SELECT is((SELECT reason FROM sprite_get_or_create('i1', egress_policy('open'))), 'policy_changed', 'after the table was altered');
SELECT is((SELECT note FROM machine_sessions WHERE session_key = 'i1'), 'n', 'whose other columns are left alone');
DROP TABLE work;
SET client_min_messages = warning;
DROP EXTENSION sprite_lockdown CASCADE;
CREATE EXTENSION sprite_lockdown SCHEMA sprite;
SELECT sim.point_server();
RESET client_min_messages;
SELECT is((SELECT reason FROM sprite_get_or_create('i1', egress_policy('open'))), 'no_proof', 'after the extension was dropped and made anew, which has no proof of anything');
SELECT is(open_vms(), 0::bigint, 'no VM was ever left open');

SELECT * FROM finish();
