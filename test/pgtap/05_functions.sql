-- The other functions: what they ask for, what they change, what they return.
SELECT plan(48);

-- sprite_ensure_lockdown
SELECT is(reason, 'fresh', 'ensure_lockdown creates') FROM sprite_ensure_lockdown('e', egress_policy());
SELECT is((SELECT count(*) FROM machine_sessions), 0::bigint, 'and keeps no row');
SELECT sim.clear();
SELECT is(reason, 'no_proof', 'without a token it pushes') FROM sprite_ensure_lockdown('e', egress_policy());
SELECT is(reason, 'no_proof', 'every time') FROM sprite_ensure_lockdown('e', egress_policy(), '');
SELECT is(sim.requests('policy_set'), 2, 'two calls, two pushes');
CREATE TEMP TABLE kept AS SELECT * FROM sprite_ensure_lockdown('e', egress_policy());
SELECT sim.clear();
SELECT results_eq($$ SELECT h.reason, h.applied, h.session_key, h.egress_policy_token = k.egress_policy_token FROM kept AS k, LATERAL sprite_ensure_lockdown('e', egress_policy(), k.egress_policy_token) AS h $$,
	$$ VALUES ('proven', false, NULL::text, true) $$, 'with its token it does not');
SELECT is(sim.counts(), '{"get": 1}', 'and costs one request');
SELECT is(h.reason, 'policy_changed', 'a token of another policy') FROM kept AS k, LATERAL sprite_ensure_lockdown('e', egress_policy('open'), k.egress_policy_token) AS h;
SELECT is(h.reason, 'replaced', 'a token of another VM') FROM sprite_ensure_lockdown('e', egress_policy('open'), 'other:' || hash_egress_policy('open')) AS h;

-- sprite_attach
SELECT sim.clear();
SELECT results_eq($$ SELECT session_key, name, sprite_id = sim.vm('e')->>'id', status, fresh, applied, reason, policy_hash, egress_policy_token FROM sprite_attach('e') $$,
	$$ VALUES (NULL::text, 'e', true, 'running', false, false, NULL::text, NULL::text, NULL::text) $$, 'attach says where the VM is and proves nothing');
SELECT is(sim.counts(), '{"get": 1}', 'by one request');
SELECT ok(sprite_attach('gone') IS NULL, 'attach to nothing is NULL');
SELECT is((SELECT count(*) FROM sim.vms() AS v WHERE v->>'name' = 'gone'), 0::bigint, 'and creates nothing');
SELECT sim.do('open', 'create');
SELECT ok((sprite_attach('open')).egress_policy_token IS NULL, 'attach to an open VM gives no token');
SELECT is(sim.vm('open')->'pushes', '0', 'and pushes nothing');

-- sprite_lockdown_plan agrees with what then happens
CREATE FUNCTION planned(name text, policy jsonb) RETURNS SETOF text LANGUAGE plpgsql AS
$$
DECLARE
	p record;
	h sprite_handle;
BEGIN
	PERFORM sim.clear();
	SELECT * INTO p FROM sprite_lockdown_plan(name, policy);
	RETURN NEXT is(sim.counts(), '{"get": 1}', 'a plan is one request');
	SELECT * INTO h FROM sprite_get_or_create(name, policy);
	RETURN NEXT is(row(p.would_create, p.would_apply, p.reason), row(h.fresh, h.applied, h.reason), format('the plan for %s was right: %s', name, p.reason));
	RETURN NEXT is(p."exists", NOT h.fresh, '... and so was what it said of the VM');
END
$$;
SELECT planned('plan', egress_policy());
SELECT planned('plan', egress_policy());
SELECT planned('plan', egress_policy('open'));
SELECT sim.do('plan', 'replace');
SELECT planned('plan', egress_policy('open'));
SELECT planned('open', egress_policy());
SELECT is((SELECT xmin FROM machine_sessions WHERE session_key = 'plan'), (SELECT m.xmin FROM machine_sessions AS m, sprite_lockdown_plan('plan', egress_policy()) WHERE session_key = 'plan'),
	'a plan does not touch the row');

-- sprite_network_policy
SELECT is(sprite_network_policy('plan'), egress_policy('open'), 'network_policy is what the VM says');
SELECT throws_ok($$ SELECT sprite_network_policy('gone') $$, 'SP005', NULL, 'of no Sprite it is SP005');

-- sprite_destroy
SELECT is(sprite_destroy('plan'), true, 'destroy is true when there was a VM');
SELECT is(sim.vm('plan'), NULL::jsonb, 'which is then gone');
SELECT is((SELECT count(*) FROM machine_sessions WHERE sprite_name = 'plan'), 0::bigint, 'with its rows');
SELECT is(sprite_destroy('plan'), false, 'and false when there was none');
INSERT INTO machine_sessions VALUES ('k1', 'sprites', 'gone', 'x', 'x:y'), ('k2', 'sprites', 'gone', NULL, NULL), ('k3', 'elsewhere', 'gone', NULL, NULL);
SELECT is(sprite_destroy('gone'), false, 'rows of a VM that was gone');
SELECT is((SELECT array_agg(session_key) FROM machine_sessions WHERE sprite_name = 'gone'), '{k3}', 'are deleted too, those of another server not');

-- sprite_list
SELECT sim.do('list-' || i, 'create') FROM generate_series(100, 219) AS i;
SELECT sim.clear();
SELECT is((SELECT count(*) FROM sprite_list('list-')), 120::bigint, 'list gives all pages');
SELECT is(sim.requests('list'), 3, 'of fifty');
SELECT is((SELECT count(*) FROM sprite_list('list-11')), 10::bigint, 'of those with the prefix');
SELECT is((SELECT count(*) FROM sprite_list()), (SELECT count(*) FROM sim.vms() AS v WHERE (v->>'alive')::boolean), 'or all there are');
SELECT is((SELECT count(*) FROM sprite_list() WHERE sprite_id = sim.vm(name)->>'id' AND status = 'cold' AND url LIKE 'https://%' AND created_at BETWEEN now() - interval '1 hour' AND now() + interval '1 hour' AND name LIKE 'list-21_'), 10::bigint, 'with their columns');
SELECT is((SELECT count(*) FROM sprite_list('nothing')), 0::bigint, 'none is no row');

-- config
SELECT is(reason, 'fresh', 'a create may have a configuration') FROM sprite_get_or_create('c', egress_policy(), config => '{"ram_mb": 4096, "cpus": 2, "storage_gb": 20, "region": "iad"}');
SELECT is(sim.vm('c')->'config', '{"ram_mb": 4096, "cpus": 2, "storage_gb": 20, "region": "iad"}', 'which reaches the platform');
SELECT is(reason, 'proven', 'for an existing Sprite it says nothing') FROM sprite_get_or_create('c', egress_policy(), config => '{"cpus": 4}');

SELECT * FROM finish();
