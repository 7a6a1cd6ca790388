-- Push, read-back and workspace: what is tried again, what is settled by looking, what
-- is never taken for a lockdown.
SELECT plan(56);
SET sprite_lockdown.request_timeout = '2s';
CREATE FUNCTION hand_back(name text, policy jsonb DEFAULT egress_policy()) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT reason FROM sprite_get_or_create(name, policy)); EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION is_right(name text, policy jsonb DEFAULT egress_policy()) RETURNS boolean LANGUAGE sql AS
$$ SELECT coalesce(sim.vm(name)->'policy' = policy AND NOT sim.ran_open(name), false) $$;
CREATE FUNCTION pause(kind text) RETURNS float8 LANGUAGE sql AS
$$ SELECT max((l->>'time')::float8) - min((l->>'time')::float8) FROM sim.log() AS l WHERE l->>'kind' = kind $$;

-- every form of success
CREATE FUNCTION succeeds(mode text) RETURNS SETOF text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.reset(), sim.switch(jsonb_build_object('policy_set', mode));
	RETURN NEXT is(hand_back('ok-' || split_part(mode, '_', 1)), 'fresh', format('a push that ends as %s', mode));
	RETURN NEXT ok(is_right('ok-' || split_part(mode, '_', 1)), '... is one');
	DELETE FROM machine_sessions;
END
$$;
SELECT succeeds('204');
SELECT succeeds('200_body');
SELECT succeeds('200_empty');
CREATE FUNCTION lies(mode text) RETURNS SETOF text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.reset(), sim.switch(jsonb_build_object('policy_set', mode));
	RETURN NEXT is(hand_back('lie'), 'SP007', format('a push that ends as %s', mode));
	RETURN NEXT is(sim.vm('lie'), NULL::jsonb, '... is none, and the VM is destroyed');
	RETURN NEXT is((SELECT count(*) FROM machine_sessions WHERE session_key = 'lie'), 0::bigint, '... without a row');
END
$$;
SELECT lies('200_fewer');
SELECT lies('204_not_stored');

-- equal as a set
SELECT sim.reset(), sim.switch('{"policy_get": "reordered"}');
SELECT is(hand_back('set1'), 'fresh', 'rules in another order are the same policy');
SELECT sim.switch('{"policy_get": "key_order"}');
SELECT is(hand_back('set2'), 'fresh', 'so are keys in another order');
SELECT sim.reset();
SELECT is(hand_back('set3', '{"rules": [{"domain": "a.com", "action": "allow"}, {"domain": "a.com", "action": "allow"}, {"domain": "*", "action": "deny"}]}'), 'fresh', 'and repeated rules');
SELECT sim.fault('{"kind": "policy_get", "body": "{\"rules\": [{\"domain\": \"*\", \"action\": \"deny\", \"include\": null}], \"version\": 3}"}');
SELECT is(hand_back('set4'), 'fresh', 'a null member is an absent one, and other fields are not looked at');
SELECT sim.fault('{"kind": "policy_get", "body": "{\"rules\": [{\"domain\": \"*\", \"action\": \"deny\", \"ports\": \"443\"}]}"}');
SELECT is(hand_back('set5'), 'SP007', 'a member that was not pushed makes another policy');
SELECT sim.fault('{"kind": "policy_get", "body": "{\"rules\": [{\"domain\": \"*\", \"action\": \"deny\", \"ports\": [443]}]}"}');
SELECT is(hand_back('set6'), 'SP007', 'whatever its type');
SELECT sim.fault('{"kind": "policy_get", "body": "{\"rules\": null}"}');
SELECT is(hand_back('set7'), 'SP007', 'null rules are no rules');
SELECT sim.fault('{"kind": "policy_get", "body": "{}"}');
SELECT is(hand_back('set8'), 'SP007', 'so are absent ones');

