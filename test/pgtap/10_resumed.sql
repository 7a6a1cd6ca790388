-- A VM that was there before the call is never destroyed by a lockdown that fails, whatever
-- the reason for the push and wherever it fails; and sprite_ensure_lockdown without a token
-- always pushes.
SELECT plan(69);
SET sprite_lockdown.max_attempts = 1;
SET sprite_lockdown.request_timeout = '1s';
\set wanted 'egress_policy(''allowlist'', ''{github.com}'')'

-- Brings about that the next call for the wanted policy has this reason to push, and returns the VM's id.
CREATE FUNCTION prepare(reason text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.reset();
	DELETE FROM machine_sessions;
	DELETE FROM lockdown_journal;
	SET sprite_lockdown.proof_max_age = 0;
	IF reason = 'no_proof' THEN
		PERFORM sim.do('r', 'create');
	ELSE
		PERFORM sprite_get_or_create('r', CASE WHEN reason = 'policy_changed' THEN egress_policy() ELSE egress_policy('allowlist', '{github.com}') END);
	END IF;
	CASE reason
		WHEN 'replaced' THEN PERFORM sim.do('r', 'replace');
		WHEN 'no_identity' THEN PERFORM sim.switch('{"id_form": "none"}');
		WHEN 'in_doubt' THEN INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, action, epoch) VALUES (current_user, 'sprites', 'r', 'intent', 'push', '-');
		WHEN 'epoch_changed' THEN UPDATE lockdown_journal SET epoch = 'another';
		WHEN 'expired' THEN UPDATE lockdown_journal SET recorded_at = now() - interval '2 days'; SET sprite_lockdown.proof_max_age = '1d';
		WHEN 'drifted' THEN INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, epoch) SELECT current_user, 'sprites', 'r', 'drifted', epoch FROM lockdown_journal ORDER BY entry_id DESC LIMIT 1;
		ELSE NULL;
	END CASE;
	RETURN sim.vm('r')->>'id';
END
$$;
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN query_canceled OR OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION is_right(name text, policy jsonb) RETURNS boolean LANGUAGE sql AS
$$ SELECT coalesce(sim.vm(name)->'policy' = policy AND NOT sim.ran_open(name), false) $$;

-- One failing lockdown: its SQLSTATE, and that VM and row are what they were.
CREATE FUNCTION keeps(reason text, fault jsonb, code text, call text DEFAULT 'sprite_get_or_create') RETURNS SETOF text LANGUAGE plpgsql AS
$$
DECLARE
	id text := prepare(reason);
	rows_before text := (SELECT string_agg(m::text, ' ') FROM machine_sessions AS m);
	query text := format('SELECT %s(''r'', egress_policy(''allowlist'', ''{github.com}''))', call);
BEGIN
	IF call = 'sprite_get_or_create' THEN
		IF (SELECT p.reason FROM sprite_lockdown_plan('r', egress_policy('allowlist', '{github.com}')) AS p) <> reason THEN
			RAISE EXCEPTION 'the test did not bring about %', reason;
		END IF;
	END IF;
	PERFORM sim.fault(fault);
	RETURN NEXT is(row(code_of(query), sim.vm('r')->>'id', sim.requests('delete'), (SELECT string_agg(m::text, ' ') FROM machine_sessions AS m)),
		row(code, id, 0, rows_before), format('%s, %s, %s: raises %s, and VM and rows are as before', reason, call, fault, code));
	PERFORM sim.clear();
	EXECUTE query;
	RETURN NEXT ok(is_right('r', egress_policy('allowlist', '{github.com}')) AND sim.requests('policy_set') = 1, '... and the next call pushes');
