-- The first look: only 404 and 410 mean absent; everything else surfaces, and creates nothing.
SELECT plan(33);
SET sprite_lockdown.request_timeout = '2s';
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;

SELECT sim.switch('{"missing": "410"}');
SELECT is(reason, 'fresh', '410 is absent') FROM sprite_get_or_create('a410', egress_policy());
SELECT ok(sprite_attach('b410') IS NULL, 'to attach too');
SELECT is(sprite_destroy('b410'), false, 'and to destroy');

-- a platform that answers 500 for what does not exist
SELECT sim.reset();
SELECT sim.switch('{"missing": "500"}');
SELECT is(reason, 'fresh', 'a 500 is settled with the list: absent there, so it may be created') FROM sprite_get_or_create('a500', egress_policy());
SELECT is(sim.requests('list'), 1, 'the list was asked');
SELECT ok(sprite_attach('b500') IS NULL, 'attach to what is absent is NULL');
SELECT is(sprite_destroy('b500'), false, 'destroy of what is absent is false');
SELECT is((SELECT would_create FROM sprite_lockdown_plan('b500', egress_policy())), true, 'and a plan would create it');

-- a 500 for what exists
SELECT sim.reset();
SELECT sim.do('x500', 'create');
SELECT sim.fault('{"kind": "get", "status": 500, "body": {"error": "failed to retrieve sprite"}}');
SELECT is(code_of($$ SELECT sprite_get_or_create('x500', egress_policy()) $$), 'SP003', 'a 500 for what is in the list is a failure');
SELECT is(sim.requests('create') + sim.requests('policy_set'), 0, 'nothing is created or pushed');
-- a 500 while the list cannot tell either
SELECT sim.fault('{"kind": "get", "status": 500}');
SELECT sim.fault('{"kind": "list", "status": 500}');
SELECT is(code_of($$ SELECT sprite_get_or_create('y500', egress_policy()) $$), 'SP003', 'a 500 that the list cannot settle is a failure');
SELECT sim.fault('{"kind": "get", "status": 500}');
SELECT sim.fault('{"kind": "list", "body": "{\"sprites\": [], \"next_continuation_token\": 7}"}');
SELECT is(code_of($$ SELECT sprite_get_or_create('y500', egress_policy()) $$), 'SP003', 'so is one with a list that makes no sense');
SELECT is(sim.requests('create'), 0, 'nothing is created because of a 500');
-- a name that only begins like it is another
SELECT sim.do('z500-longer', 'create');
SELECT sim.switch('{"missing": "500"}');
SELECT is(reason, 'fresh', 'a longer name in the list is another Sprite') FROM sprite_get_or_create('z500', egress_policy());

-- what surfaces
SELECT sim.reset();
CREATE FUNCTION surfaces(fault jsonb, expected text) RETURNS SETOF text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.reset();
	PERFORM sim.fault('{"kind": "get"}'::jsonb || fault);
	RETURN NEXT is(code_of('SELECT sprite_get_or_create(''s'', egress_policy())'), expected, format('%s surfaces as %s', fault, expected));
	RETURN NEXT is(sim.counts(), '{"get": 1}', '... at once, and creates nothing');
END
$$;
SELECT surfaces('{"status": 401}', 'SP004');
SELECT surfaces('{"status": 403}', 'SP004');
SELECT surfaces('{"status": 429}', 'SP001');
SELECT surfaces('{"status": 502}', 'SP003');
SELECT surfaces('{"status": 503}', 'SP003');
SELECT surfaces('{"hang": 30}', '08006');
SELECT surfaces('{"drop": "mid"}', '08006');
SELECT surfaces('{"status": 302, "headers": {"Location": "http://127.0.0.1:1/v1/sprites/s"}}', '08P01');
-- on a new connection a drop before the reply is not tried again by libcurl either
SELECT sim.reset();
SELECT sim.fault('{"kind": "get", "drop": "before", "times": 5}');
SELECT is(code_of($$ SELECT sprite_get_or_create('s', egress_policy()) $$), '08006', 'a dropped connection surfaces as 08006');
SELECT is(sim.requests('create'), 0, 'and creates nothing');
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key = 's'), 0::bigint, 'no row came of any of it');

SELECT * FROM finish();
