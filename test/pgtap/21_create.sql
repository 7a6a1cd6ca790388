-- The create: lost races, lost replies, ids that are not in it, limits.
SELECT plan(49);
SET sprite_lockdown.request_timeout = '2s';
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION hand_back(name text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT reason FROM sprite_get_or_create(name, egress_policy())); EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION is_right(name text) RETURNS boolean LANGUAGE sql AS
$$ SELECT coalesce(sim.vm(name)->'policy' = egress_policy() AND NOT sim.ran_open(name), false) $$;

-- 201 and 200
SELECT sim.switch('{"create_status": 200}');
SELECT is(hand_back('c200'), 'fresh', 'a create may end with 200');
SELECT ok(is_right('c200'), 'and the Sprite is locked down');
SELECT sim.reset();
SELECT sim.switch('{"id_form": "uuid"}');
SELECT is(hand_back('uuid'), 'fresh', 'an id may be a bare UUID');
SELECT is(hand_back('uuid'), 'proven', 'and is compared whole');

-- ids that are not in the reply
SELECT sim.reset();
SELECT sim.switch('{"create_body": "no_id"}');
SELECT is(hand_back('noid'), 'fresh', 'a create without an id');
SELECT is(sim.requests('get'), 3, 'asks for it');
SELECT is(hand_back('noid'), 'proven', 'and is proven all the same');
SELECT sim.reset();
SELECT sim.switch('{"create_body": "empty_id"}');
SELECT is(hand_back('emptyid'), 'fresh', 'an empty id is none');
SELECT is(hand_back('emptyid'), 'proven', 'and is asked for too');

-- a lost race: the name is taken between look and create
CREATE FUNCTION loses_race(duplicate text) RETURNS SETOF text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.reset();
	PERFORM sim.switch(jsonb_build_object('duplicate', duplicate));
	DELETE FROM machine_sessions;
	PERFORM sim.do('race', 'create');
	PERFORM sim.fault('{"kind": "get", "status": 404, "body": {"error": "sprite not found"}}');
	RETURN NEXT is(hand_back('race'), 'no_proof', duplicate || ': a lost race goes on with the winner''s Sprite, as not fresh');
	RETURN NEXT ok(is_right('race'), '... whose policy is pushed');
	RETURN NEXT is(sim.requests('create'), 1, '... after one create');
	-- the winner's VM is not ours to destroy
	PERFORM sim.do('race2', 'create');
	PERFORM sim.fault('{"kind": "get", "name": "race2", "status": 404, "body": {"error": "sprite not found"}}');
	PERFORM sim.fault('{"kind": "policy_set", "name": "race2", "status": 400}');
	RETURN NEXT is(hand_back('race2'), 'SP006', '... a lockdown of it that fails');
	RETURN NEXT isnt(sim.vm('race2'), NULL::jsonb, '... leaves it alone');
END
$$;
SELECT loses_race('409');
SELECT loses_race('400');
-- a 400 that says something else is a refusal
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "status": 400, "body": {"errors": ["invalid region"]}}');
SELECT is(hand_back('bad'), '22023', 'another 400 is a refusal');
SELECT is(sim.requests('create'), 1, 'which is not tried again');
-- the winner deletes its Sprite again before we look
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "name": "flicker", "status": 409, "body": {"error": "A sprite named ''flicker'' already exists."}}');
SELECT is(hand_back('flicker'), 'fresh', 'a name that is taken and then free is tried again');
SELECT sim.fault('{"kind": "create", "name": "ghost", "times": 9, "status": 409, "body": {"error": "A sprite named ''ghost'' already exists."}}');
SELECT is(hand_back('ghost'), 'SP002', 'for ever taken and free is a conflict');
SELECT is(sim.requests('create', 'ghost'), 3, 'after as many tries as allowed');

-- lost replies: never another create without a look
CREATE FUNCTION order_of(name text) RETURNS text LANGUAGE sql AS
$$ SELECT string_agg(l->>'kind', ' ' ORDER BY (l->>'seq')::int) FROM sim.log(name) AS l WHERE l->>'kind' IN ('get', 'create') $$;
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "hang": 30}');
SELECT is(hand_back('hang'), 'fresh', 'a create that hangs before its effect');
SELECT is(order_of('hang'), 'get create get create get', 'is tried again after a look');
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "status": 503}');
SELECT is(hand_back('c503'), 'fresh', 'a create that ends with 503 without effect');
SELECT is(order_of('c503'), 'get create get create get', 'is tried again after a look');
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "status": 504, "apply": true}');
SELECT is(hand_back('c504'), 'no_proof', 'a create that ends with 504 after its effect is found, as not fresh');
SELECT is(order_of('c504'), 'get create get get', 'without another create');
SELECT ok(is_right('c504'), 'and locked down');
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "drop": "after"}');
SELECT is(hand_back('dropped'), 'no_proof', 'a create whose connection breaks after its effect is found, as not fresh');
SELECT is(order_of('dropped'), 'get create get get', 'without another create, not even one of libcurl''s own');
SELECT ok(is_right('dropped'), 'and locked down');
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "drop": "mid"}');
SELECT is(hand_back('mid'), 'fresh', 'a reply that is cut after 201 is a create');
SELECT is(order_of('mid'), 'get create get get', 'whose id is asked for');
SELECT ok(is_right('mid'), 'and which is locked down');

-- a 201 whose body makes no sense: created, so destroyed again
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "body": "{\"name\": \"other\", \"id\": \"x\", \"status\": \"cold\", \"url\": \"u\"}"}');
SELECT is(hand_back('wrong'), '08P01', 'a 201 about another Sprite makes no sense');
SELECT is(sim.vm('wrong'), NULL::jsonb, 'what it created is destroyed');

-- limits
SELECT sim.reset();
SELECT sim.switch('{"rate_limit": {"create": 0}}');
SET sprite_lockdown.call_timeout = '5s';
SELECT is(hand_back('limited'), 'SP001', 'a create over the limit is SP001');
SELECT is(sim.requests('create'), 1, 'it is not tried again before its time, and its time is not within ours');
RESET sprite_lockdown.call_timeout;
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "status": 429, "headers": {"Retry-After": "1"}}');
SELECT is(hand_back('later'), 'fresh', 'one that may come back soon does');
SELECT ok((SELECT max((l->>'time')::float8) - min((l->>'time')::float8) >= 1 FROM sim.log('later') AS l WHERE l->>'kind' = 'create'), 'not before its time');
SELECT sim.fault('{"kind": "create", "status": 429, "body": {"error": "x", "retry_after_seconds": 1}, "headers": {"Retry-After": "3600"}}');
SELECT is(hand_back('body'), 'fresh', 'the body''s time goes before the header''s');
SELECT sim.fault('{"kind": "create", "status": 429, "body": "slow down"}');
SELECT is(hand_back('none'), 'fresh', 'without a time there is a short pause');

-- creating is tried as often as allowed
SELECT sim.reset();
SELECT sim.fault('{"kind": "create", "status": 503, "times": 9}');
SELECT is(hand_back('down'), 'SP003', 'a platform that stays down');
SELECT is(sim.requests('create'), 3, 'is tried three times');
SET sprite_lockdown.max_attempts = 1;
SELECT sim.clear();
SELECT is(hand_back('down'), 'SP003', 'or once');
SELECT is(sim.requests('create'), 1, 'if so set');

SELECT * FROM finish();
