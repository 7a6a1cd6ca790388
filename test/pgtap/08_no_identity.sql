-- A platform that reports no id is pushed to every time and never recorded as proof; an id
-- that comes or goes during a lockdown confirms nothing.
SELECT plan(46);
CREATE FUNCTION told(name text, policy jsonb DEFAULT egress_policy()) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT reason FROM sprite_get_or_create(name, policy)); EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION is_right(name text, policy jsonb DEFAULT egress_policy()) RETURNS boolean LANGUAGE sql AS
$$ SELECT coalesce(sim.vm(name)->'policy' = policy AND NOT sim.ran_open(name), false) $$;

-- both forms of having no id
CREATE FUNCTION without_id(form text) RETURNS SETOF text LANGUAGE plpgsql AS
$$
DECLARE
	h sprite_handle;
BEGIN
	PERFORM sim.reset(), sim.switch(jsonb_build_object('id_form', form));
	DELETE FROM machine_sessions;
	DELETE FROM lockdown_journal;
	SELECT * INTO h FROM sprite_get_or_create('n', egress_policy());
	RETURN NEXT is(row(h.fresh, h.applied, h.reason, h.sprite_id, h.egress_policy_token, h.policy_hash), row(true, true, 'fresh'::text, NULL::text, NULL::text, hash_egress_policy()),
		form || ': a create without identity hands back, without a token');
	FOR i IN 1..3 LOOP
		PERFORM sim.clear();
		SELECT * INTO h FROM sprite_get_or_create('n', egress_policy());
		RETURN NEXT is(row(h.fresh, h.applied, h.reason, h.sprite_id, h.egress_policy_token), row(false, true, 'no_identity'::text, NULL::text, NULL::text), format('%s: call %s finds nothing to prove', form, i));
		RETURN NEXT is(sim.counts(), '{"get": 2, "policy_set": 1, "policy_get": 1, "exec": 1}', '... so it pushes and verifies');
	END LOOP;
	RETURN NEXT is((SELECT array_agg(row(session_key, server_name, sprite_name, sprite_id, egress_policy_token)::text) FROM machine_sessions), '{"(n,sprites,n,,)"}', '... and there is one row, without proof');
	RETURN NEXT is((SELECT count(*) FROM lockdown_journal WHERE sprite_id IS NOT NULL), 0::bigint, '... and no identity in the journal');
	SELECT * INTO h FROM sprite_ensure_lockdown('n', egress_policy(), 'n:' || hash_egress_policy());
	RETURN NEXT is(row(h.applied, h.reason, h.egress_policy_token), row(true, 'no_identity'::text, NULL::text), '... whatever token a caller brings');
	RETURN NEXT is((SELECT row(p."exists", p.sprite_id, p.would_create, p.would_apply, p.reason) FROM sprite_lockdown_plan('n', egress_policy()) AS p), row(true, NULL::text, false, true, 'no_identity'::text), '... which a plan knows');
	RETURN NEXT is((sprite_attach('n')).sprite_id, NULL, '... attach has no id either');
	RETURN NEXT is((SELECT count(*) FROM sprite_list() WHERE name = 'n' AND sprite_id IS NULL), 1::bigint, '... nor the list');
	RETURN NEXT ok(is_right('n'), '... and the VM is locked down all the time');
END
$$;
SELECT without_id('none');
SELECT without_id('empty');

-- an id that comes later: what was done before it is no proof
SELECT sim.switch('{"id_form": "sprite-uuid"}');
SELECT is(told('n'), 'no_proof', 'an id that is there at last begins without proof');
SELECT is(told('n'), 'proven', 'and is then proven');

-- an id that goes and comes back: the proof does not come back with it
CREATE TEMP TABLE kept AS SELECT * FROM sprite_ensure_lockdown('n', egress_policy(), lockdown_token(sim.vm('n')->>'id', hash_egress_policy()));
SELECT is(reason, 'proven', 'a caller keeps a token') FROM kept;
INSERT INTO machine_sessions (session_key, server_name, sprite_name, sprite_id, egress_policy_token) SELECT 'second', server_name, sprite_name, sprite_id, egress_policy_token FROM machine_sessions WHERE session_key = 'n';
SELECT sim.switch('{"id_form": "none"}');
SELECT is(told('n', egress_policy('open')), 'no_identity', 'the id is gone, another policy is pushed');
SELECT is((SELECT array_agg(session_key ORDER BY session_key) FROM machine_sessions WHERE sprite_id IS NULL AND egress_policy_token IS NULL), '{n,second}', 'no session of the Sprite keeps its proof');
SELECT sim.switch('{"id_form": "sprite-uuid"}');
SELECT is(h.reason, 'in_doubt', 'the caller''s old token, right once, does not help') FROM kept, LATERAL sprite_ensure_lockdown('n', egress_policy(), kept.egress_policy_token) AS h;
SELECT ok(is_right('n'), 'its policy is pushed');
SELECT sim.switch('{"id_form": "none"}');
SELECT is(told('n', egress_policy('open')), 'no_identity', 'once more');
SELECT sim.switch('{"id_form": "sprite-uuid"}');
SELECT is(h.reason, 'no_proof', 'nor do the rows') FROM sprite_get_or_create('n', egress_policy(), 'second') AS h;
SELECT ok(is_right('n'), 'and the policy asked for is in force');

-- an id that comes or goes between push and verification
CREATE FUNCTION with_id(id text) RETURNS text LANGUAGE sql AS
$$ SELECT jsonb_strip_nulls(jsonb_build_object('name', 'n', 'id', id, 'status', 'running', 'url', 'https://n.example'))::text $$;
SELECT sim.fault(jsonb_build_object('kind', 'get', 'skip', 1, 'body', with_id(NULL)));
SELECT is(told('n', egress_policy('open')), 'SP007', 'an id that is gone after the push confirms nothing');
SELECT is(told('n'), 'in_doubt', 'the next call pushes again');
SELECT sim.switch('{"id_form": "none"}');
SELECT sim.fault(jsonb_build_object('kind', 'get', 'skip', 1, 'body', with_id('new-vm')));
SELECT is(told('n'), 'SP007', 'nor does one that is there only after the push');
SELECT isnt(sim.vm('n'), NULL::jsonb, 'the VM, which was there before, is kept');
-- the same of a VM that this call created, whose id nobody knows
SELECT sim.fault(jsonb_build_object('kind', 'get', 'name', 'fresh', 'skip', 2, 'body', replace(with_id('new-vm'), '"n"', '"fresh"')));
SELECT is(told('fresh'), 'SP007', 'a created VM without identity that suddenly has one');
SELECT is((SELECT count(*) FROM machine_sessions WHERE session_key = 'fresh'), 0::bigint, 'is linked to no session');
SELECT is((SELECT count(*) FROM machine_sessions WHERE egress_policy_token LIKE 'new-vm%'), 0::bigint, 'nothing of the strange id was recorded');
SELECT ok(NOT EXISTS (SELECT FROM sim.vms() AS v WHERE (v->>'exec_while_open')::boolean), 'and nothing ran in an open VM');

SELECT * FROM finish();