-- what fails in passing is tried again, alone
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "status": 503, "times": 2}');
SELECT is(hand_back('again'), 'fresh', 'a push that fails twice with 503');
SELECT is(sim.counts(), '{"get": 2, "create": 1, "policy_set": 3, "policy_get": 1, "exec": 1}', 'is tried again, and nothing else is');
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "status": 500, "apply": true}');
SELECT is(hand_back('after'), 'fresh', 'a push that fails after its effect');
SELECT ok(is_right('after'), 'is simply made again');
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "status": 429, "headers": {"Retry-After": "1"}}');
SELECT is(hand_back('slower'), 'fresh', 'a push over the rate');
SELECT ok(pause('policy_set') >= 1, 'waits as long as the platform asks');
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "status": 503, "times": 9}');
SELECT is(hand_back('never'), 'SP003', 'a push that never succeeds');
SELECT is(sim.requests('policy_set'), 3, 'is tried three times');
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "status": 403}');
SELECT is(hand_back('no'), 'SP004', 'a push that is forbidden');
SELECT is(sim.requests('policy_set'), 1, 'is not tried again');
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_get", "status": 502, "times": 2}');
SELECT sim.fault('{"kind": "get", "skip": 1, "status": 503, "times": 2}');
SELECT is(hand_back('readback'), 'fresh', 'a read-back and a look that fail in passing');
SELECT is(sim.counts(), '{"get": 4, "create": 1, "policy_set": 1, "policy_get": 3, "exec": 1}', 'are tried again, without another push');

-- a reply that was lost
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "drop": "after"}');
SELECT is(hand_back('lost'), 'fresh', 'a push whose reply is lost after its effect');
SELECT is((sim.vm('lost')->>'pushes')::int, 1, 'is settled by what the VM says, without another push');
SELECT sim.reset();
SELECT sim.fault('{"kind": "policy_set", "hang": 30}');
SELECT is(hand_back('lost2'), 'fresh', 'one whose reply is lost before it');
SELECT ok(is_right('lost2'), 'is made again');

-- another VM in between
SELECT sim.reset(), sim.switch('{"replace_between": "create_policy"}');
SELECT is(hand_back('between'), 'SP007', 'a VM that was replaced before the push');
SELECT is(sim.vm('between')->>'created_by', 'control', 'the other client''s VM is not destroyed');
SELECT sim.reset(), sim.switch('{"replace_between": "policy_verify"}');
SELECT is(hand_back('between'), 'SP007', 'one that was replaced after the push');
SELECT is(sim.vm('between')->>'created_by', 'control', 'neither');
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key = 'between'), 0::bigint, 'no row came of it');
SELECT ok(NOT sim.ran_open('between'), 'and nothing ran in the open VM');
SELECT sim.switch('{"replace_between": "none"}');
SELECT is(hand_back('between'), 'no_proof', 'the next call locks the new VM down');
SELECT ok(is_right('between'), 'before anything runs in it');

-- the workspace
SELECT sim.reset();
SELECT sim.fault('{"kind": "exec", "status": 502, "times": 2}');
SELECT is(hand_back('ws1'), 'fresh', 'a mkdir that fails in passing is tried again');
SELECT sim.fault('{"kind": "exec", "body": "\u0001some output"}');
SELECT is(hand_back('ws2'), 'fresh', 'so is one without an exit message');
SELECT sim.fault('{"kind": "exec", "drop": "mid", "times": 1}');
SELECT is(hand_back('ws3'), 'fresh', 'and one whose reply is cut, though it ends like an exit');
SELECT sim.switch('{"exec_framing": "no_exit"}');
SELECT is(hand_back('ws4'), 'SP007', 'a mkdir that never reports its end is no success');
SELECT is(sim.vm('ws4'), NULL::jsonb, 'and the fresh VM is destroyed');
SELECT sim.switch('{"exec_framing": "merged"}');
SELECT is(hand_back('ws5'), 'fresh', 'messages in one chunk');
SELECT sim.switch('{"exec_framing": "split"}');
SELECT is(hand_back('ws6'), 'fresh', 'messages cut anywhere');
SELECT sim.switch('{"exec_framing": "chunks"}');
SELECT sim.fault('{"kind": "exec", "raw_hex": "485454502f312e3120323030204f4b0d0a436f6e74656e742d547970653a206170706c69636174696f6e2f6f637465742d73747265616d0d0a436f6e6e656374696f6e3a20636c6f73650d0a0d0a0300", "times": 3}');
SELECT is(hand_back('ws7'), 'SP007', 'an end that might be a cut is none');
SELECT sim.fault('{"kind": "exec", "body": "\u0002mkdir: cannot create directory\u0003\u0001"}');
SELECT is(hand_back('ws8'), 'SP007', 'an exit code other than 0');
SELECT is(sim.requests('exec', 'ws8'), 1, 'is not tried again');

-- a VM that hangs until it is up
SET sprite_lockdown.request_timeout = '300ms';
SELECT sim.hold('{"kind": "exec", "name": "boot", "times": 2}');
SELECT is(hand_back('boot'), 'fresh', 'a mkdir that hangs until the VM is up');
SELECT is(sim.requests('exec', 'boot'), 3, 'is tried again');

SELECT * FROM finish();
