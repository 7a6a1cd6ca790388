-- Settings that change what a hand-back does.
SELECT plan(20);
CREATE FUNCTION hand_back(name text, policy jsonb DEFAULT egress_policy()) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT reason FROM sprite_get_or_create(name, policy)); EXCEPTION WHEN query_canceled OR OTHERS THEN RETURN SQLSTATE; END $$;

-- verify_push
SET sprite_lockdown.verify_push = 'identity';
SELECT is(hand_back('i'), 'fresh', 'identity: pushes');
SELECT is(sim.counts(), '{"get": 2, "create": 1, "policy_set": 1, "exec": 1}', 'without reading the policy back');
SELECT sim.switch('{"replace_between": "policy_verify"}');
SELECT is(hand_back('i2'), 'SP007', 'but sees another VM');
SELECT sim.reset();
SET sprite_lockdown.verify_push = 'off';
SELECT is(hand_back('o'), 'fresh', 'off: pushes');
SELECT is(sim.counts(), '{"get": 1, "create": 1, "policy_set": 1, "exec": 1}', 'and believes the platform');
SELECT sim.fault('{"kind": "policy_set", "name": "o2", "drop": "after"}');
SELECT is(hand_back('o2'), 'fresh', 'off: a reply that was lost');
SELECT is((sim.vm('o2')->>'pushes')::int, 2, 'is not settled by looking, so the push is made again');
RESET sprite_lockdown.verify_push;
SELECT sim.switch('{"policy_set": "204_not_stored"}');
SELECT is(hand_back('p'), 'SP007', 'policy, the default: believes only what it reads');

-- policy_check
SELECT sim.reset();
SELECT is(hand_back('w', '{"rules": [{"domain": "a.com", "action": "allow"}]}'), '22023', 'strict, the default: a policy with an error is refused');
SELECT is(sim.requests(), 0, 'before any request');
SET sprite_lockdown.policy_check = 'warn';
SET client_min_messages = error;
SELECT is(hand_back('w', '{"rules": [{"domain": "a.com", "action": "allow"}]}'), 'fresh', 'warn: it is pushed');
SELECT is(hand_back('w2', '{"rules": [{"domain": 7}]}'), '22023', 'but what is no policy is refused all the same');
RESET client_min_messages;
RESET sprite_lockdown.policy_check;

-- call_timeout bounds all of it
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "status": 503, "times": 99}');
SET sprite_lockdown.call_timeout = '1200ms';
SET sprite_lockdown.max_attempts = 10;
CREATE TEMP TABLE started AS SELECT clock_timestamp() AS at;
SELECT is(hand_back('budget'), 'SP003', 'a call whose time is used up raises what failed last');
SELECT ok(clock_timestamp() - at < interval '2 s', 'in time') FROM started;
SELECT is(sim.requests('policy_set'), 2, 'and does not begin a try that cannot end');
SELECT is(sim.vm('budget'), NULL::jsonb, 'the undo has time of its own');
SET sprite_lockdown.call_timeout = '300ms';
SELECT sim.hold('{"kind": "get", "name": "budget2"}');
SELECT is(hand_back('budget2'), '08006', 'a request is cut off when the call''s time is');
SELECT sim.release();
RESET sprite_lockdown.call_timeout;
-- max_attempts
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "status": 503, "times": 2}');
SET sprite_lockdown.max_attempts = 2;
SELECT is(hand_back('two'), 'SP003', 'two tries are two');
-- connect_timeout
ALTER SERVER sprites OPTIONS (SET api_url 'https://127.0.0.1:1');
SELECT is(hand_back('nowhere'), '08001', 'nobody listens');
SELECT sim.point_server();
SELECT is(hand_back('two'), 'fresh', 'the backend is none the worse');

SELECT * FROM finish();
