-- A failing lockdown destroys what this call created and nothing else, within bounds.
SELECT plan(23);
CREATE FUNCTION hand_back(name text, policy jsonb DEFAULT egress_policy()) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT reason FROM sprite_get_or_create(name, policy)); EXCEPTION WHEN query_canceled OR OTHERS THEN RETURN SQLSTATE; END $$;
SET sprite_lockdown.max_attempts = 1;

-- a resumed VM is kept, with its row as it was
SELECT is(hand_back('resumed'), 'fresh', 'a Sprite');
CREATE TEMP TABLE before AS SELECT m.*, sim.vm('resumed')->>'id' AS vm FROM machine_sessions AS m WHERE session_key = 'resumed';
CREATE FUNCTION keeps(fault jsonb) RETURNS SETOF text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.fault(fault);
	RETURN NEXT matches(hand_back('resumed', egress_policy('open')), '^SP', format('a lockdown of a resumed VM that fails: %s', fault));
	RETURN NEXT is(sim.vm('resumed')->>'id', (SELECT vm FROM before), '... keeps the VM');
	RETURN NEXT is((SELECT row(m.session_key, m.sprite_id, m.egress_policy_token, m.updated_at)::text FROM machine_sessions AS m WHERE session_key = 'resumed'),
		(SELECT row(b.session_key, b.sprite_id, b.egress_policy_token, b.updated_at)::text FROM before AS b), '... and the row');
END
$$;
SELECT keeps('{"kind": "policy_set", "status": 503}');
SELECT keeps('{"kind": "policy_get", "status": 503}');
SELECT keeps('{"kind": "exec", "status": 503}');
SELECT is(sim.requests('delete'), 0, 'nothing was deleted');

-- a record that fails takes the VM with it
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'TR001'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON machine_sessions FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT is(hand_back('trigger'), 'TR001', 'a row that cannot be written');
SELECT is(sim.vm('trigger'), NULL::jsonb, 'leaves no VM');
DROP TRIGGER refuse ON machine_sessions;

-- statement_timeout in the middle
SELECT sim.hold('{"kind": "policy_set", "name": "timeout"}');
SET statement_timeout = '300ms';
SELECT is(hand_back('timeout'), '57014', 'statement_timeout in the push');
SET statement_timeout = 0;
SELECT is(sim.vm('timeout'), NULL::jsonb, 'destroys what was created');
SELECT sim.hold('{"kind": "exec", "name": "timeout2"}');
SET statement_timeout = '300ms';
SELECT is(hand_back('timeout2'), '57014', 'statement_timeout in the mkdir');
SET statement_timeout = 0;
SELECT is(sim.vm('timeout2'), NULL::jsonb, 'too');
-- a create that was cut off may not be ours
SELECT sim.hold('{"kind": "create", "name": "timeout3", "when": "after"}');
SET statement_timeout = '300ms';
SELECT is(hand_back('timeout3'), '57014', 'statement_timeout in the create');
SET statement_timeout = 0;
SELECT is(sim.requests('delete', 'timeout3'), 0, 'destroys nothing, as nobody knows whose it is');
SELECT sim.release();
SELECT is(hand_back('timeout3'), 'no_proof', 'the next call adopts it and locks it down');

-- the undo itself is bounded, whatever the platform does
SELECT sim.fault('{"kind": "policy_set", "name": "slow", "status": 400}');
SELECT sim.fault('{"kind": "delete", "name": "slow", "hang": 60}');
CREATE TEMP TABLE started AS SELECT clock_timestamp() AS at;
SELECT is(hand_back('slow'), 'SP006', 'a platform that hangs in the delete');
SELECT ok(clock_timestamp() - at < interval '7 s', 'is not waited for longer than the undo may take') FROM started;
-- the error is that of the lockdown, not that of the undo
SELECT sim.fault('{"kind": "policy_set", "name": "both", "status": 400}');
SELECT sim.fault('{"kind": "delete", "name": "both", "status": 503}');
SELECT is(hand_back('both'), 'SP006', 'an undo that fails hides nothing');

SELECT * FROM finish();
