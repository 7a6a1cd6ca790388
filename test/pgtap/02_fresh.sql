-- A fresh Sprite is locked down before its row exists; a lockdown that fails leaves
-- no row and no VM, and raises.
SELECT plan(46);
SET client_min_messages = warning;
CREATE EXTENSION dblink SCHEMA public;

-- while the mkdir is under way, all but the row is there
SELECT sim.hold('{"kind": "exec", "name": "held"}');
SELECT public.dblink_connect('caller', format('host=%s port=%s dbname=%s', split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database()));
SELECT public.dblink_send_query('caller', $$ SELECT reason FROM sprite_get_or_create('held', egress_policy()) $$);
SELECT is(sim.held(), 1, 'a hand-back whose mkdir is under way');
SELECT is(sim.counts(), '{"get": 2, "create": 1, "policy_set": 1, "policy_get": 1, "exec": 1}', 'has pushed and verified');
SELECT is(sim.vm('held')->'policy', egress_policy(), 'its VM runs the policy');
SELECT is(pg_relation_size('machine_sessions'), 0::bigint, 'and no row was written, not even one that nobody else could see');
SELECT is((SELECT string_agg(kind, ' ') FROM lockdown_journal), 'intent', 'nor anything in the journal but the intent');
SELECT sim.release();
SELECT results_eq($$ SELECT reason FROM public.dblink_get_result('caller') AS r(reason text) $$, $$ VALUES ('fresh') $$, 'released, it hands back');
SELECT is((SELECT array_agg(session_key) FROM machine_sessions), '{held}', 'and there is its row');
SELECT public.dblink_disconnect('caller');
SELECT sim.clear();
SET sprite_lockdown.max_attempts = 1;
SET sprite_lockdown.request_timeout = '2s';

SELECT is(reason, 'fresh', 'a hand-back of nothing creates') FROM sprite_get_or_create('a', egress_policy());
SELECT is(sim.counts(), '{"get": 2, "create": 1, "policy_set": 1, "policy_get": 1, "exec": 1}',
          'with one create, one push, one read-back, one look at the id and one mkdir');
SELECT is((SELECT array_agg(l->>'kind' ORDER BY (l->>'seq')::int) FROM sim.log() AS l),
          '{get,create,policy_set,policy_get,get,exec}', 'in this order');
SELECT is((SELECT l->'query' FROM sim.log() AS l WHERE l->>'kind' = 'exec'), '[["cmd", "mkdir"], ["cmd", "-p"], ["cmd", "/workspace"]]',
          'the command is an argv, with no shell');
SELECT is(sim.vm('a')->'policy', egress_policy(), 'the VM runs the asked-for policy');
SELECT ok(NOT sim.ran_open('a'), 'and no command reached it while it was open');
SELECT is((SELECT egress_policy_token FROM machine_sessions WHERE session_key = 'a'),
          sim.vm('a')->>'id' || ':' || hash_egress_policy(), 'the row has the proof');

-- whichever step fails
CREATE FUNCTION fails(fault jsonb, expected text, what text) RETURNS SETOF text LANGUAGE plpgsql AS
$$
DECLARE
	kind text := fault->>'kind';
BEGIN
	PERFORM sim.reset(), sim.fault(fault);
	RETURN NEXT throws_ok('SELECT * FROM sprite_get_or_create(''b'', egress_policy())', expected, NULL, what || ' raises ' || expected);
	RETURN NEXT is((SELECT count(*) FROM machine_sessions WHERE session_key = 'b'), 0::bigint, '... leaves no row');
	RETURN NEXT is(sim.vm('b'), NULL::jsonb, '... and no VM');
	RETURN NEXT ok(NOT sim.ran_open('b'), '... and ran nothing while open');
END
$$;
SELECT fails('{"kind": "policy_set", "status": 503}', 'SP003', 'a failing push');
SELECT fails('{"kind": "policy_set", "status": 400, "body": "invalid policy"}', 'SP006', 'a refused push');
SELECT fails('{"kind": "policy_set", "pretend": true}', 'SP007', 'a push that is accepted and not stored');
SELECT fails('{"kind": "policy_get", "status": 500}', 'SP003', 'a failing read-back');
SELECT fails('{"kind": "get", "skip": 1, "status": 502}', 'SP003', 'a failing look at the id');
SELECT fails('{"kind": "exec", "status": 500}', 'SP003', 'a failing mkdir');
SELECT fails('{"kind": "exec", "body": "\u0002cannot make it\u0003\u0001"}', 'SP007', 'a mkdir with exit code 1');
SELECT fails('{"kind": "exec", "hang": 30}', '08006', 'a mkdir that hangs');

SELECT * FROM finish();
