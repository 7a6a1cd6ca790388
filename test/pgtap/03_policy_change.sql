-- A changed policy is pushed once and then proven; spelling does not make a change.
SELECT plan(12);

SELECT is(reason, 'fresh', 'created') FROM sprite_get_or_create('p', egress_policy('allowlist', '{github.com}'));
SELECT sim.clear();
SELECT is(reason, 'policy_changed', 'another policy') FROM sprite_get_or_create('p', egress_policy('allowlist', '{gitlab.com}'));
SELECT is(sim.counts(), '{"get": 2, "policy_set": 1, "policy_get": 1, "exec": 1}', 'is pushed once, verified, and the workspace made');
SELECT is(sim.vm('p')->'policy', egress_policy('allowlist', '{gitlab.com}'), 'the VM runs it');
SELECT sim.clear();
SELECT is(reason, 'proven', 'and is then proven') FROM sprite_get_or_create('p', egress_policy('allowlist', '{gitlab.com}'));
SELECT is(sim.counts(), '{"get": 1}', 'with one request');
SELECT is(reason, 'policy_changed', 'back again it is a change again') FROM sprite_get_or_create('p', egress_policy('allowlist', '{github.com}'));

SELECT sim.clear();
SELECT is(reason, 'proven', 'the same policy in upper case') FROM sprite_get_or_create('p', egress_policy('allowlist', '{GitHub.com}'));
SELECT is(reason, 'proven', 'with blanks around') FROM sprite_get_or_create('p', egress_policy('allowlist', '{" github.com "}'));
SELECT is(reason, 'proven', 'with its rules in another order')
FROM sprite_get_or_create('p', jsonb_build_object('rules', (SELECT jsonb_agg(r ORDER BY r->>'domain' DESC)
	FROM jsonb_array_elements(egress_policy('allowlist', '{github.com}')->'rules') AS r)));
SELECT is(sim.counts(), '{"get": 3}', 'is the same policy');
SELECT is((sim.vm('p')->>'pushes')::int, 3, 'three pushes in all');

SELECT * FROM finish();