END
$$;
-- each reason
SELECT keeps(r, '{"kind": "policy_set", "status": 503}', 'SP003') FROM unnest('{no_identity,no_proof,replaced,policy_changed,in_doubt,epoch_changed,expired,drifted}'::text[]) AS r;
SELECT keeps(r, '{"kind": "exec", "status": 500}', 'SP003') FROM unnest('{no_identity,no_proof,replaced,policy_changed,in_doubt,epoch_changed,expired,drifted}'::text[]) AS r;
-- each way to fail
SELECT keeps('no_proof', f::jsonb, c) FROM (VALUES
	('{"kind": "policy_set", "status": 400, "body": "invalid policy"}', 'SP006'), ('{"kind": "policy_set", "status": 404}', 'SP005'),
	('{"kind": "policy_set", "status": 401}', 'SP004'), ('{"kind": "policy_set", "hang": 9}', '08006'), ('{"kind": "policy_set", "pretend": true}', 'SP007'),
	('{"kind": "policy_get", "status": 500}', 'SP003'), ('{"kind": "policy_get", "body": "{\"rules\": []}"}', 'SP007'), ('{"kind": "policy_get", "body": "no"}', '08P01'),
	('{"kind": "get", "skip": 1, "status": 502}', 'SP003'), ('{"kind": "get", "skip": 1, "status": 404}', 'SP007'), ('{"kind": "exec", "body": "\u0003\u0001"}', 'SP007'),
	('{"kind": "exec", "hang": 9}', '08006')) AS v(f, c);
-- without a session row
SELECT keeps('no_proof', '{"kind": "policy_set", "status": 503}', 'SP003', 'sprite_ensure_lockdown');
SELECT keeps('no_proof', '{"kind": "exec", "status": 500}', 'SP003', 'sprite_ensure_lockdown');

-- a statement_timeout wherever the call may be
CREATE FUNCTION survives(held text, kind text) RETURNS text LANGUAGE plpgsql AS
$$
DECLARE
	id text := prepare('policy_changed');
BEGIN
	PERFORM sim.hold(jsonb_build_object('kind', kind, 'when', held));
	PERFORM set_config('statement_timeout', '200ms', false);
	RETURN id;
END
$$;
SELECT survives('before', 'policy_set') AS id \gset
SELECT is(code_of(format('SELECT sprite_get_or_create(''r'', %s)', $$egress_policy('allowlist', '{github.com}')$$)), '57014', 'canceled in the push');
SET statement_timeout = 0;
SELECT is(sim.vm('r')->>'id', :'id', 'the VM is kept');
SELECT survives('after', 'exec') AS id \gset
SELECT is(code_of(format('SELECT sprite_get_or_create(''r'', %s)', $$egress_policy('allowlist', '{github.com}')$$)), '57014', 'canceled in the mkdir');
SET statement_timeout = 0;
SELECT is(sim.vm('r')->>'id', :'id', 'the VM is kept');

-- a VM that sleeps is resumed, not replaced
SELECT prepare('no_proof') AS id \gset
SELECT sim.do('r', 'sleep');
SELECT is((SELECT row(reason, sprite_id) FROM sprite_get_or_create('r', :wanted)), row('no_proof'::text, :'id'::text), 'a VM that sleeps is resumed');
SELECT sim.do('r', 'sleep');
SELECT is((SELECT row(reason, sprite_id, status) FROM sprite_get_or_create('r', :wanted)), row('proven'::text, :'id'::text, 'cold'::text), 'and sleeps on when it is proven: its policy survives');

-- sprite_ensure_lockdown without a token
SELECT sim.clear();
SELECT results_eq($$ SELECT reason, applied FROM sprite_ensure_lockdown('r', egress_policy('allowlist', '{github.com}')) UNION ALL
	SELECT reason, applied FROM sprite_ensure_lockdown('r', egress_policy('allowlist', '{github.com}'), NULL) UNION ALL
	SELECT reason, applied FROM sprite_ensure_lockdown('r', egress_policy('allowlist', '{github.com}'), '') $$,
	$$ VALUES ('no_proof', true), ('no_proof', true), ('no_proof', true) $$, 'ensure_lockdown without a token, with NULL and with none, pushes to a VM that a row proves');
SELECT is(sim.requests('policy_set'), 3, 'each time');
SELECT is((SELECT reason FROM sprite_get_or_create('r', :wanted)), 'proven', 'and leaves the row proven, as it pushed the same policy');

SELECT * FROM finish();
